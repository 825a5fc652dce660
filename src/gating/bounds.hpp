// What a right result of gating is, and how far rounding may move it.
#pragma once

#include "demo/error_bounds.hpp"

namespace demo {

/// How often a gating pipeline rounds to fp16 on its way (a fused kernel: never).
struct Rounded {
    bool product = false;  // x W, before the bias
    bool sum = false;      // x W + b
    bool gate = false;     // sigmoid(x W1 + b1)
};

/// An element of sigmoid(x W1 + b1) * (x W2 + b2), stored as fp16. The errors d1, d2 of both sums
/// go through the formula; sigmoid's slope is at most 1/4.
DEMO_HOST_DEVICE inline Expected expect_gating(Product product1, double b1, Product product2,
                                               double b2, size_t K, Rounded rounded) {
    const double v1 = product1.value + b1, v2 = product2.value + b2;
    auto error = [&](Product product, double bias, double sum) {
        // Where sums begin as the bias, tensor cores add tiny products to it, 8 or 16 at a time,
        // and cut off what is below its last place.
        double d = accumulation_error(product, K) + double(K) / 8 * 0x1p-23 * fabs(bias);
        if (rounded.product) d += kFp16.roundoff * fabs(product.value) + kFp16.subnormal;
        if (rounded.sum) d += kFp16.roundoff * fabs(sum) + kFp16.subnormal;
        return d;
    };
    const double d1 = error(product1, b1, v1), d2 = error(product2, b2, v2);
    const double gate = 1 / (1 + exp(-v1)), value = gate * v2;
    double tolerance = fabs(v2) * d1 / 4 + gate * d2 + d1 * d2 / 4 + 0x1p-20 * fabs(value) +
                       kFp16.roundoff * fabs(value) + kFp16.subnormal;
    if (rounded.gate) tolerance += (kFp16.roundoff * gate + kFp16.subnormal) * (fabs(v2) + d2);
    return {value, tolerance};
}

}  // namespace demo
