// Statistics, figures as text, and the rows that are checked.
#include "demo/numbers.hpp"

#include <algorithm>
#include <cstdio>

#include "internal.hpp"

namespace demo {

double quantile(std::vector<double> samples, double p) {
    if (samples.empty()) return 0;
    std::sort(samples.begin(), samples.end());
    const double position = p * double(samples.size() - 1);
    const size_t below = size_t(position), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (position - double(below)) * (samples[above] - samples[below]);
}

double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

double spread_percent(const std::vector<double>& samples) {
    const double middle = median(samples);
    if (!(middle > 0)) return 0;
    return 100 * (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle;
}

std::string significant(double value, int digits) {
    int decimals = digits - 1;
    for (double v = value; v > 0 && v < 1 && decimals < 9; v *= 10) ++decimals;
    for (double v = value; v >= 10 && decimals > 0; v /= 10) --decimals;
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

std::string time_text(double ms) {
    return (kSimulator ? "(CPU) " : "") + significant(ms, 4) + " ms";
}

std::string percent(double fraction) {
    char text[32];
    std::snprintf(text, sizeof text, fraction < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * fraction);
    return text;
}

std::string human_bytes(double bytes) {
    const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

size_t largest_that_fits(size_t step, size_t free_bytes,
                         const std::function<size_t(size_t)>& bytes) {
    size_t fits = 0, too_large = (size_t(1) << 40);  // in steps
    while (too_large - fits > 1) {
        const size_t middle = fits + (too_large - fits) / 2;
        (bytes(saturating_product(middle, step)) <= free_bytes ? fits : too_large) = middle;
    }
    return fits * step;
}

std::vector<size_t> sampled_rows(size_t rows, uint64_t seed) {
    std::vector<size_t> sample;
    for (size_t strip = 0; strip < rows; strip += 32) {
        const size_t last = strip + 32 < rows ? strip + 32 : rows;
        if (rows <= 2048 || strip == 0 || last == rows)
            for (size_t row = strip; row < last; ++row) sample.push_back(row);
        else
            sample.push_back(strip + random_bits(seed, strip) % 32);
    }
    return sample;
}

}  // namespace demo
