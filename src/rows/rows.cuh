// Operations on matrices of any size whose limit is memory: their shape, hard rows of data, and how
// exact an activation must be. Simple kernels and most chains stand in the lessons, 7 to 9, and
// bonus_norm holds its own. There is no library's way.
//
// expect_gelu.cuh   what results of 7_gelu must be
// softmax.cuh       the reference and the bound of 8_softmax and bonus_softmax_rows
// softmax_chain.cuh the chain of 8_softmax, a kernel for each operation
// max_sum.cuh       the pair (maximum, sum), and how pairs merge
// softmax_rows.cuh  the rungs of bonus_softmax_rows, of which 8_softmax runs the best
// norm.cuh          the reference and the bound of bonus_norm
// norm_row.cuh      a row of bonus_norm in registers, for all of its rungs
// norm_cluster.cuh  its rung for long rows, by_cluster
// row_pieces.cuh    rows in registers, in pieces of 16 bytes: for softmax and norms
#pragma once

#include <bit>

#include "demo/data.cuh"

namespace demo {

/// 16 bytes, the most that one thread can load or store at a time.
template <class T>
struct alignas(16) Vector {
    static constexpr int kSize = 16 / sizeof(T);
    T at[kSize];
};

/// A matrix of any size from 1 x 1: N x N, or what --rows and --cols say.
struct MatrixShape {
    size_t rows, cols;
    bool square;

    /// The one that the command line asks for.
    static MatrixShape of(const Options& options) {
        const bool square = options.rows == 0;
        return {square ? options.n : options.rows, square ? options.n : options.cols, square};
    }

    /// Elements; saturates.
    size_t size() const { return saturating_product(rows, cols); }
    /// As Input and Output take it.
    operator std::vector<size_t>() const { return {rows, cols}; }

    /// `operations` on each element. The limit is the traffic of the session's inputs and outputs.
    Workload workload(const Session& session, double operations) const {
        const std::string R = std::to_string(rows), C = std::to_string(cols);
        return {.shape = square ? "square" : R + "x" + C,
                .size = rows,
                .dtype = session.dtype(),
                .flops = operations * double(rows) * double(cols),
                .least_bytes = session.least_bytes(),
                .memory_bound = true,
                .text = R + " x " + C};
    }
};

/// Threads for the reference of a row: a power of two, no more than there is work for.
inline unsigned int reference_threads(size_t cols) {
    return unsigned(std::bit_ceil(std::min<size_t>(cols, 256)));
}

/// Rows on which kernels of such programs go wrong. Beyond 88 and below -104 e^x is no float.
template <class T>
inline constexpr HardRows kHardRows{.kinds = {{.scale = 80},                 // large
                                              {.scale = 1, .peak = 120},     // one exceeds all
                                              {.scale = 1, .offset = -110},  // all negative
                                              {.offset = 0.7f},              // all equal
                                              {.scale = 0x1p-8f},            // of tiny variance
                                              {.scale = sizeof(T) == 2 ? 0x1p-15f : 0x1p-127f},
                                              {.scale = 12},  // on an activation's far branches
                                              {.scale = 200, .step = 200}},  // sums are exact
                                    .count = 8};

/// What a result must be that is off by `error` before it is stored as `out`.
DEMO_HOST_DEVICE inline Expected expect_stored(double value, double error, Format out) {
    return {value, error + out.roundoff * fabs(value) + out.subnormal + 0x1p-149};
}

/// How far off e^t in fp32 may be, relative to it: __expf() is off by up to 2 + 1.17 |t| units in
/// the last place (CUDA C++ Programming Guide, "Mathematical Functions"), and t is rounded before.
DEMO_HOST_DEVICE inline double exp_error(double t) {
    return t == 0 ? 0 : 0x1p-21 + 0x1p-22 * fabs(t);
}

/// Activations in double: what they are, and how far off fp32 may be.
struct Approximate {
    double value, error;
};
struct ExactNone {
    static DEMO_HOST_DEVICE Approximate at(double v) { return {v, 0}; }
};
struct ExactRelu {
    static DEMO_HOST_DEVICE Approximate at(double v) { return {v < 0 ? 0 : v, 0}; }
};
/// 1 / (1 + e^-v), with a quotient that is 0 where it is smaller than any normal number.
struct ExactSigmoid {
    static DEMO_HOST_DEVICE Approximate at(double v) {
        const double value = 1 / (1 + exp(-v));
        return {value, value * (0x1p-21 + (1 - value) * exp_error(v)) + 0x1p-126};
    }
};
/// GELU by tanh: v sigmoid(2 a), or v (1 + tanh(a)) / 2, which rounds a number near 1 for all v. a
/// is four roundings off.
struct ExactGelu {
    static DEMO_HOST_DEVICE Approximate at(double v) {
        const double twice = 2 * 0.79788456 * (v + 0.044715 * v * v * v);
        const auto [gate, error] = ExactSigmoid::at(twice);
        const double of_a = gate * (1 - gate) * 0x1p-22 * fabs(twice);
        return {v * gate, fabs(v) * (error + of_a + 0x1p-23)};
    }
};

/// An activation's result of v, which is off by `error`. Where both v - error and v + error have
/// the same result, such as 0, none other is right.
template <class Exact>
DEMO_HOST_DEVICE Expected expect_activation(double v, double error, Format out) {
    const Approximate here = Exact::at(v), low = Exact::at(v - error), high = Exact::at(v + error);
    const double moved = fmax(fabs(low.value - here.value), fabs(high.value - here.value));
    return expect_stored(here.value, moved + here.error, out);
}

/// What act(x + m y + b) must be, where y and b may be missing (null).
template <class Exact, class T>
struct ExpectActivation {
    const T* x;
    float m;
    const T *y, *b;  // x, y: [rows, cols] row-major; b: [cols]
    size_t cols;
    bool chained;  // every operation's result is rounded to T
    DEMO_HOST_DEVICE Expected operator()(size_t, size_t row, size_t col) const {
        const size_t i = row * cols + col;
        const double v = double(float(x[i])), bias = b ? double(float(b[col])) : 0;
        const double product = y ? double(m) * double(float(y[i])) : 0, sum = v + product + bias;
        const Format format = kFormat<T>;
        double error = b ? 0x1p-24 * fabs(sum) : 0;                       // one rounding
        if (y) error = 0x1p-23 * (fabs(v) + fabs(product) + fabs(bias));  // two
        if (chained) error += format.roundoff * fabs(sum);
        if (chained && y)
            error += format.roundoff * (fabs(product) + fabs(v + product)) + format.subnormal;
        return expect_activation<Exact>(sum, error, format);
    }
};

}  // namespace demo
