// Arithmetic that measuring and reporting need: byte counts that cannot wrap, and statistics.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace demo {

/// Product of `factors`, or SIZE_MAX where it does not fit: a huge size stays huge.
template <class... Factors>
constexpr size_t saturating_product(Factors... factors) {
    size_t product = 1;
    ((product = size_t(factors) != 0 && product > SIZE_MAX / size_t(factors)
                    ? SIZE_MAX
                    : product * size_t(factors)),
     ...);
    return product;
}

/// Sum of `terms`, or SIZE_MAX where it does not fit.
template <class... Terms>
constexpr size_t saturating_sum(Terms... terms) {
    size_t sum = 0;
    ((sum = sum > SIZE_MAX - size_t(terms) ? SIZE_MAX : sum + size_t(terms)), ...);
    return sum;
}

/// The largest multiple of `step` whose bytes(multiple) is at most `free_bytes`; 0 if none is.
/// `bytes` must not fall as its argument grows.
template <class Bytes>
size_t largest_that_fits(size_t step, size_t free_bytes, Bytes bytes) {
    size_t fits = 0, too_large = (size_t(1) << 40);  // in steps
    while (too_large - fits > 1) {
        const size_t middle = fits + (too_large - fits) / 2;
        (bytes(saturating_product(middle, step)) <= free_bytes ? fits : too_large) = middle;
    }
    return fits * step;
}

/// Milliseconds on the host's clock since it was made.
class Stopwatch {
  public:
    double ms() const {
        return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
    }

  private:
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start_ = Clock::now();
};

/// "96.0 MiB": bytes for people.
inline std::string human_bytes(double bytes) {
    const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

/// The p-quantile (0 <= p <= 1) of `samples`, interpolated linearly between neighbors; 0 of none.
inline double quantile(std::vector<double> samples, double p) {
    if (samples.empty()) return 0;
    std::sort(samples.begin(), samples.end());
    const double position = p * double(samples.size() - 1);
    const size_t below = size_t(position), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (position - double(below)) * (samples[above] - samples[below]);
}

inline double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

/// Spread in percent: the interquartile range over the median.
inline double spread_percent(const std::vector<double>& samples) {
    const double middle = median(samples);
    if (!(middle > 0)) return 0;
    return 100 * (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle;
}

}  // namespace demo
