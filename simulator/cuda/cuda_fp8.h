// e4m3: 8-bit numbers of 4 bits of exponent and 3 after the point. Up to 448; there is no infinity.
#pragma once

#include <cmath>

struct __nv_fp8_e4m3 {
    unsigned char __x;

    __nv_fp8_e4m3() = default;
    /// Rounds to the nearest, a tie to the even one; what is too large becomes the largest.
    explicit __nv_fp8_e4m3(float x) {
        const float size = std::fabs(x);
        const int sign = std::signbit(x) ? 0x80 : 0;
        int exponent;
        const float fraction = std::frexp(size, &exponent);  // size = fraction 2^exponent, >= 1/2
        if (x != x)
            __x = 0x7F;
        else if (size >= 448)
            __x = sign | 0x7E;
        else if (size < 0x1p-6f)  // subnormal
            __x = sign | int(std::nearbyint(size * 0x1p9f));
        else
            __x = sign | ((exponent + 6) * 8 + int(std::nearbyint(fraction * 16)) - 8);
    }
    explicit operator float() const {
        const int exponent = __x >> 3 & 15, digits = __x & 7;
        if ((__x & 0x7F) == 0x7F) return NAN;
        const float size = exponent == 0 ? std::ldexp(float(digits), -9)
                                         : std::ldexp(float(8 + digits), exponent - 10);
        return __x & 0x80 ? -size : size;
    }
};
