// Hopper's instructions by PTX's own names, a few lines of PTX each. bonus_matmul_hopper explains
// how they work together; this is for reference.
//
//   mbarriers   in shared memory: threads and copies arrive, threads wait
//   clusters    blocks on neighboring multiprocessors that reach into each other's shared memory
//   bulk copies started by one thread, between global and shared memory
//   TMA         bulk copies of tiles of a matrix
//   wgmma       products of tiles in shared memory (A's may be in registers), by 128 threads, which
//               are called a warpgroup
//
// "Section" names a section of NVIDIA's PTX ISA by its title, since numbers change between
// editions. wgmma and setmaxnreg need compute capability 9.0 and the target sm_90a; multicast is
// compiled for that target alone, since it may be slow elsewhere. The rest works on all GPUs
// from 9.0 on. For other targets the functions compile to a trap, so that programs build
// everywhere; hopper.cuh says beforehand whether they can run.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "ptx.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define HOPPER_ASM(...) __trap()
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SM90_ASM(...) asm volatile(__VA_ARGS__)
#else
#define SM90_ASM(...) __trap()
#endif

// Since PTX 8.6, order at .cluster can be had of shared memory alone.
#if CUDART_VERSION >= 12080
#define HOPPER_TRY_WAIT "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64"
#define HOPPER_ACQUIRE "fence.acquire.sync_restrict::shared::cluster.cluster;"
#define HOPPER_RELEASE "fence.release.sync_restrict::shared::cta.cluster;"
#else
#define HOPPER_TRY_WAIT "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
#define HOPPER_ACQUIRE ""
#define HOPPER_RELEASE "fence.acq_rel.cluster;"
#endif

/// __cluster_dims__, which nvcc rejects for targets without clusters.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define HOPPER_CLUSTER(blocks)
#else
#define HOPPER_CLUSTER(blocks) __cluster_dims__(blocks)
#endif

namespace hopper {

/// An address in shared memory as PTX takes it.
__device__ inline uint32_t shared_address(const void* pointer) {
    return uint32_t(__cvta_generic_to_shared(pointer));
}

// --- Barriers: "Parallel Synchronization and Communication Instructions: mbarrier" --------------

/// A barrier in shared memory. A phase ends when all arrivals and all expected bytes have come; the
/// next one begins at once. The phases' parity is 0, 1, 0, ...
using Barrier = uint64_t;

/// One thread initializes a barrier that expects `arrivals` in each phase. Section mbarrier.init.
__device__ inline void mbarrier_init(Barrier* barrier, uint32_t arrivals) {
    SM90_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
             : "memory");
}

/// Makes initialized barriers visible to TMA and to the other blocks of the cluster. Section
/// membar / fence.
__device__ inline void fence_mbarrier_init() {
    SM90_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, as mbarrier_arrive() does, and adds `bytes` of asynchronous copies to what the phase
/// waits for. Section mbarrier.arrive.
__device__ inline void mbarrier_arrive_expect_tx(Barrier* barrier, uint32_t bytes) {
    SM90_ASM(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

/// Arrives at the same barrier in block `rank` of this cluster. It hands over no data, since it
/// releases within this block alone (.cta): the waiter lets TMA overwrite what wgmma has read, and
/// wgmma_wait_group() has waited until it was. After ordinary loads fence_release_cluster() comes
/// first. With .release.cluster each arrival would wait for all earlier memory traffic. Sections
/// mapa, mbarrier.arrive.
__device__ inline void mbarrier_arrive_cluster(Barrier* barrier, uint32_t rank) {
    SM90_ASM(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}

/// Arrives at a barrier of this block, and releases: threads of this block that wait for the phase
/// see what this thread wrote, and write only after what it read. Section mbarrier.arrive.
__device__ inline void mbarrier_arrive(Barrier* barrier) {
    SM90_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Orders this thread's accesses to its block's shared memory, loads included, before what it does
/// next to that of the cluster. Section membar / fence.
__device__ inline void fence_release_cluster() { SM90_ASM(HOPPER_RELEASE ::: "memory"); }

/// Waits until the phase of this parity has ended. Returns at once if the current phase has the
/// other parity, so a thread must not fall two phases behind.
///
/// Acquires what threads that arrived have released, and what copies and st_async() brought: their
/// complete_tx releases at .cluster, that copy's bytes alone. So the wait must acquire at .cluster,
/// not at .cta, its default; and of shared memory alone, since else it would empty the L1 cache. So
/// it hands over nothing in global memory. Sections mbarrier.test_wait, mbarrier.try_wait; membar /
/// fence; "Memory Consistency Model".
__device__ inline void mbarrier_wait(Barrier* barrier, uint32_t parity) {
    uint32_t done = 0;
    while (!done)
        SM90_ASM(
            "{\n"
            ".reg .pred p;\n" HOPPER_TRY_WAIT
            " p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    SM90_ASM(HOPPER_ACQUIRE ::: "memory");
}

/// __syncthreads() for the 128 threads of warpgroup `index` alone. (Barrier 0 is the one that
/// __syncthreads() uses.) Section barrier{.cta}.
__device__ inline void barrier_sync_warpgroup(int index) {
    SM90_ASM("barrier.cta.sync.aligned %0, 128;" ::"r"(index + 1) : "memory");
}

/// __syncthreads() for `threads` threads of a block, whole warps, at barrier `index` of 1 to 15.
/// Section barrier{.cta}.
__device__ inline void barrier_sync(int index, int threads) {
    SM90_ASM("barrier.cta.sync.aligned %0, %1;" ::"r"(index), "r"(threads) : "memory");
}

/// For warps that need not wait: they count among the `threads`, and the others see what they have
/// written. Section barrier{.cta}.
__device__ inline void barrier_arrive(int index, int threads) {
    __syncwarp();  // a warp arrives once, when all of its lanes are here
    SM90_ASM("barrier.cta.arrive.aligned %0, %1;" ::"r"(index), "r"(threads) : "memory");
}

// --- Clusters -----------------------------------------------------------------------------------

/// This block's rank in its cluster. Section "Special Registers: %cluster_ctarank".
__device__ inline uint32_t cluster_ctarank() {
    uint32_t rank = 0;
    SM90_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// Waits for all threads of the cluster. The arrival is relaxed, so it makes no writes visible but
/// those that fence_mbarrier_init() has released: barriers. Section barrier.cluster.
__device__ inline void barrier_cluster_sync() {
    SM90_ASM(
        "barrier.cluster.arrive.relaxed;\n"
        "barrier.cluster.wait.acquire;" ::
            : "memory");
}

/// Stores two numbers at the same address in block `rank` of this cluster. They count as 8 bytes at
/// the same barrier there, and who waits for its phase sees them, but nothing else of this thread:
/// the complete_tx releases just these bytes. Sections mapa, st.async.
__device__ inline void st_async(float2* to, float2 value, Barrier* barrier, uint32_t rank) {
    SM90_ASM(
        "{\n"
        ".reg .b32 there, signal;\n"
        "mapa.shared::cluster.u32 there, %0, %4;\n"
        "mapa.shared::cluster.u32 signal, %1, %4;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%2, %3}, "
        "[signal];\n"
        "}" ::"r"(shared_address(to)),
        "r"(shared_address(barrier)), "f"(value.x), "f"(value.y), "r"(rank)
        : "memory");
}

/// The same of four numbers, 16 bytes.
__device__ inline void st_async(float4* to, float4 value, Barrier* barrier, uint32_t rank) {
    SM90_ASM(
        "{\n"
        ".reg .b32 there, signal;\n"
        "mapa.shared::cluster.u32 there, %0, %6;\n"
        "mapa.shared::cluster.u32 signal, %1, %6;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
        "{%2, %3, %4, %5}, [signal];\n"
        "}" ::"r"(shared_address(to)),
        "r"(shared_address(barrier)), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
        "r"(rank)
        : "memory");
}

// --- Copies: "Data Movement and Conversion Instructions: Asynchronous copy, Bulk copy" ----------
// These and TMA's go through the "async proxy". Who waits at the mbarrier where the bytes count
// sees them, without a fence. But ordinary loads and stores of the same memory before a copy are
// ordered by fence_proxy_async() alone, in their own thread or in the one that starts the copy.

/// Starts a copy of `bytes` to shared memory, which count at `barrier` when they have arrived.
/// `policy`: for the L2 cache, ptx::createpolicy_evict_last() or _first(). Addresses and size must
/// be multiples of 16. Section cp.async.bulk.
__device__ inline void cp_async_bulk(void* to, const void* from, uint32_t bytes, Barrier* barrier,
                                     uint64_t policy) {
    SM90_ASM(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

// --- TMA: "Data Movement and Conversion Instructions: Tensor copy" ------------------------------

/// Starts a copy of the map's box at (row, column) to shared memory. Elements outside the matrix
/// become 0; their bytes count at `barrier`, too. The column must be a multiple of 8 (16 bytes), or
/// the GPU stops at an illegal instruction. Section cp.async.bulk.tensor.
__device__ inline void tma_load(void* to, const CUtensorMap& map, int row, int column,
                                Barrier* barrier) {
    SM90_ASM(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}

/// tma_load() of all panels of a map that was made with `panels`: 64 columns each, one after the
/// other in shared memory. Asks the L2 cache to keep them (ptx::createpolicy_evict_last).
__device__ inline void tma_load_panels(void* to, const CUtensorMap& map, int row, Barrier* barrier,
                                       int matrix = 0) {
    SM90_ASM(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {0, %2, 0, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(row), "r"(matrix), "r"(shared_address(barrier)),
        "l"(ptx::createpolicy_evict_last())
        : "memory");
}

/// tma_load() into every block of the cluster whose bit is set in `ranks`, at the same address,
/// with the bytes counted at the same barrier of each. One read of the L2 cache feeds several
/// blocks. Section cp.async.bulk.tensor.
__device__ inline void tma_load_multicast(void* to, const CUtensorMap& map, int row, int column,
                                          Barrier* barrier, uint16_t ranks) {
    HOPPER_ASM(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(ranks)
        : "memory");
}

/// One thread has a tensor map fetched before its first use. Section prefetch, prefetchu.
__device__ inline void prefetch_tensormap(const CUtensorMap& map) {
    SM90_ASM("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts a copy of a box from shared memory to the matrix. Elements outside it are not written.
/// Row and column must not be negative, and the column a multiple of 8, as above. Section
/// cp.async.bulk.tensor.
__device__ inline void tma_store(const CUtensorMap& map, int row, int column, const void* from) {
    SM90_ASM(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
        "r"(column), "r"(row), "r"(shared_address(from))
        : "memory");
}

/// tma_store() of all panels: see tma_load_panels().
__device__ inline void tma_store_panels(const CUtensorMap& map, int row, const void* from,
                                        int matrix = 0) {
    SM90_ASM(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {0, %1, 0, %2}], [%3];" ::"l"(
            &map),
        "r"(row), "r"(matrix), "r"(shared_address(from))
        : "memory");
}

/// Ends a group: this thread's stores since the group before. Section cp.async.bulk.commit_group.
__device__ inline void cp_async_bulk_commit_group() {
    SM90_ASM("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most kGroups of this thread's latest groups have yet to read their shared memory.
/// Section cp.async.bulk.wait_group.
template <int kGroups>
__device__ void cp_async_bulk_wait_group_read() {
    SM90_ASM("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

/// Waits until at most kGroups of this thread's latest groups have yet to be stored: this thread
/// then sees the others in global memory, and may release them.
template <int kGroups>
__device__ void cp_async_bulk_wait_group() {
    SM90_ASM("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

/// Orders ordinary accesses to shared memory, this thread's and those that it has acquired, before
/// later ones by copies, TMA and wgmma. Section membar / fence, "Memory Consistency Model:
/// Proxies".
__device__ inline void fence_proxy_async() {
    SM90_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The same of global memory.
__device__ inline void fence_proxy_async_global() {
    SM90_ASM("fence.proxy.async.global;" ::: "memory");
}

// --- wgmma: "Asynchronous Warpgroup Level Matrix Instructions" ----------------------------------
// Operands are in shared memory in rows of 128 bytes, swizzled: chunk c (16 bytes) of row r is at
// c ^ (r % 8). Tiles begin at multiples of 1024 bytes. Rung 1 of bonus_matmul_hopper draws this.

/// Orders earlier accesses to the sums' registers before the wgmma that follow. Section
/// wgmma.fence.
__device__ inline void wgmma_fence() { HOPPER_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Ends a group: the wgmma since the group before. Section wgmma.commit_group.
__device__ inline void wgmma_commit_group() {
    HOPPER_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kGroups groups of wgmma are still running. Section wgmma.wait_group.
template <int kGroups>
__device__ void wgmma_wait_group() {
    HOPPER_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// The sums as asm operands: "+f"(sums[0]), ..., and as text: %0, %1, ...
#define HOPPER_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define HOPPER_16(i) HOPPER_4(i), HOPPER_4(i + 4), HOPPER_4(i + 8), HOPPER_4(i + 12)
#define HOPPER_32(i) HOPPER_16(i), HOPPER_16(i + 16)
#define HOPPER_TEN(t)                                                                      \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t \
    "8, %" #t "9"
#define HOPPER_TEXT_30 HOPPER_TEN() ", " HOPPER_TEN(1) ", " HOPPER_TEN(2) ", "
#define HOPPER_TEXT_60 HOPPER_TEXT_30 HOPPER_TEN(3) ", " HOPPER_TEN(4) ", " HOPPER_TEN(5) ", "
#define HOPPER_TEXT_90 HOPPER_TEXT_60 HOPPER_TEN(6) ", " HOPPER_TEN(7) ", " HOPPER_TEN(8) ", "
#define HOPPER_TEXT_120 HOPPER_TEXT_90 HOPPER_TEN(9) ", " HOPPER_TEN(10) ", " HOPPER_TEN(11) ", "

/// The instruction. Its operands: the sums' registers, A (a descriptor or registers), the
/// descriptor of B, whether to keep the old sums, the signs of A and B (+1), and for 16-bit types
/// whether matrices in shared memory are transposed (A is not; B is: its rows run along N).
#define HOPPER_WGMMA(shape, type, registers, a, b, keep, transposed)                     \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " keep ", 0;\nwgmma.mma_async.sync.aligned." shape \
    ".f32." type "." type " {" registers "}, " a ", " b ", p, 1, 1" transposed ";\n}"
#define HOPPER_FRAGMENT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

/// Starts sums[64, N] (+)= A[64, 16] B[16, N] for N = 32, 64, 128, 192 or 256, T half or
/// bfloat16, with A and B row-major. For N = 128 T may be float: the numbers count as TF32, which
/// ignores their last 13 bits, A is [64, 8], and B [8, N] column-major. Without `keep` the old sums
/// count as 0. With r = 16 (t / 32) + t % 32 / 4 and c = 8 j + 2 (t % 4), thread t of the 128 holds
///
///     sums[4j], sums[4j+1]: [r][c, c+1]        sums[4j+2], sums[4j+3]: [r+8][c, c+1]
///
/// Section wgmma.mma_async.
template <class T>
__device__ void wgmma_mma_async(float (&sums)[16], uint64_t a, uint64_t b, bool keep) {
#define HOPPER_M64N32(type)                                                                   \
    HOPPER_ASM(HOPPER_WGMMA("m64n32k16", type, HOPPER_TEN() ", %10, %11, %12, %13, %14, %15", \
                            "%16", "%17", "%18", ", 0, 1")                                    \
               : HOPPER_16(0)                                                                 \
               : "l"(a), "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N32("f16");
    else
        HOPPER_M64N32("bf16");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[32], uint64_t a, uint64_t b, bool keep) {
#define HOPPER_M64N64(type)                                                                       \
    HOPPER_ASM(                                                                                   \
        HOPPER_WGMMA("m64n64k16", type, HOPPER_TEXT_30 "%30, %31", "%32", "%33", "%34", ", 0, 1") \
        : HOPPER_32(0)                                                                            \
        : "l"(a), "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N64("f16");
    else
        HOPPER_M64N64("bf16");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[64], uint64_t a, uint64_t b, bool keep) {
#define HOPPER_M64N128(depth, type, transposed)                                                \
    HOPPER_ASM(HOPPER_WGMMA("m64n128" depth, type, HOPPER_TEXT_60 "%60, %61, %62, %63", "%64", \
                            "%65", "%66", transposed)                                          \
               : HOPPER_32(0), HOPPER_32(32)                                                   \
               : "l"(a), "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, float>)
        HOPPER_M64N128("k8", "tf32", "");
    else if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N128("k16", "f16", ", 0, 1");
    else
        HOPPER_M64N128("k16", "bf16", ", 0, 1");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[96], uint64_t a, uint64_t b, bool keep) {
#define HOPPER_M64N192(type)                                                                   \
    HOPPER_ASM(HOPPER_WGMMA("m64n192k16", type, HOPPER_TEXT_90 "%90, %91, %92, %93, %94, %95", \
                            "%96", "%97", "%98", ", 0, 1")                                     \
               : HOPPER_32(0), HOPPER_32(32), HOPPER_32(64)                                    \
               : "l"(a), "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N192("f16");
    else
        HOPPER_M64N192("bf16");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[128], uint64_t a, uint64_t b, bool keep) {
#define HOPPER_M64N256(type)                                                                  \
    HOPPER_ASM(HOPPER_WGMMA("m64n256k16", type,                                               \
                            HOPPER_TEXT_120 "%120, %121, %122, %123, %124, %125, %126, %127", \
                            "%128", "%129", "%130", ", 0, 1")                                 \
               : HOPPER_32(0), HOPPER_32(32), HOPPER_32(64), HOPPER_32(96)                    \
               : "l"(a), "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N256("f16");
    else
        HOPPER_M64N256("bf16");
}

/// The same with A in registers, for N = 64, 128, 192 or 256; in TF32 128 or 256. They
/// must not change before the product has been waited for. With r as above and c = 2 (t % 4),
/// thread t holds
///
///     a[0]: [r][c, c+1]    a[1]: [r+8][c, c+1]    a[2]: [r][c+8, c+9]    a[3]: [r+8][c+8, c+9]
///
/// or in TF32, with c = t % 4, a[0]: [r][c], a[1]: [r+8][c], a[2]: [r][c+4], a[3]: [r+8][c+4].
template <class T>
__device__ void wgmma_mma_async(float (&sums)[32], const uint32_t (&a)[4], uint64_t b, bool keep) {
#define HOPPER_M64N64_R(type)                                                                     \
    HOPPER_ASM(HOPPER_WGMMA("m64n64k16", type, HOPPER_TEXT_30 "%30, %31", "{%32, %33, %34, %35}", \
                            "%36", "%37", ", 1")                                                  \
               : HOPPER_32(0)                                                                     \
               : HOPPER_FRAGMENT, "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N64_R("f16");
    else
        HOPPER_M64N64_R("bf16");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[64], const uint32_t (&a)[4], uint64_t b, bool keep) {
#define HOPPER_M64N128_R(depth, type, transposed)                                       \
    HOPPER_ASM(HOPPER_WGMMA("m64n128" depth, type, HOPPER_TEXT_60 "%60, %61, %62, %63", \
                            "{%64, %65, %66, %67}", "%68", "%69", transposed)           \
               : HOPPER_32(0), HOPPER_32(32)                                            \
               : HOPPER_FRAGMENT, "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, float>)
        HOPPER_M64N128_R("k8", "tf32", "");
    else if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N128_R("k16", "f16", ", 1");
    else
        HOPPER_M64N128_R("k16", "bf16", ", 1");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[96], const uint32_t (&a)[4], uint64_t b, bool keep) {
#define HOPPER_M64N192_R(type)                                                                 \
    HOPPER_ASM(HOPPER_WGMMA("m64n192k16", type, HOPPER_TEXT_90 "%90, %91, %92, %93, %94, %95", \
                            "{%96, %97, %98, %99}", "%100", "%101", ", 1")                     \
               : HOPPER_32(0), HOPPER_32(32), HOPPER_32(64)                                    \
               : HOPPER_FRAGMENT, "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N192_R("f16");
    else
        HOPPER_M64N192_R("bf16");
}
template <class T>
__device__ void wgmma_mma_async(float (&sums)[128], const uint32_t (&a)[4], uint64_t b, bool keep) {
#define HOPPER_M64N256_R(depth, type, transposed)                                             \
    HOPPER_ASM(HOPPER_WGMMA("m64n256" depth, type,                                            \
                            HOPPER_TEXT_120 "%120, %121, %122, %123, %124, %125, %126, %127", \
                            "{%128, %129, %130, %131}", "%132", "%133", transposed)           \
               : HOPPER_32(0), HOPPER_32(32), HOPPER_32(64), HOPPER_32(96)                    \
               : HOPPER_FRAGMENT, "l"(b), "r"(int(keep)))
    if constexpr (std::is_same_v<T, float>)
        HOPPER_M64N256_R("k8", "tf32", "");
    else if constexpr (std::is_same_v<T, __half>)
        HOPPER_M64N256_R("k16", "f16", ", 1");
    else
        HOPPER_M64N256_R("k16", "bf16", ", 1");
}

/// The same with both operands in shared memory in rows that run along K, B's as well: for N = 16,
/// 32, 64 or 128, T half or float.
template <class T, int kSums>
__device__ void wgmma_mma_async_k_major(float (&sums)[kSums], uint64_t a, uint64_t b, bool keep) {
    static_assert(kSums == 8 || kSums == 16 || kSums == 32 || kSums == 64);
#define HOPPER_K_MAJOR(n, registers, a_, b_, keep_, ...)                                   \
    if constexpr (std::is_same_v<T, float>)                                                \
        HOPPER_ASM(HOPPER_WGMMA("m64n" n "k8", "tf32", registers, a_, b_, keep_, "")       \
                   : __VA_ARGS__                                                           \
                   : "l"(a), "l"(b), "r"(int(keep)));                                      \
    else                                                                                   \
        HOPPER_ASM(HOPPER_WGMMA("m64n" n "k16", "f16", registers, a_, b_, keep_, ", 0, 0") \
                   : __VA_ARGS__                                                           \
                   : "l"(a), "l"(b), "r"(int(keep)))
    if constexpr (kSums == 8) {
        HOPPER_K_MAJOR("16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", HOPPER_4(0),
                       HOPPER_4(4));
    } else if constexpr (kSums == 16) {
        HOPPER_K_MAJOR("32", HOPPER_TEN() ", %10, %11, %12, %13, %14, %15", "%16", "%17", "%18",
                       HOPPER_16(0));
    } else if constexpr (kSums == 32) {
        HOPPER_K_MAJOR("64", HOPPER_TEXT_30 "%30, %31", "%32", "%33", "%34", HOPPER_32(0));
    } else {
        HOPPER_K_MAJOR("128", HOPPER_TEXT_60 "%60, %61, %62, %63", "%64", "%65", "%66",
                       HOPPER_32(0), HOPPER_32(32));
    }
}

/// The transposed product, from tiles in the same layouts: sums[64, N] (+)= A[16, 64]^T B[N, 16]^T,
/// with A and B row-major, for N = 64, 80, 96, 112, 128, 144, 160, 176, 192, 208 or 256, T half or
/// bfloat16. So of C = X Y, where A is of Y and B of X, 64 columns of C are computed, and N rows.
#define HOPPER_TRANSPOSED(n, count, registers, a_, b_, keep_, ...)                              \
    template <class T>                                                                          \
    __device__ void wgmma_mma_async_transposed(float(&sums)[count], uint64_t a, uint64_t b,     \
                                               bool keep) {                                     \
        if constexpr (std::is_same_v<T, __half>)                                                \
            HOPPER_ASM(HOPPER_WGMMA("m64n" n "k16", "f16", registers, a_, b_, keep_, ", 1, 0")  \
                       : __VA_ARGS__                                                            \
                       : "l"(a), "l"(b), "r"(int(keep)));                                       \
        else                                                                                    \
            HOPPER_ASM(HOPPER_WGMMA("m64n" n "k16", "bf16", registers, a_, b_, keep_, ", 1, 0") \
                       : __VA_ARGS__                                                            \
                       : "l"(a), "l"(b), "r"(int(keep)));                                       \
    }
HOPPER_TRANSPOSED("64", 32, HOPPER_TEXT_30 "%30, %31", "%32", "%33", "%34", HOPPER_32(0))
HOPPER_TRANSPOSED("80", 40, HOPPER_TEXT_30 HOPPER_TEN(3), "%40", "%41", "%42", HOPPER_32(0),
                  HOPPER_4(32), HOPPER_4(36))
HOPPER_TRANSPOSED("96", 48, HOPPER_TEXT_30 HOPPER_TEN(3) ", %40, %41, %42, %43, %44, %45, %46, %47",
                  "%48", "%49", "%50", HOPPER_32(0), HOPPER_16(32))
HOPPER_TRANSPOSED("112", 56,
                  HOPPER_TEXT_30 HOPPER_TEN(3) ", " HOPPER_TEN(4) ", %50, %51, %52, %53, %54, %55",
                  "%56", "%57", "%58", HOPPER_32(0), HOPPER_16(32), HOPPER_4(48), HOPPER_4(52))
HOPPER_TRANSPOSED("128", 64, HOPPER_TEXT_60 "%60, %61, %62, %63", "%64", "%65", "%66", HOPPER_32(0),
                  HOPPER_32(32))
HOPPER_TRANSPOSED("144", 72, HOPPER_TEXT_60 HOPPER_TEN(6) ", %70, %71", "%72", "%73", "%74",
                  HOPPER_32(0), HOPPER_32(32), HOPPER_4(64), HOPPER_4(68))
HOPPER_TRANSPOSED("160", 80, HOPPER_TEXT_60 HOPPER_TEN(6) ", " HOPPER_TEN(7), "%80", "%81", "%82",
                  HOPPER_32(0), HOPPER_32(32), HOPPER_16(64))
HOPPER_TRANSPOSED("176", 88,
                  HOPPER_TEXT_60 HOPPER_TEN(6) ", " HOPPER_TEN(7) ", %80, %81, %82, %83, %84, "
                                                                  "%85, %86, %87",
                  "%88", "%89", "%90", HOPPER_32(0), HOPPER_32(32), HOPPER_16(64), HOPPER_4(80),
                  HOPPER_4(84))
HOPPER_TRANSPOSED("192", 96, HOPPER_TEXT_90 "%90, %91, %92, %93, %94, %95", "%96", "%97", "%98",
                  HOPPER_32(0), HOPPER_32(32), HOPPER_32(64))
HOPPER_TRANSPOSED("208", 104, HOPPER_TEXT_90 HOPPER_TEN(9) ", %100, %101, %102, %103", "%104",
                  "%105", "%106", HOPPER_32(0), HOPPER_32(32), HOPPER_32(64), HOPPER_4(96),
                  HOPPER_4(100))
HOPPER_TRANSPOSED("256", 128, HOPPER_TEXT_120 "%120, %121, %122, %123, %124, %125, %126, %127",
                  "%128", "%129", "%130", HOPPER_32(0), HOPPER_32(32), HOPPER_32(64), HOPPER_32(96))

/// A warp stores four 8 x 8 matrices of 16-bit elements. Lane l names the address of row l % 8 of
/// matrix l / 8, and holds in mi elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i.
/// Section "Warp-level matrix store instruction: stmatrix".
__device__ inline void stmatrix_x4(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
    SM90_ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                 shared_address(row)),
             "r"(m0), "r"(m1), "r"(m2), "r"(m3)
             : "memory");
}

/// The same, and transposes each matrix: lane l holds the elements of column l / 4, of rows 2 (l %
/// 4) and 2 (l % 4) + 1.
__device__ inline void stmatrix_x4_trans(void* row, uint32_t m0, uint32_t m1, uint32_t m2,
                                         uint32_t m3) {
    SM90_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                 shared_address(row)),
             "r"(m0), "r"(m1), "r"(m2), "r"(m3)
             : "memory");
}

// --- Registers ----------------------------------------------------------------------------------

/// All warps of a warpgroup release registers down to kRegisters a thread, a multiple of 8. Section
/// "Miscellaneous Instructions: setmaxnreg".
template <int kRegisters>
__device__ void setmaxnreg_dec() {
    HOPPER_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// The other way round: up to kRegisters a thread. Waits until other warps have released enough.
template <int kRegisters>
__device__ void setmaxnreg_inc() {
    HOPPER_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- Launches that overlap: "Parallel Synchronization and Communication: griddepcontrol" ---------

/// This block does not mind if the next kernel's blocks start, where that launch allows it
/// (cudaLaunchAttributeProgrammaticStreamSerialization). Section griddepcontrol.
__device__ inline void griddepcontrol_launch_dependents() {
    SM90_ASM("griddepcontrol.launch_dependents;");
}

/// Waits until the kernel before has ended and what it wrote is visible. Section griddepcontrol.
__device__ inline void griddepcontrol_wait() { SM90_ASM("griddepcontrol.wait;" ::: "memory"); }

}  // namespace hopper
