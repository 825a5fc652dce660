// The simulator's half, where the processor does not convert: against emulate.hpp.

#undef __F16C__
#include <gtest/gtest.h>

#include <cmath>

#include "../../simulator/cuda/cuda_fp16.h"
#include "emulate.hpp"

namespace {

TEST(Half, IsTheFloatThatItsBitsSay) {
    for (unsigned int bits = 0; bits < 0x7C00; ++bits) {  // all but infinity and NaN
        const int exponent = int(bits >> 10), fraction = int(bits & 0x3FF);
        const double value =
            exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
        EXPECT_EQ(__half::to_float(bits), value) << bits;
        EXPECT_EQ(__half::to_float(bits | 0x8000), -value) << bits;
    }
    EXPECT_EQ(__half::to_float(0x7C00), INFINITY);
    EXPECT_EQ(__half::to_float(0xFC00), -INFINITY);
    EXPECT_TRUE(std::isnan(__half::to_float(0x7FFF)));
}

/// A half, what lies halfway to the next one, and the floats beside these.
TEST(Half, IsTheNearestToAFloat) {
    for (unsigned int bits = 0; bits < 0x7BFF; ++bits) {
        const float half = __half::to_float(bits), next = __half::to_float(bits + 1);
        for (float x : {half, (half + next) / 2})
            for (float near : {std::nextafter(x, 0.0f), x, std::nextafter(x, next)})
                for (float value : {near, -near})
                    EXPECT_EQ(__half::to_float(__half::from_float(value)), emulate::fp16(value))
                        << value;
    }
    EXPECT_EQ(__half::from_float(65519.99f), 0x7BFF);
    EXPECT_EQ(__half::from_float(65520), 0x7C00);
    EXPECT_EQ(__half::from_float(-INFINITY), 0xFC00);
    EXPECT_EQ(__half::from_float(NAN), 0x7FFF);  // as on a GPU
}

}  // namespace
