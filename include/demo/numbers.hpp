// For measuring and reporting: byte counts that cannot wrap, statistics, and figures as text.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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

double median(const std::vector<double>& samples);  // of an even number: the middle two's mean

/// Spread in percent: the interquartile range over the median.
double spread_percent(const std::vector<double>& samples);

/// `value` with `digits` significant digits, without an exponent.
std::string significant(double value, int digits);

/// "20.93 ms"; on the simulator "(CPU) 20.93 ms", since it says nothing of a GPU.
std::string time_text(double ms);

std::string percent(double fraction);   // "87%", below a tenth "8.7%"
std::string human_bytes(double bytes);  // "96.0 MiB"

}  // namespace demo
