// What the runtime tells count.cpp: nothing, except in the build that counts (SIMULATOR_COUNT).
#pragma once

#include <cstddef>

#include "call_site.hpp"
#include "launch.hpp"

namespace simulator {

#ifdef SIMULATOR_COUNT

inline constexpr bool kCounts = true;

/// Around all blocks of a launch, and around one block, on the worker that runs it. `kernel` and
/// `call` are run_grid()'s.
void count_launch(const Launch& launch, const void* kernel, void (*call)(const void*));
void count_launch_end();
void count_block(const void* dynamic_shared);
void count_block_end();

/// All threads of the block have met at a barrier.
void count_barrier(const Site& site);

/// All lanes of a warp have met.
void count_warp_met(unsigned int warp);

/// The running thread leaves the kernel.
void count_exit();

/// Whether accesses count. They do not while one thread works for its whole warp.
void count_pause(bool pause);

/// An access by the running thread that the compiler does not show: a copy engine's, or its part of
/// a warp-wide one.
void count_access(const void* address, size_t bytes, bool store, const Site& site);

#else

inline constexpr bool kCounts = false;
inline void count_launch(const Launch&, const void*, void (*)(const void*)) {}
inline void count_launch_end() {}
inline void count_block(const void*) {}
inline void count_block_end() {}
inline void count_barrier(const Site&) {}
inline void count_warp_met(unsigned int) {}
inline void count_exit() {}
inline void count_pause(bool) {}
inline void count_access(const void*, size_t, bool, const Site&) {}

#endif

}  // namespace simulator
