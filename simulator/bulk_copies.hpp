// What the copy engine does: bulk copies, TMA's copies of boxes, and stores to other blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "call_site.hpp"

struct CUtensorMap;

namespace simulator {

/// Starts a copy of `bytes` from global to this block's shared memory, which count at `barrier`.
void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site site);

/// Starts a copy of the map's box at these coordinates, the innermost first, to the same address in
/// each block of the cluster whose bit is set in `ranks`; its bytes count at each one's barrier.
void tensor_load(void* to, const CUtensorMap& map, std::initializer_list<int> at, uint64_t* barrier,
                 uint32_t ranks, Site site);

/// Starts a copy of the box from shared memory. Until a wait for its group it may still be reading.
void tensor_store(const CUtensorMap& map, std::initializer_list<int> at, const void* from,
                  Site site);
void commit_stores();
void wait_for_stores(size_t groups_still_allowed);

/// Stores 8 bytes at the same address in block `rank`, where they count at the same barrier.
void remote_store(void* to, uint64_t value, uint64_t* barrier, uint32_t rank, Site site);

}  // namespace simulator
