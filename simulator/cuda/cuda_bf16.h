// bfloat16: the upper half of an fp32 number.
#pragma once

#include "../small_float.hpp"
#include "vector_types.h"

struct __nv_bfloat16 {
    SIMULATOR_SMALL_FLOAT(__nv_bfloat16)

    static unsigned short from_float(float x) {
        if (x != x) return 0x7FFF;
        const auto bits = std::bit_cast<uint32_t>(x);
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    }
    static float to_float(unsigned short x) { return std::bit_cast<float>(uint32_t(x) << 16); }
    static __nv_bfloat16 from_bits(unsigned short bits) {
        __nv_bfloat16 b;
        b.__x = bits;
        return b;
    }
    unsigned short bits() const { return __x; }
};
struct alignas(4) __nv_bfloat162 {
    SIMULATOR_SMALL_FLOAT2(__nv_bfloat162, __nv_bfloat16)
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits(); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return __nv_bfloat16::from_bits(bits);
}
