// The softmax demos' problem: each row's maximum and sum in fp64, and its elements' bounds.
#pragma once

#include "rows/rows.cuh"

namespace demo {

/// The operation on the CPU, row by row: x and out are [rows, cols] row-major.
inline void softmax_on_cpu(const float* x, float* out, size_t rows, size_t cols) {
    for (size_t row = 0; row < rows; ++row, x += cols, out += cols) {
        const double max = *std::max_element(x, x + cols);
        double sum = 0;
        for (size_t col = 0; col < cols; ++col) sum += std::exp(x[col] - max);
        for (size_t col = 0; col < cols; ++col) out[col] = float(std::exp(x[col] - max) / sum);
    }
}

struct Statistics {
    double max, sum;  // of a row, and of e^t, t = x - max
    double inexact;   // sum of e^t that a kernel must round: where t is not 0
    double distance;  // sum of e^t |t|
};

/// A block of reference_threads() per row of the list.
template <class T>
__global__ void reference_rows(const T* x, const size_t* rows, Statistics* statistics,
                               size_t cols) {
    __shared__ double shared[256];
    const T* const row = x + rows[blockIdx.x] * cols;
    auto reduce = [&](double own, auto of_element, auto combine) {
        const unsigned int t = threadIdx.x;
        for (size_t col = t; col < cols; col += blockDim.x)
            own = combine(own, of_element(double(float(row[col]))));
        shared[t] = own;
        for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (t < half) shared[t] = combine(shared[t], shared[t + half]);
        }
        __syncthreads();
        const double whole = shared[0];
        __syncthreads();
        return whole;
    };
    auto sum_of = [&](auto of_element) {
        return reduce(0, of_element, [](double a, double b) { return a + b; });
    };
    const double max = reduce(
        -INFINITY, [](double v) { return v; }, [](double a, double b) { return fmax(a, b); });
    const double sum = sum_of([=](double v) { return exp(v - max); });
    const double inexact = sum_of([=](double v) { return v == max ? 0 : exp(v - max); });
    const double distance = sum_of([=](double v) { return exp(v - max) * (max - v); });
    if (threadIdx.x == 0) statistics[blockIdx.x] = {max, sum, inexact, distance};
}

/// Wrong by as much as e^t and the sum of all e^t may be, and the quotient. Where each e^t is 1, or
/// so small that it is 0 in a float, the sum is exact.
template <class T>
struct ExpectSoftmax {
    const T* x;                    // [rows, cols] row-major
    const Statistics* statistics;  // [checked rows]
    size_t cols;
    bool chained;  // x - max, e^t and the quotient are rounded to T
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t row, size_t col) const {
        const auto [max, sum, inexact, distance] = statistics[i];
        const double t = double(float(x[row * cols + col])) - max, value = exp(t) / sum;
        // Rounding e^t, adding, and rescaling a part's sum err relative to what is inexact.
        const double of_sum = (0x1p-20 * inexact + 0x1p-22 * distance) / sum;
        double error = exp_error(t) + of_sum + 0x1p-22;
        const Format format = kFormat<T>;
        if (chained) error += format.roundoff * (fabs(t) + (distance + inexact) / sum + 1);
        // Where e^t is smaller than any normal number, a kernel may take it as 0.
        Expected expected = expect_stored(value, error * value + 0x1p-126, format);
        if (chained) expected.tolerance += format.subnormal / sum;
        return expected;
    }
};

/// Verifies the softmax of each row of x. Must outlive its checks.
template <class T>
class SoftmaxReference {
  public:
    SoftmaxReference(const Session& session, const Input<T>& x)
        : x_(x),
          cols_(x.shape[1]),
          rows_(CheckedRows::all(x.shape[0], session.options.seed)),
          statistics_(rows_.size()) {
        compute(0, rows_.compared);
    }

    /// `chained`: every operation's result is rounded to T.
    Check check(const Output<T>& out, bool chained) const {
        return out.check(rows_, ExpectSoftmax<T>{x_, statistics_.data(), cols_, chained}, INFINITY,
                         [this] { compute(rows_.compared, rows_.kSpots); });
    }

  private:
    void compute(size_t first, size_t count) const {
        if (dry_run) return;
        reference_rows<<<count, reference_threads(cols_)>>>(x_, rows_.data() + first,
                                                            statistics_.data() + first, cols_);
        DEMO_CHECK(cudaGetLastError());
    }

    const T* x_;  // [rows, cols] row-major
    size_t cols_;
    CheckedRows rows_;
    Buffer<Statistics> statistics_;
};

}  // namespace demo
