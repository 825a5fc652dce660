// What 7_gelu's results must be, and how far off they may be. bonus_waves uses it again.
#pragma once

#include "rows/rows.cuh"

namespace demo {

/// The right result in double. `chained` allows for the roundings of lesson 7's nine kernels.
template <class T>
struct ExpectGelu {
    const T* x;  // [rows, cols] row-major
    size_t cols;
    bool chained;  // every operation's result is rounded to T
    DEMO_HOST_DEVICE Expected operator()(size_t, size_t row, size_t col) const {
        const double v = double(float(x[row * cols + col])), cubic = 0.044715 * v * v * v;
        const Format format = kFormat<T>;
        Expected expected = expect_activation<ExactGelu>(v, 0, format);
        // tanh's slope is at most 1, so an error of its argument a changes out by at most x / 2
        // times it.
        if (chained) {
            const double u = format.roundoff, a = 0.79788456 * (v + cubic);
            const double error_of_a = 2 * u * fabs(a) + 0.8 * 4 * u * fabs(cubic);
            expected.tolerance += fabs(v) * (error_of_a + 2 * u) / 2 +
                                  2 * u * fabs(expected.value) + format.subnormal;
        }
        return expected;
    }
};

}  // namespace demo
