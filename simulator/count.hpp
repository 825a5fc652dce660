// What the runtime tells count.cpp: nothing, except in the build that counts (SIMULATOR_COUNT).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "call_site.hpp"
#include "launch.hpp"

namespace simulator {

#ifdef SIMULATOR_COUNT

inline constexpr bool kCounts = true;

/// Around all blocks of a launch, and around one block or cluster, on the worker that runs it, with
/// the first block's shared memory; the next one's is so many bytes further. `kernel` and `call`
/// are run_grid()'s.
void count_launch(const Launch& launch, const void* kernel, void (*call)(const void*));
void count_launch_end();
void count_block(const void* shared, size_t bytes_of_a_block, unsigned int blocks);
void count_block_end();

/// These threads of the block have met at a barrier; `warps` is a mask of theirs.
void count_barrier(const Site& site, unsigned int threads, unsigned int warps);

/// All lanes of a warp have met.
void count_warp_met(unsigned int warp, const Site& site);

/// The running thread leaves the kernel.
void count_exit();

/// Whether accesses count. They do not while one thread works for its whole warp.
void count_pause(bool pause);

/// An access by the running thread that the compiler does not show: a copy engine's, or its part of
/// a warp-wide one.
void count_access(const void* address, size_t bytes, bool store, const Site& site);

/// A copy by the copy engine: the bytes of global memory that it touches, and their sectors. The
/// same of a tile. And a warp's part of a wgmma.
void count_box(bool store, size_t bytes, size_t sectors, const Site& site);
void count_tile(bool store, size_t bytes, size_t sectors, const Site& site);
void count_product(const Site& site);

/// A call of a library, for the trace: the matrices that it reads, and last the one that it writes,
/// each with its bytes.
void count_library(const char* name, const std::vector<std::pair<const void*, size_t>>& matrices);

/// A launch's argument, the index-th from 1: it tells the trace what a buffer is called.
void count_argument(const Launch& launch, size_t index, const void* pointer);

#else

inline constexpr bool kCounts = false;
inline void count_launch(const Launch&, const void*, void (*)(const void*)) {}
inline void count_launch_end() {}
inline void count_block(const void*, size_t, unsigned int) {}
inline void count_block_end() {}
inline void count_barrier(const Site&, unsigned int, unsigned int) {}
inline void count_warp_met(unsigned int, const Site&) {}
inline void count_exit() {}
inline void count_pause(bool) {}
inline void count_access(const void*, size_t, bool, const Site&) {}
inline void count_box(bool, size_t, size_t, const Site&) {}
inline void count_tile(bool, size_t, size_t, const Site&) {}
inline void count_product(const Site&) {}
inline void count_library(const char*, const std::vector<std::pair<const void*, size_t>>&) {}
inline void count_argument(const Launch&, size_t, const void*) {}

#endif

}  // namespace simulator
