// mbarriers: 64 bits in shared memory that count arrivals of threads and bytes of copies.
#pragma once

#include <cstdint>

#include "call_site.hpp"

namespace simulator {

/// `at` is an mbarrier's place in shared memory, of this block or another one of the cluster. All
/// fail on one that was never initialized, or that more arrive at than it expects.
void mbarrier_init(uint64_t* at, uint32_t arrivals, Site site);
void mbarrier_arrive(uint64_t* at, Site site);
void mbarrier_expect_bytes(uint64_t* at, uint32_t bytes, Site site);
void mbarrier_complete_bytes(uint64_t* at, uint32_t bytes, Site site);

/// Waits while the phase that goes on has this parity.
void mbarrier_wait(const uint64_t* at, uint32_t parity, Site site);

}  // namespace simulator
