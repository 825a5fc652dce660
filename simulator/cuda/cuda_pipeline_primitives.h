// Asynchronous copies into shared memory. They take place at their wait; until then the destination
// is NaN bytes (async_copies.cpp).
#pragma once

#include <cstddef>

#include "../async_copies.hpp"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zero_bytes = 0,
                                    SIMULATOR_SITE) {
    simulator::async_copy(to, from, bytes, zero_bytes, {"__pipeline_memcpy_async()", file, line});
}
inline void __pipeline_commit() { simulator::async_commit(); }
inline void __pipeline_wait_prior(size_t groups_still_allowed) {
    simulator::async_wait(groups_still_allowed);
}
