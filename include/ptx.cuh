// Instructions that CUDA C++ has no name for, one small function each: asynchronous copies, what
// tensor cores work on and their products, rounding, fast 2^x, 1 / x and tanh, and wishes to the
// L2 cache. Where they are described: "PTX ISA" is NVIDIA's manual, Parallel Thread Execution ISA.
//
// All 32 threads of a warp must call ldmatrix and mma together. Pointers to shared memory are
// ordinary pointers; what PTX wants, an address within shared memory, is made in here. On Turing
// (7.5), which lacks some of the instructions, others take their place.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace ptx {

/// Copies 16 bytes to shared memory while the thread goes on, past the registers and past L1
/// (cp.async.cg), and asks the L2 cache to fetch 128 around them. Where `inside` is false, writes
/// zeros and reads nothing. On Turing an ordinary copy. PTX ISA: cp.async.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                     uint32_t(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
#else
    *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : uint4{};
#endif
}

/// The same without that request, as is best where what lies around is not wanted; never zeros.
__device__ __forceinline__ void cp_async_16(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
        "l"(__cvta_generic_to_global(from))
        : "memory");
#else
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

/// How many copies in a row to write out, in #pragma unroll: all of them. But on Turing each takes
/// registers until its data has come, so no more than these.
#if __CUDA_ARCH__ >= 800
inline constexpr int kCopiesInARow = 64;
#else
inline constexpr int kCopiesInARow = 4;
#endif

/// Ends a group: this thread's cp_async_16 since the group before. PTX ISA: cp.async.commit_group.
__device__ __forceinline__ void cp_async_commit_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most kGroups of this thread's latest groups are still on their way. The data is
/// there for this thread; for others, after a barrier. PTX ISA: cp.async.wait_group.
template <int kGroups>
__device__ __forceinline__ void cp_async_wait_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

/// Loads four 8 x 8 matrices of 16-bit numbers from shared memory. Lane i names the 16 bytes of row
/// i % 8 of matrix i / 8, and receives in r[m] the numbers 2 (i % 4) and 2 (i % 4) + 1 of row i / 4
/// of matrix m. PTX ISA: ldmatrix.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(row)))
                 : "memory");
}

/// The same, and transposes each matrix: lane i receives the numbers of column i / 4, of rows
/// 2 (i % 4) and 2 (i % 4) + 1. PTX ISA: ldmatrix with .trans.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(row)))
                 : "memory");
}

/// d[16, 8] += a[16, 16] b[16, 8] on the tensor cores: fp16 in, fp32 sums. Of each matrix a lane
/// holds, with g = lane / 4 and t = lane % 4:
///
///     a[0]: a[g][2t, 2t+1]      a[2]: a[g][2t+8, 2t+9]      b0: b[2t, 2t+1][g]
///     a[1]: a[g+8][2t, 2t+1]    a[3]: a[g+8][2t+8, 2t+9]    b1: b[2t+8, 2t+9][g]
///     d[0], d[1]: d[g][2t, 2t+1]        d[2], d[3]: d[g+8][2t, 2t+1]
///
/// Turing multiplies half as deep, and so twice. PTX ISA: mma.m16n8k16, Matrix Fragments.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    const uint32_t b[2] = {b0, b1};
    for (int half = 0; half < 2; ++half)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

/// d[16, 8] += a[16, 8] b[8, 8]: fp32 numbers that count as TF32, which ignores their last 13 bits.
/// With d, g and t as above a lane holds
///
///     a[0]: a[g][t]      a[1]: a[g+8][t]      b0: b[t][g]
///     a[2]: a[g][t+4]    a[3]: a[g+8][t+4]    b1: b[t+4][g]
///
/// Turing has no TF32. PTX ISA: mma.m16n8k8, Matrix Fragments.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

/// Two numbers rounded to T, half or __nv_bfloat16, in one register: `low` in its lower half, the
/// place of the first of two neighbors in memory. PTX ISA: cvt.rn.f16x2, cvt.rn.bf16x2.
template <class T>
__device__ __forceinline__ uint32_t cvt_rn_x2(float low, float high) {
    if constexpr (std::is_same_v<T, half>) {
        const half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    } else {
        static_assert(std::is_same_v<T, __nv_bfloat16>);
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
}

/// 2^x and 1 / x, to within 2 and 1 units of the last place of fp32; numbers below the smallest
/// normal one count as 0. One instruction each. PTX ISA: ex2, rcp.
__device__ __forceinline__ float ex2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// tanh(x) by one instruction, with a relative error of at most 2^-11. PTX ISA: tanh.
__device__ __forceinline__ float tanh_approx(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Policies for loads and copies: when the L2 cache needs room, it is asked to keep what they bring
/// (evict last), or to give that up first. Before 8.0 there are none. PTX ISA: createpolicy.
__device__ __forceinline__ uint64_t createpolicy_evict_last() {
    uint64_t policy = 0;
#if __CUDA_ARCH__ >= 800
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}
__device__ __forceinline__ uint64_t createpolicy_evict_first() {
    uint64_t policy = 0;
#if __CUDA_ARCH__ >= 800
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

/// Loads 16 bytes from global memory with createpolicy_evict_last(). On Turing an ordinary load.
/// PTX ISA: ld.
template <class T>
__device__ __forceinline__ void ld_global_evict_last(T& to, const T* from) {
    static_assert(sizeof(T) == 16);
    // By reference: if a T were returned, the compiler would take it apart right after the load,
    // and so wait for it there.
    uint4& bits = reinterpret_cast<uint4&>(to);
#if __CUDA_ARCH__ >= 800
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(__cvta_generic_to_global(from)), "l"(createpolicy_evict_last()));
#else
    bits = reinterpret_cast<const uint4&>(*from);
#endif
}

/// The same if `wanted`; else `to` stays as it is. One instruction, where `if` would make a branch.
/// PTX ISA: Predicated Execution.
template <class T>
__device__ __forceinline__ void ld_global_evict_last_if(bool wanted, T& to, const T* from) {
    static_assert(sizeof(T) == 16);
    uint4& bits = reinterpret_cast<uint4&>(to);
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.s32 p, %6, 0;\n"
        "@p ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n"
        "}"
        : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
        : "l"(__cvta_generic_to_global(from)), "l"(createpolicy_evict_last()), "r"(int(wanted)));
#else
    if (wanted) bits = reinterpret_cast<const uint4&>(*from);
#endif
}

/// Stores 16 bytes to global memory if `wanted`, in one instruction too. `cs`, cache streaming:
/// they are not needed again soon. PTX ISA: st, Cache Operators, Predicated Execution.
template <class T>
__device__ __forceinline__ void st_global_cs_if(bool wanted, T* to, const T& value) {
    static_assert(sizeof(T) == 16);
    const uint4& bits = reinterpret_cast<const uint4&>(value);
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.s32 p, %0, 0;\n"
        "@p st.global.cs.v4.u32 [%1], {%2, %3, %4, %5};\n"
        "}" ::"r"(int(wanted)),
        "l"(__cvta_generic_to_global(to)), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w));
}

/// Asks the L2 cache to fetch the 128 bytes around an address in global memory. PTX ISA: prefetch.
__device__ __forceinline__ void prefetch_L2(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)) : "memory");
}

/// Asks the L2 cache to fetch `bytes` of global memory, with createpolicy_evict_last(), for loads
/// to come. Address and size must be multiples of 16. Before 9.0 nothing. PTX ISA:
/// cp.async.bulk.prefetch.
__device__ __forceinline__ void cp_async_bulk_prefetch_L2(const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(
                     __cvta_generic_to_global(from)),
                 "r"(bytes), "l"(createpolicy_evict_last())
                 : "memory");
#endif
}

}  // namespace ptx
