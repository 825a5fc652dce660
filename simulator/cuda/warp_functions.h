// What the lanes of a warp do together: shuffles and votes.
#pragma once

#include <cstring>

#include "../scheduler.hpp"

namespace simulator {

/// The value of lane `source`. What no participating lane holds is undefined: NaN bytes here.
template <class T>
T shuffle(unsigned int mask, T value, unsigned int source, Site site) {
    struct Record {
        T value, result;
        unsigned int source;
    } record{value, value, source};
    warp_meet(
        mask, &record,
        [](void* const* records, unsigned int mask) {
            for (unsigned int lane = 0; lane < 32; ++lane) {
                if (!(mask >> lane & 1)) continue;
                Record& record = *static_cast<Record*>(records[lane]);
                if (mask >> record.source & 1)
                    record.result = static_cast<Record*>(records[record.source])->value;
                else
                    std::memset(static_cast<void*>(&record.result), 0xFF, sizeof(T));
            }
        },
        site);
    return record.result;
}

/// The lanes of `mask` for which `predicate` holds.
inline unsigned int ballot(unsigned int mask, bool predicate, Site site) {
    unsigned int record = predicate;
    warp_meet(
        mask, &record,
        [](void* const* records, unsigned int mask) {
            unsigned int votes = 0;
            for (unsigned int lane = 0; lane < 32; ++lane)
                if (mask >> lane & 1) votes |= *static_cast<unsigned int*>(records[lane]) << lane;
            for (unsigned int lane = 0; lane < 32; ++lane)
                if (mask >> lane & 1) *static_cast<unsigned int*>(records[lane]) = votes;
        },
        site);
    return record;
}

}  // namespace simulator

template <class T>
T __shfl_sync(unsigned int mask, T value, int source, int width = 32, SIMULATOR_SITE) {
    const unsigned int segment = simulator::lane() & ~(width - 1u);
    return simulator::shuffle(mask, value, segment | (source & (width - 1u)),
                              {"__shfl_sync()", file, line});
}
template <class T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32, SIMULATOR_SITE) {
    const unsigned int lane = simulator::lane(), in_segment = lane & (width - 1u);
    return simulator::shuffle(mask, value, delta <= in_segment ? lane - delta : lane,
                              {"__shfl_up_sync()", file, line});
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32, SIMULATOR_SITE) {
    const unsigned int lane = simulator::lane(), in_segment = lane & (width - 1u);
    return simulator::shuffle(mask, value,
                              in_segment + delta < unsigned(width) ? lane + delta : lane,
                              {"__shfl_down_sync()", file, line});
}
template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = 32, SIMULATOR_SITE) {
    const unsigned int lane = simulator::lane(), other = lane ^ lanes;
    return simulator::shuffle(mask, value, other <= (lane | (width - 1u)) ? other & 31 : lane,
                              {"__shfl_xor_sync()", file, line});
}
inline unsigned int __ballot_sync(unsigned int mask, int predicate, SIMULATOR_SITE) {
    return simulator::ballot(mask, predicate, {"__ballot_sync()", file, line});
}
inline int __any_sync(unsigned int mask, int predicate, SIMULATOR_SITE) {
    return simulator::ballot(mask, predicate, {"__any_sync()", file, line}) != 0;
}
inline int __all_sync(unsigned int mask, int predicate, SIMULATOR_SITE) {
    return simulator::ballot(mask, !predicate, {"__all_sync()", file, line}) == 0;
}
/// CUDA promises no more than that the calling lane is among them.
inline unsigned int __activemask() { return 1u << simulator::lane(); }
