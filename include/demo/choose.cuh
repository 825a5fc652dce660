// Choosing the faster of several ways to the same result, before anything is measured.
#pragma once

#include <functional>
#include <vector>

#include "device.cuh"
#include "numbers.hpp"

namespace demo {

/// Median time of `launch` in ms, of a few launches in a row: enough to choose between two ways.
template <class Launch>
double quick_time(Launch launch) {
    if (dry_run) return 0;
    const EventTimer timer;
    std::vector<double> ms;
    timer.ms(launch);  // the first launch loads the kernel
    for (int i = 0; i < 5; ++i) ms.push_back(timer.ms(launch));
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
