// Hopper's own instructions on the simulator: none. Programs compile, and why_not() says why their
// kernels cannot run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../errors.hpp"
#include "cuda_runtime.h"

#define HOPPER_CLUSTER(blocks)

struct CUtensorMap {};

namespace demo {
struct Gpu;
}

namespace hopper {

[[noreturn]] inline void missing() { simulator::unsupported("TMA and wgmma"); }

using Barrier = uint64_t;
inline void mbarrier_init(Barrier*, uint32_t) { missing(); }
inline void fence_mbarrier_init() { missing(); }
inline void mbarrier_arrive_expect_tx(Barrier*, uint32_t) { missing(); }
inline void mbarrier_arrive_cluster(Barrier*, uint32_t) { missing(); }
inline void mbarrier_arrive(Barrier*) { missing(); }
inline void mbarrier_wait(Barrier*, uint32_t) { missing(); }
inline void barrier_sync_warpgroup(int) { missing(); }
inline uint32_t cluster_ctarank() { missing(); }
inline void barrier_cluster_sync() { missing(); }
inline void st_async(float2*, float2, Barrier*, uint32_t) { missing(); }
inline void cp_async_bulk(void*, const void*, uint32_t, Barrier*) { missing(); }
inline void tma_load(void*, const CUtensorMap&, int, int, Barrier*) { missing(); }
inline void tma_load_panels(void*, const CUtensorMap&, int, Barrier*) { missing(); }
inline void tma_load_multicast(void*, const CUtensorMap&, int, int, Barrier*, uint16_t) {
    missing();
}
inline void tma_store(const CUtensorMap&, int, int, const void*) { missing(); }
inline void cp_async_bulk_commit_group() { missing(); }
template <int>
void cp_async_bulk_wait_group_read() {
    missing();
}
inline void fence_proxy_async() { missing(); }
inline uint64_t matrix_descriptor(const void*, uint32_t = 0) { missing(); }
inline void wgmma_fence() { missing(); }
inline void wgmma_commit_group() { missing(); }
template <int>
void wgmma_wait_group() {
    missing();
}
template <class T, int kSums>
void wgmma_mma_async(float (&)[kSums], uint64_t, uint64_t, bool) {
    missing();
}
inline void stmatrix_x4(void*, uint32_t, uint32_t, uint32_t, uint32_t) { missing(); }
template <int>
void setmaxnreg_dec() {
    missing();
}
template <int>
void setmaxnreg_inc() {
    missing();
}
template <class T>
CUtensorMap tensor_map(const T*, size_t, size_t, uint32_t, uint32_t = 1) {
    missing();
}

inline bool has_bulk_copies() { return false; }
inline std::string why_not(const demo::Gpu&) { return "needs Hopper (compute capability 9.0)"; }

}  // namespace hopper
