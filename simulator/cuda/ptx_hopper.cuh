// ptx_hopper.cuh for the simulator: the same functions in plain C++. What they do asynchronously is
// done at the moment that DEMO_SCHEDULE chooses (scheduler.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../bulk_copies.hpp"
#include "../count.hpp"
#include "../errors.hpp"
#include "../mbarrier.hpp"
#include "../registers.hpp"
#include "../scheduler.hpp"
#include "../shared_memory.hpp"
#include "../wgmma.hpp"
#include "cuda.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#define HOPPER_CLUSTER(blocks)  // translate.py has told of it

namespace simulator {

/// What a lane brings to stmatrix: the row that it names, and its parts of the four matrices.
struct MatrixParts {
    char* row;
    uint32_t m[4];
    bool transposed;
    Site site;
};

/// The lanes' common work: four 8 x 8 matrices, to the 32 rows that they name.
inline void store_matrices(void* const* records, unsigned int mask) {
    auto of = [&](int lane) -> const MatrixParts& {
        return *static_cast<const MatrixParts*>(records[lane]);
    };
    if (mask != ~0u) fail(3, "%s needs a whole warp", text(of(0).site).c_str());
    for (int lane = 0; lane < 32; ++lane) {
        if (reinterpret_cast<uintptr_t>(of(lane).row) % 16 != 0)
            fail(3, "%s: lane %d names a row that is not aligned to 16 bytes",
                 text(of(lane).site).c_str(), lane);
        const int matrix = lane / 8, row = lane % 8;
        for (int i = 0; i < 8; ++i) {  // element [row][i]
            const MatrixParts& holder = of(of(0).transposed ? i * 4 + row / 2 : row * 4 + i / 2);
            const int half = of(0).transposed ? row % 2 : i % 2;
            const auto element = uint16_t(holder.m[matrix] >> 16 * half);
            std::memcpy(of(lane).row + 2 * i, &element, 2);
        }
    }
}

}  // namespace simulator

namespace hopper {

inline uint32_t shared_address(const void* pointer, SIMULATOR_SITE) {
    return simulator::shared_address(pointer, {"shared_address()", file, line});
}

// --- Barriers -----------------------------------------------------------------------------------

using Barrier = uint64_t;

inline void mbarrier_init(Barrier* barrier, uint32_t arrivals, SIMULATOR_SITE) {
    simulator::mbarrier_init(barrier, arrivals, {"mbarrier_init()", file, line});
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive_expect_tx(Barrier* barrier, uint32_t bytes, SIMULATOR_SITE) {
    const simulator::Site site{"mbarrier_arrive_expect_tx()", file, line};
    simulator::mbarrier_expect_bytes(barrier, bytes, site);
    simulator::mbarrier_arrive(barrier, site);
}
inline void mbarrier_arrive_cluster(Barrier* barrier, uint32_t rank, SIMULATOR_SITE) {
    const simulator::Site site{"mbarrier_arrive_cluster()", file, line};
    simulator::require_present(rank, site);
    const uint32_t address = simulator::shared_address(barrier, site);
    simulator::mbarrier_arrive(reinterpret_cast<Barrier*>(simulator::shared_pointer(address, rank)),
                               site);
}
inline void mbarrier_arrive(Barrier* barrier, SIMULATOR_SITE) {
    simulator::mbarrier_arrive(barrier, {"mbarrier_arrive()", file, line});
}
inline void mbarrier_wait(Barrier* barrier, uint32_t parity, SIMULATOR_SITE) {
    simulator::mbarrier_wait(barrier, parity, {"mbarrier_wait()", file, line});
}
inline void barrier_sync_warpgroup(int index, SIMULATOR_SITE) {
    simulator::barrier_meet(index + 1, 128, {"barrier_sync_warpgroup()", file, line});
}
inline void barrier_sync(int index, int threads, SIMULATOR_SITE) {
    simulator::barrier_meet(index, threads, {"barrier_sync()", file, line});
}
inline void barrier_arrive(int index, int threads, SIMULATOR_SITE) {
    simulator::barrier_arrive(index, threads, {"barrier_arrive()", file, line});
}

// --- Clusters -----------------------------------------------------------------------------------

inline uint32_t cluster_ctarank() { return simulator::cluster_rank(); }
inline void barrier_cluster_sync(SIMULATOR_SITE) {
    simulator::cluster_meet({"barrier_cluster_sync()", file, line});
}
inline void st_async(float2* to, float2 value, Barrier* barrier, uint32_t rank, SIMULATOR_SITE) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    simulator::remote_store(to, bits, barrier, rank, {"st_async()", file, line});
}
inline void st_async(float4* to, float4 value, Barrier* barrier, uint32_t rank, SIMULATOR_SITE) {
    auto* const pairs = reinterpret_cast<float2*>(to);
    st_async(&pairs[0], {value.x, value.y}, barrier, rank, file, line);
    st_async(&pairs[1], {value.z, value.w}, barrier, rank, file, line);
}

// --- Copies -------------------------------------------------------------------------------------

inline void cp_async_bulk(void* to, const void* from, uint32_t bytes, Barrier* barrier, uint64_t,
                          SIMULATOR_SITE) {
    simulator::bulk_load(to, from, bytes, barrier, {"cp_async_bulk()", file, line});
}
inline void tma_load(void* to, const CUtensorMap& map, int row, int column, Barrier* barrier,
                     SIMULATOR_SITE) {
    simulator::tensor_load(to, map, {column, row}, barrier, 1u << simulator::cluster_rank(),
                           {"tma_load()", file, line});
}
inline void tma_load_panels(void* to, const CUtensorMap& map, int row, Barrier* barrier,
                            int matrix = 0, SIMULATOR_SITE) {
    simulator::tensor_load(to, map, {0, row, 0, matrix}, barrier, 1u << simulator::cluster_rank(),
                           {"tma_load_panels()", file, line});
}
inline void tma_load_multicast(void* to, const CUtensorMap& map, int row, int column,
                               Barrier* barrier, uint16_t ranks, SIMULATOR_SITE) {
    simulator::tensor_load(to, map, {column, row}, barrier, ranks,
                           {"tma_load_multicast()", file, line});
}
inline void prefetch_tensormap(const CUtensorMap&) {}
inline void tma_store(const CUtensorMap& map, int row, int column, const void* from,
                      SIMULATOR_SITE) {
    simulator::tensor_store(map, {column, row}, from, {"tma_store()", file, line});
}
inline void tma_store_panels(const CUtensorMap& map, int row, const void* from, int matrix = 0,
                             SIMULATOR_SITE) {
    simulator::tensor_store(map, {0, row, 0, matrix}, from, {"tma_store_panels()", file, line});
}
inline void cp_async_bulk_commit_group() { simulator::commit_stores(); }
template <int kGroups>
void cp_async_bulk_wait_group_read() {
    simulator::wait_for_stores(kGroups);
}
template <int kGroups>
void cp_async_bulk_wait_group() {
    simulator::wait_for_stores(kGroups);
}
inline void fence_release_cluster() {}
inline void fence_proxy_async() { simulator::publish_shared(); }
inline void fence_proxy_async_global() {}

// --- wgmma --------------------------------------------------------------------------------------

inline void wgmma_fence() { simulator::wgmma_fence(); }
inline void wgmma_commit_group(SIMULATOR_SITE) {
    simulator::wgmma_commit({"wgmma_commit_group()", file, line});
}
template <int kGroups>
void wgmma_wait_group(SIMULATOR_SITE) {
    simulator::wgmma_wait(kGroups, {"wgmma_wait_group()", file, line});
}
template <class T, int kSums, bool kOwn>
constexpr simulator::Operand operand_of_wgmma() {
    using simulator::Operand;
    static_assert(kSums == 64 || (kSums == 128 && (sizeof(T) == 2 || kOwn)) ||
                  (sizeof(T) == 2 && (kSums == 16 || kSums == 32 || kSums == 96)));
    return std::is_same_v<T, float>  ? Operand::kTf32
           : std::is_same_v<T, half> ? Operand::kHalf
                                     : Operand::kBfloat16;
}
template <class T, int kSums>
void wgmma_mma_async(float (&sums)[kSums], uint64_t a, uint64_t b, bool keep, SIMULATOR_SITE) {
    simulator::wgmma(operand_of_wgmma<T, kSums, false>(), sums, kSums, a, nullptr, b, keep,
                     {"wgmma_mma_async()", file, line});
}
template <class T, int kSums>
void wgmma_mma_async(float (&sums)[kSums], const uint32_t (&a)[4], uint64_t b, bool keep,
                     SIMULATOR_SITE) {
    simulator::wgmma(operand_of_wgmma<T, kSums, true>(), sums, kSums, 0, a, b, keep,
                     {"wgmma_mma_async()", file, line});
}
template <class T, int kSums>
void wgmma_mma_async_k_major(float (&sums)[kSums], uint64_t a, uint64_t b, bool keep,
                             SIMULATOR_SITE) {
    static_assert(kSums == 8 || kSums == 16 || kSums == 32 || kSums == 64);
    constexpr bool kTf32 = std::is_same_v<T, float>;
    static_assert(kTf32 || std::is_same_v<T, half>);
    simulator::wgmma(kTf32 ? simulator::Operand::kTf32 : simulator::Operand::kHalf, sums, kSums, a,
                     nullptr, b, keep, {"wgmma_mma_async_k_major()", file, line}, true);
}
template <class T, int kSums>
void wgmma_mma_async_transposed(float (&sums)[kSums], uint64_t a, uint64_t b, bool keep,
                                SIMULATOR_SITE) {
    static_assert(kSums == 32 || kSums == 40 || kSums == 48 || kSums == 56 || kSums == 64 ||
                  kSums == 72 || kSums == 80 || kSums == 88 || kSums == 96 || kSums == 104 ||
                  kSums == 128);
    static_assert(sizeof(T) == 2);
    simulator::wgmma(
        std::is_same_v<T, half> ? simulator::Operand::kHalf : simulator::Operand::kBfloat16, sums,
        kSums, a, nullptr, b, keep, {"wgmma_mma_async_transposed()", file, line}, true, true);
}
inline void stmatrix_x4(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3,
                        SIMULATOR_SITE) {
    simulator::MatrixParts own{
        static_cast<char*>(row), {m0, m1, m2, m3}, false, {"stmatrix_x4()", file, line}};
    simulator::count_access(row, 16, true, own.site);
    simulator::warp_meet(~0u, &own, simulator::store_matrices, own.site);
}
inline void stmatrix_x4_trans(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3,
                              SIMULATOR_SITE) {
    simulator::MatrixParts own{
        static_cast<char*>(row), {m0, m1, m2, m3}, true, {"stmatrix_x4_trans()", file, line}};
    simulator::count_access(row, 16, true, own.site);
    simulator::warp_meet(~0u, &own, simulator::store_matrices, own.site);
}

// --- Registers ----------------------------------------------------------------------------------

template <int kRegisters>
void setmaxnreg_dec(SIMULATOR_SITE) {
    simulator::release_registers(kRegisters, {"setmaxnreg_dec()", file, line});
}
template <int kRegisters>
void setmaxnreg_inc(SIMULATOR_SITE) {
    simulator::ask_for_registers(kRegisters, {"setmaxnreg_inc()", file, line});
}

// --- Launches that overlap: none do here --------------------------------------------------------

inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}

}  // namespace hopper
