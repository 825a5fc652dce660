// Hopper's own instructions on the CPU lane: none. Programs compile, and why_not() says why their
// kernels cannot run.
#pragma once

#include <string>

#include "demo/device.cuh"

#define HOPPER_CLUSTER(blocks)

struct CUtensorMap {};

namespace hopper {

[[noreturn]] inline void missing() { demo_cpu::unsupported("TMA and wgmma"); }

using Barrier = uint64_t;
inline void init_barrier(Barrier*, uint32_t) { missing(); }
inline void fence_barrier_init() { missing(); }
inline void arrive_expecting(Barrier*, uint32_t) { missing(); }
inline void arrive_at(Barrier*, uint32_t) { missing(); }
inline void arrive(Barrier*) { missing(); }
inline void wait(Barrier*, uint32_t) { missing(); }
inline void sync_warpgroup(int) { missing(); }
inline uint32_t cluster_rank() { missing(); }
inline void sync_cluster() { missing(); }
inline void send(float2*, float2, Barrier*, uint32_t) { missing(); }
inline void load_bulk(void*, const void*, uint32_t, Barrier*) { missing(); }
inline void load_box(void*, const CUtensorMap&, int, int, Barrier*) { missing(); }
inline void load_panels(void*, const CUtensorMap&, int, Barrier*) { missing(); }
inline void load_box_multicast(void*, const CUtensorMap&, int, int, Barrier*, uint16_t) {
    missing();
}
inline void store_box(const CUtensorMap&, int, int, const void*) { missing(); }
inline void commit_stores() { missing(); }
template <int>
void wait_stores_read() {
    missing();
}
inline void fence_async_proxy() { missing(); }
inline uint64_t descriptor(const void*, uint32_t = 0) { missing(); }
inline void wgmma_fence() { missing(); }
inline void wgmma_commit() { missing(); }
template <int>
void wgmma_wait() {
    missing();
}
template <class T, int kSums>
void wgmma(float (&)[kSums], uint64_t, uint64_t, bool) {
    missing();
}
inline void store_matrices(void*, uint32_t, uint32_t, uint32_t, uint32_t) { missing(); }
template <int>
void shrink_registers() {
    missing();
}
template <int>
void grow_registers() {
    missing();
}
template <class T>
CUtensorMap tensor_map(const T*, size_t, size_t, uint32_t, uint32_t = 1) {
    missing();
}

inline bool has_bulk_copies() { return false; }
inline std::string why_not(const demo::Gpu&) { return "needs Hopper (compute capability 9.0)"; }

}  // namespace hopper
