// The normalization demo's problem: each row's mean and scale in fp64, and its elements' bounds.
#pragma once

#include "rows/rows.cuh"

namespace demo {

/// What is normalized. LayerNorm: rows of x. RMSNorm: rows of x + residual, around 0.
template <class T>
struct NormInputs {
    const T *x, *residual;  // [rows, cols] row-major; residual: null with LayerNorm
    const T *gamma, *beta;  // [cols]; beta: null with RMSNorm
    size_t cols;
    float epsilon;  // added to the variance: a constant row's is 0

    DEMO_HOST_DEVICE static double at(const T* from, size_t i) {
        return from ? double(float(from[i])) : 0;
    }
    /// An element before it is normalized.
    DEMO_HOST_DEVICE double value(size_t i) const { return at(x, i) + at(residual, i); }
};

struct RowNorm {
    double mean, scale;  // of a row: an element becomes (it - mean) * scale
    double magnitude;    // the mean of all |element|
};

/// A block of reference_threads() per row of the list.
template <class T>
__global__ void reference_norms(NormInputs<T> in, const size_t* rows, RowNorm* found) {
    __shared__ double shared[256];
    const size_t first = rows[blockIdx.x] * in.cols;
    const unsigned int t = threadIdx.x;
    auto mean_of = [&](auto value) {
        shared[t] = 0;
        for (size_t col = t; col < in.cols; col += blockDim.x) shared[t] += value(first + col);
        for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (t < half) shared[t] += shared[t + half];
        }
        __syncthreads();
        const double sum = shared[0];
        __syncthreads();
        return sum / double(in.cols);
    };
    const bool centers = !in.residual;
    const double mean = centers ? mean_of([&](size_t i) { return in.value(i); }) : 0;
    const double magnitude = centers ? mean_of([&](size_t i) { return fabs(in.value(i)); }) : 0;
    const double variance =
        mean_of([&](size_t i) { return (in.value(i) - mean) * (in.value(i) - mean); });
    if (t == 0) found[blockIdx.x] = {mean, 1 / sqrt(variance + double(in.epsilon)), magnitude};
}

/// How far off a right kernel may be.
///
/// It merges the means of parts, `merges` times: of a warp's threads, a block's warps, a cluster's
/// blocks. Errors of the parts average out; those of the row's own mean do not: of the last two
/// additions, the quotient, and mean * scale. They are four roundings of a number as large as the
/// row's elements, and each merge may add one. (Measured on an NVIDIA H200, over 10^8 elements:
/// after one merge at most 0.78 of this, after two 0.67, after three 0.62.)
///
/// Around a mean that is off by d, the mean square of the distances is larger by d^2. What else an
/// element is multiplied by is a root of a sum of squares and gamma. A sum with the residual is
/// rounded to T first: that moves an element by the roundoff of itself, and the scale of its row by
/// no more than that.
template <class T>
struct ExpectNorm {
    NormInputs<T> in;
    const RowNorm* found;  // [checked rows]
    int merges;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t row, size_t col) const {
        const size_t at = row * in.cols + col;
        const auto [mean, scale, magnitude] = found[i];
        const double gamma = in.at(in.gamma, col), beta = in.at(in.beta, col);
        const double product = (in.value(at) - mean) * scale * gamma;
        const double off = (4 + merges) * 0x1p-24 * magnitude * scale;
        const Format format = kFormat<T>;
        const double of_scale = off * off / 2 + 0x1p-19;
        const double error = off * fabs(gamma) + of_scale * fabs(product) + 0x1p-23 * fabs(beta);
        Expected expected = expect_stored(product + beta, error, format);
        if (in.residual)
            expected.tolerance +=
                2 * format.roundoff * fabs(product) + 2 * format.subnormal * scale * fabs(gamma);
        return expected;
    }
};

template <class T>
struct ExpectResidual {
    NormInputs<T> in;
    DEMO_HOST_DEVICE Expected operator()(size_t, size_t row, size_t col) const {
        const double sum = in.value(row * in.cols + col);
        return expect_stored(sum, 0x1p-24 * fabs(sum), kFormat<T>);
    }
};

/// Verifies each row. Must outlive its checks.
template <class T>
class NormReference {
  public:
    NormReference(const Session& session, const NormInputs<T>& in, size_t rows)
        : in_(in), rows_(CheckedRows::all(rows, session.options.seed)), found_(rows_.size()) {
        compute(0, rows_.compared);
    }

    /// `merges`: see ExpectNorm.
    Check check(const Output<T>& out, int merges) const {
        return out.check(rows_, ExpectNorm<T>{in_, found_.data(), merges}, INFINITY,
                         [this] { compute(rows_.compared, rows_.kSpots); });
    }
    /// With the sums of x and residual, which are an output, too.
    Check check(const Output<T>& sum, const Output<T>& out, int merges) const {
        return in_turn(sum.check(rows_, ExpectResidual<T>{in_}), "sum", check(out, merges));
    }

  private:
    void compute(size_t first, size_t count) const {
        if (dry_run) return;
        reference_norms<<<count, reference_threads(in_.cols)>>>(in_, rows_.data() + first,
                                                                found_.data() + first);
        DEMO_CHECK(cudaGetLastError());
    }

    const NormInputs<T> in_;
    CheckedRows rows_;
    Buffer<RowNorm> found_;
};

}  // namespace demo
