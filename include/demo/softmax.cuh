// The softmax demos' problem: each row's maximum and sum in fp64, and what follows for its
// elements.
#pragma once

#include "rows.cuh"

namespace demo {

struct Statistics {
    double max, sum;  // of a row, and of e^(x - max)
};

/// A block of reference_threads() per row of the list.
template <class T>
__global__ void reference_rows(const T* x, const size_t* rows, Statistics* statistics,
                               size_t cols) {
    __shared__ double shared[256];
    const T* const row = x + rows[blockIdx.x] * cols;
    const unsigned int t = threadIdx.x;
    auto reduce = [&](double own, auto combine) {
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
    double max = -INFINITY, sum = 0;
    for (size_t col = t; col < cols; col += blockDim.x) max = fmax(max, double(float(row[col])));
    max = reduce(max, [](double a, double b) { return fmax(a, b); });
    for (size_t col = t; col < cols; col += blockDim.x) sum += exp(double(float(row[col])) - max);
    sum = reduce(sum, [](double a, double b) { return a + b; });
    if (t == 0) statistics[blockIdx.x] = {max, sum};
}

template <class T>
struct ExpectSoftmax {
    const T* x;                    // [rows, cols] row-major
    const Statistics* statistics;  // [checked rows]
    size_t cols;
    bool chained;  // x - max, e^t and the quotient are rounded to T
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t row, size_t col) const {
        const double t = double(float(x[row * cols + col])) - statistics[i].max;
        const double value = exp(t) / statistics[i].sum;
        Expected expected = expect_elementwise(value, value, kFormat<T>);
        if (chained)  // in each e, and as much in their sum
            expected.tolerance += 2 * kFormat<T>.roundoff * (fabs(t) + 1) * value;
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
