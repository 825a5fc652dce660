// The GPU's energy, as its own counter says (--energy). The counter is NVML's. NVML comes with the
// driver, so it is loaded when it is needed, and the few functions are declared here.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>
#include <type_traits>

#include "numbers.hpp"

namespace demo {

/// What one launch of many took, and the power meanwhile; 0 where it was not measured.
struct Energy {
    double joules = 0;  // per launch
    double watts = 0;
};

/// The energy that one GPU, its memory and the rest of its board have taken since the driver was
/// loaded.
class EnergyCounter {
  public:
    /// `bus_id`: the GPU's place, as cudaDeviceGetPCIBusId() writes it.
    explicit EnergyCounter(const std::string& bus_id) {
        void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!nvml) {
            why_not_ = "libnvidia-ml.so.1, a part of the driver, is not found";
            return;
        }
        auto find = [&](auto& function, const char* name) {
            function =
                reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(nvml, name));
            return function != nullptr;
        };
        int (*init)() = nullptr;
        int (*get_device)(const char*, void**) = nullptr;
        if (!find(init, "nvmlInit_v2") || !find(text_, "nvmlErrorString") ||
            !find(get_device, "nvmlDeviceGetHandleByPciBusId_v2") ||
            !find(read_, "nvmlDeviceGetTotalEnergyConsumption"))
            why_not_ = "this driver's NVML has no counter of energy";
        else if (succeeds(init()) && succeeds(get_device(bus_id.c_str(), &device_)))
            joules();
    }

    /// Why there is none; empty where there is.
    const std::string& why_not() const { return why_not_; }

    double joules() {
        unsigned long long millijoules = 0;
        succeeds(read_(device_, &millijoules));
        return double(millijoules) / 1000;
    }

  private:
    bool succeeds(int status) {
        if (status != 0) why_not_ = std::string("NVML says: ") + text_(status);
        return status == 0;
    }

    void* device_ = nullptr;
    const char* (*text_)(int) = nullptr;
    int (*read_)(void*, unsigned long long*) = nullptr;
    std::string why_not_;
};

/// Calls run(), which launches something and returns how often, for at least `seconds`. The counter
/// moves in steps, so it begins at one and ends at another. Nothing, if none comes within
/// `patience`, which is far longer than a step.
template <class Run>
Energy energy_of(EnergyCounter& counter, double seconds, Run run, double patience = 3) {
    double last = counter.joules(), first = 0;
    std::optional<Stopwatch> time;
    size_t launches = 0;
    for (const Stopwatch all; all.ms() < 1000 * (seconds + patience);) {
        launches += run();
        const double now = counter.joules();
        if (now == last) continue;
        last = now;
        if (!time) {
            first = now, launches = 0;
            time.emplace();
        } else if (time->ms() >= 1000 * seconds) {
            return {(now - first) / double(launches), (now - first) / time->ms() * 1000};
        }
    }
    return {};
}

}  // namespace demo
