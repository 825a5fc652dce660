// DEMO_SCHEDULE: in which order threads run, and when the hardware does what goes on beside them.
#pragma once

#include <cstdint>

namespace simulator {

struct Schedule {
    enum { kForward, kReverse, kRandom } order = kForward;
    uint64_t seed = 0;   // of kRandom
    bool alone = false;  // one block at a time, or one cluster: the next runs when this one waits

    /// What DEMO_SCHEDULE says: forward, reverse, random:SEED or alone.
    Schedule();
};
extern const Schedule schedule;

/// SplitMix64.
struct Random {
    uint64_t state;
    uint64_t operator()() {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    static constexpr uint64_t min() { return 0; }
    static constexpr uint64_t max() { return ~uint64_t(0); }
    using result_type = uint64_t;
};

}  // namespace simulator
