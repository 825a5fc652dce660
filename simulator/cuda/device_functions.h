// What kernels may call: barriers, fences and intrinsics; atomics and warp-wide operations have
// headers of their own.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../errors.hpp"
#include "../scheduler.hpp"
#include "../shared_memory.hpp"
#include "device_atomic_functions.h"
#include "host_defines.h"
#include "warp_functions.h"

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

/// Not a GPU's cycles: nanoseconds of this computer's clock.
inline long long clock64() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// --- Intrinsics ---------------------------------------------------------------------------------

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
T __ldca(const T* address) {
    return *address;
}
template <class T>
T __ldcg(const T* address) {
    return *address;
}
template <class T>
T __ldcs(const T* address) {
    return *address;
}
template <class T>
void __stcs(T* address, std::type_identity_t<T> value) {
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

inline size_t __cvta_generic_to_shared(const void* p, SIMULATOR_SITE) {
    return simulator::shared_address(p, {"__cvta_generic_to_shared()", file, line});
}
inline void* __cvta_shared_to_generic(size_t p) {
    return simulator::shared_pointer(uint32_t(p), simulator::cluster_rank());
}
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
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
