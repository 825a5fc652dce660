// What kernels may call: barriers, warp-wide operations, atomics, intrinsics.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../blocks.hpp"
#include "../errors.hpp"
#include "host_defines.h"

// --- Barriers -----------------------------------------------------------------------------------

inline void __syncthreads(SIMULATOR_SITE) {
    simulator::block_meet(false, {"__syncthreads()", file, line});
}
inline int __syncthreads_count(int predicate, SIMULATOR_SITE) {
    return simulator::block_meet(predicate, {"__syncthreads_count()", file, line});
}
inline int __syncthreads_or(int predicate, SIMULATOR_SITE) {
    return simulator::block_meet(predicate, {"__syncthreads_or()", file, line}) > 0;
}
inline int __syncthreads_and(int predicate, SIMULATOR_SITE) {
    return simulator::block_meet(!predicate, {"__syncthreads_and()", file, line}) == 0;
}
inline void __syncwarp(unsigned int mask = ~0u, SIMULATOR_SITE) {
    simulator::warp_meet(mask, nullptr, [](void* const*, unsigned int) {},
                         {"__syncwarp()", file, line});
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

// --- Warp-wide operations -----------------------------------------------------------------------

namespace simulator {

/// The value of lane `source`. What no participating lane holds is undefined: NaN bytes here.
template <class T>
T shuffle(unsigned int mask, T value, unsigned int source, Site site) {
    struct Record {
        T value, result;
        unsigned int source;
    } record{value, value, source};
    warp_meet(
        mask, &record,
        [](void* const* records, unsigned int mask) {
            for (unsigned int lane = 0; lane < 32; ++lane) {
                if (!(mask >> lane & 1)) continue;
                Record& record = *static_cast<Record*>(records[lane]);
                if (mask >> record.source & 1)
                    record.result = static_cast<Record*>(records[record.source])->value;
                else
                    std::memset(static_cast<void*>(&record.result), 0xFF, sizeof(T));
            }
        },
        site);
    return record.result;
}

/// The lanes of `mask` for which `predicate` holds.
inline unsigned int ballot(unsigned int mask, bool predicate, Site site) {
    unsigned int record = predicate;
    warp_meet(
        mask, &record,
        [](void* const* records, unsigned int mask) {
            unsigned int votes = 0;
            for (unsigned int lane = 0; lane < 32; ++lane)
                if (mask >> lane & 1) votes |= *static_cast<unsigned int*>(records[lane]) << lane;
            for (unsigned int lane = 0; lane < 32; ++lane)
                if (mask >> lane & 1) *static_cast<unsigned int*>(records[lane]) = votes;
        },
        site);
    return record;
}

}  // namespace simulator

template <class T>
T __shfl_sync(unsigned int mask, T value, int source, int width = 32, SIMULATOR_SITE) {
    const unsigned int segment = simulator::lane() & ~(width - 1u);
    return simulator::shuffle(mask, value, segment | (source & (width - 1u)),
                              {"__shfl_sync()", file, line});
}
template <class T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32, SIMULATOR_SITE) {
    const unsigned int lane = simulator::lane(), in_segment = lane & (width - 1u);
    return simulator::shuffle(mask, value, delta <= in_segment ? lane - delta : lane,
                              {"__shfl_up_sync()", file, line});
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32, SIMULATOR_SITE) {
    const unsigned int lane = simulator::lane(), in_segment = lane & (width - 1u);
    return simulator::shuffle(mask, value,
                              in_segment + delta < unsigned(width) ? lane + delta : lane,
                              {"__shfl_down_sync()", file, line});
}
template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = 32, SIMULATOR_SITE) {
    const unsigned int lane = simulator::lane(), other = lane ^ lanes;
    return simulator::shuffle(mask, value, other <= (lane | (width - 1u)) ? other & 31 : lane,
                              {"__shfl_xor_sync()", file, line});
}
inline unsigned int __ballot_sync(unsigned int mask, int predicate, SIMULATOR_SITE) {
    return simulator::ballot(mask, predicate, {"__ballot_sync()", file, line});
}
inline int __any_sync(unsigned int mask, int predicate, SIMULATOR_SITE) {
    return simulator::ballot(mask, predicate, {"__any_sync()", file, line}) != 0;
}
inline int __all_sync(unsigned int mask, int predicate, SIMULATOR_SITE) {
    return simulator::ballot(mask, !predicate, {"__all_sync()", file, line}) == 0;
}
/// CUDA promises no more than that the calling lane is among them.
inline unsigned int __activemask() { return 1u << simulator::lane(); }

// --- Atomics: they return the old value ---------------------------------------------------------

namespace simulator {

// Inlined, so that counting finds the line of the kernel (count.cpp).
template <class T, class Change>
__forceinline__ T atomically(T* address, Change change) {
    T old, next;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        next = change(old);
    } while (
        !__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
template <class T>
using Same = std::type_identity_t<T>;

}  // namespace simulator

template <class T>
__forceinline__ T atomicAdd(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old + value); });
}
template <class T>
__forceinline__ T atomicSub(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old - value); });
}
__forceinline__ unsigned int atomicInc(unsigned int* address, unsigned int last) {
    return simulator::atomically(address,
                                 [=](unsigned int old) { return old >= last ? 0 : old + 1; });
}
template <class T>
__forceinline__ T atomicMin(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
__forceinline__ T atomicMax(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
__forceinline__ T atomicExch(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T) { return value; });
}
template <class T>
__forceinline__ T atomicCAS(T* address, simulator::Same<T> expected, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return old == expected ? value : old; });
}
template <class T>
__forceinline__ T atomicOr(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old | value); });
}
template <class T>
__forceinline__ T atomicAnd(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old & value); });
}

// --- Intrinsics ---------------------------------------------------------------------------------

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
T __ldcs(const T* address) {
    return *address;
}
template <class T>
void __stcs(T* address, simulator::Same<T> value) {
    *address = value;
}

inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1 / std::sqrt(double(x))); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float rsqrtf(float x) { return __frsqrt_rn(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }

inline unsigned int __float_as_uint(float x) { return std::bit_cast<unsigned int>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned int x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __popc(unsigned int x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }

inline size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }
inline void* __cvta_shared_to_generic(size_t p) { return reinterpret_cast<void*>(p); }
inline void __nanosleep(unsigned int) {}
[[noreturn]] inline void __trap() { simulator::fail(3, "__trap()"); }

namespace simulator {
template <class A, class B>
concept Numbers = std::is_arithmetic_v<A> && std::is_arithmetic_v<B>;
}
template <class A, class B>
requires simulator::Numbers<A, B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if (a != a) return b;  // a NaN loses, as in fminf
    return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
requires simulator::Numbers<A, B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if (a != a) return b;
    return T(a) < T(b) ? T(b) : T(a);
}
