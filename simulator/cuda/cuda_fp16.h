// half: IEEE 754's binary16.
#pragma once

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "../small_float.hpp"
#include "vector_types.h"

struct __half {
    SIMULATOR_SMALL_FLOAT(__half)

#ifdef __F16C__  // the processor converts
    static unsigned short from_float(float x) {
        return x == x ? _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT) : 0x7FFF;
    }
    static float to_float(unsigned short x) { return _cvtsh_ss(x); }
#else
    static unsigned short from_float(float x) {
        const auto bits = std::bit_cast<uint32_t>(x);
        const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
        if (size > 0x7F800000) return 0x7FFF;          // NaN
        if (size >= 0x477FF000) return sign | 0x7C00;  // 65520 and more round to infinity
        if (size < 0x38800000) {  // subnormal: they are spaced like the floats from 1/2 to 1
            const float sum = std::bit_cast<float>(size) + 0.5f;
            return sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f));
        }
        return sign | (size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13;
    }
    static float to_float(unsigned short x) {
        const uint32_t sign = (x & 0x8000u) << 16, size = (x & 0x7FFFu) << 13;
        if (size >= 0x7C00u << 13) return std::bit_cast<float>(sign | (size + 0x70000000));
        return std::bit_cast<float>(sign |
                                    std::bit_cast<uint32_t>(std::bit_cast<float>(size) * 0x1p112f));
    }
#endif
    static __half from_bits(unsigned short bits) {
        __half h;
        h.__x = bits;
        return h;
    }
    unsigned short bits() const { return __x; }
};
struct alignas(4) __half2 {
    SIMULATOR_SMALL_FLOAT2(__half2, __half)
};
using half = __half;
using half2 = __half2;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline __half __int2half_rn(int x) { return x; }
inline float __half2float(__half x) { return x; }
inline int __half2int_rn(__half x) { return int(std::nearbyint(float(x))); }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits(); }
inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }
