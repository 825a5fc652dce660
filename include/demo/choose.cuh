// Choosing the faster of several ways to the same result, before anything is measured.
#pragma once

#include <functional>
#include <vector>

#include "device.cuh"
#include "numbers.hpp"

namespace demo {

/// Median time of `launch` in ms, of five launches, or fewer once `most_ms` have passed: enough to
/// choose between two ways. `prepare` comes before each of them, and is not timed.
template <class Launch>
double quick_time(Launch launch, const std::function<void()>& prepare = {}, double most_ms = 1e9) {
    if (dry_run) return 0;
    const EventTimer timer;
    const Stopwatch spent;
    std::vector<double> ms;
    for (int i = 0; i < 6 && (ms.empty() || spent.ms() < most_ms); ++i) {
        if (prepare) prepare();
        const double time = timer.ms(launch);
        if (i > 0) ms.push_back(time);  // the first launch loads the kernel
    }
    return median(ms);
}

/// The faster of two launches with the same result; the first where nothing is to be timed. Both
/// run several times, so neither may overwrite its own input.
inline std::function<void()> faster(const Options& options, std::function<void()> first,
                                    std::function<void()> second) {
    if (options.once || kSimulator) return first;
    return quick_time(first) <= quick_time(second) ? first : second;
}

}  // namespace demo
