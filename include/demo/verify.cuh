// Verifying on the GPU: an fp64 reference for sampled rows, and the comparison with it.
#pragma once

#include <functional>
#include <vector>

#include "bounds.hpp"
#include "device.cuh"

namespace demo {

template <class T>
inline constexpr Format kFormat = kFp32;
template <>
inline constexpr Format kFormat<__half> = kFp16;
template <>
inline constexpr Format kFormat<__nv_bfloat16> = kBf16;

/// What a comparison found.
struct Verdict {
    unsigned long long unwritten = 0;            // elements that are NaN: of all
    unsigned long long wrong = 0;                // elements off by more than rounding: of `checked`
    unsigned long long checked = 0;              // elements compared with the reference
    unsigned long long first_wrong = ~0ull;      // index among the checked
    unsigned long long first_unwritten = ~0ull;  // index in the output
    unsigned int error_of_bound = 0;             // largest error / tolerance: a float's bits
    size_t row = 0, column = 0;                  // where the first wrong element is
    double got = 0, expected = 0, tolerance = 0;  // and what it is

    bool ok() const { return checked > 0 && wrong == 0 && unwritten == 0; }
};

/// An output to be verified: poisoned before a launch, checked after it.
struct Check {
    void* output;
    size_t bytes;
    std::function<Verdict()> verify;

    /// Overwrites the output with NaN bytes.
    void poison() const { DEMO_CHECK(cudaMemsetAsync(output, 0xFF, bytes)); }
};

/// One thread per element: products[i, j] = (A B)[rows[i], j], in fp64 and in the plainest way.
template <class T>
__global__ void reference_products(const T* A,          // [M, K] row-major
                                   const T* B,          // [K, N] row-major
                                   const size_t* rows,  // [samples]
                                   Product* products,   // [samples, N] row-major
                                   size_t samples, size_t K, size_t N) {
    const size_t i = size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= samples || j >= N) return;
    Product sum{0, 0};
    for (size_t k = 0; k < K; ++k) {
        const double term = double(float(A[rows[i] * K + k])) * double(float(B[k * N + j]));
        sum.value += term;
        sum.magnitude += fabs(term);
    }
    products[i * N + j] = sum;
}

/// Counts the NaNs of output[size].
template <class T>
__global__ void count_unwritten(const T* output, size_t size, Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        const float value = float(output[i]);
        if (value == value) continue;
        atomicAdd(&verdict->unwritten, 1ull);
        atomicMin(&verdict->first_unwritten, (unsigned long long)(i));
    }
}

/// Compares output[rows[i], j] with expect(i, rows[i], j) for all i < samples and all columns j.
template <class T, class Expect>
__global__ void compare_rows(const T* output, const size_t* rows, size_t samples, size_t columns,
                             Expect expect, Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t e = size_t(blockIdx.x) * blockDim.x + threadIdx.x; e < samples * columns;
         e += stride) {
        const size_t row = rows[e / columns], column = e % columns;
        const double got = double(float(output[row * columns + column]));
        const Expected expected = expect(e / columns, row, column);
        const float error = float(fabs(got - expected.value) / expected.tolerance);
        if (error <= 3e38f) atomicMax(&verdict->error_of_bound, __float_as_uint(error));
        if (!is_wrong(got, expected)) continue;
        atomicAdd(&verdict->wrong, 1ull);
        atomicMin(&verdict->first_wrong, (unsigned long long)(e));
    }
}

/// Fills in what the first wrong element is. One thread.
template <class T, class Expect>
__global__ void explain_first_wrong(const T* output, const size_t* rows, size_t columns,
                                    Expect expect, Verdict* verdict) {
    const size_t i = verdict->first_wrong / columns;
    verdict->row = rows[i];
    verdict->column = verdict->first_wrong % columns;
    verdict->got = double(float(output[verdict->row * columns + verdict->column]));
    const Expected expected = expect(i, verdict->row, verdict->column);
    verdict->expected = expected.value;
    verdict->tolerance = expected.tolerance;
}

/// Verifies output[M, columns]: every element is written, and every element of the sampled rows is
/// what expect(i, row, column) says (i counts the sampled rows).
template <class T, class Expect>
Verdict verify_output(const T* output, size_t M, size_t columns, const Buffer<size_t>& rows,
                      Expect expect) {
    Buffer<Verdict> result(1);
    Verdict verdict;
    DEMO_CHECK(cudaMemcpy(result.data(), &verdict, sizeof verdict, cudaMemcpyHostToDevice));
    count_unwritten<<<1024, 256>>>(output, M * columns, result.data());
    compare_rows<<<1024, 256>>>(output, rows.data(), rows.size(), columns, expect, result.data());
    DEMO_CHECK(cudaMemcpy(&verdict, result.data(), sizeof verdict, cudaMemcpyDeviceToHost));
    if (verdict.wrong > 0) {
        explain_first_wrong<<<1, 1>>>(output, rows.data(), columns, expect, result.data());
        DEMO_CHECK(cudaMemcpy(&verdict, result.data(), sizeof verdict, cudaMemcpyDeviceToHost));
    }
    if (verdict.wrong == 0 && verdict.unwritten > 0) {
        verdict.row = verdict.first_unwritten / columns;
        verdict.column = verdict.first_unwritten % columns;
    }
    verdict.checked = rows.size() * columns;
    return verdict;
}

/// The sampled rows of an output with M rows, on the device.
struct SampledRows : Buffer<size_t> {
    SampledRows(size_t M, uint64_t seed) : SampledRows(sampled_rows(M, seed)) {}
    explicit SampledRows(const std::vector<size_t>& rows) : Buffer<size_t>(rows.size()) {
        DEMO_CHECK(cudaMemcpy(data(), rows.data(), bytes(), cudaMemcpyHostToDevice));
    }
    /// How many rows are sampled of M.
    static size_t count(size_t M) { return M <= 2048 ? M : 64 + (M + 31) / 32 - 2; }
};

/// (A B)[rows, :] and (|A| |B|)[rows, :] in fp64, computed once for all kernels that A and B feed.
class ProductReference {
  public:
    template <class T>
    ProductReference(const T* A, const T* B, const SampledRows& rows, size_t K, size_t N)
        : products_(rows.size() * N) {
        const dim3 block(32, 8);
        const dim3 grid((rows.size() + block.y - 1) / block.y, (N + block.x - 1) / block.x);
        reference_products<<<grid, block>>>(A, B, rows.data(), products_.data(), rows.size(), K, N);
        DEMO_CHECK(cudaGetLastError());
    }
    const Product* data() const { return products_.data(); }

    /// Device memory it takes for M x N results, rows' list included, in bytes.
    static size_t bytes(size_t M, size_t N) {
        const size_t rows = SampledRows::count(M);
        return saturating_sum(saturating_product(rows, N, sizeof(Product)),
                              saturating_product(rows, sizeof(size_t)));
    }

  private:
    Buffer<Product> products_;  // [rows, N] row-major
};

/// The element that a matmul must produce, for verify_output().
struct ExpectMatmul {
    const Product* products;  // [sampled rows, N] row-major
    size_t K, N;
    Format out;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        return expect_matmul(products[i * N + column], K, out);
    }
};

/// Verifies C[M, N] = A[M, K] B[K, N].
class MatmulReference {
  public:
    template <class T>
    MatmulReference(const T* A, const T* B, size_t M, size_t K, size_t N, uint64_t seed)
        : M_(M), K_(K), N_(N), rows_(M, seed), products_(A, B, rows_, K, N) {}

    /// How to verify the output C[M, N] (row-major). Must not outlive the reference.
    template <class Out>
    Check check(Out* C) const {
        const ExpectMatmul expect{products_.data(), K_, N_, kFormat<Out>};
        return {C, M_ * N_ * sizeof(Out),
                [this, C, expect] { return verify_output(C, M_, N_, rows_, expect); }};
    }

  private:
    size_t M_, K_, N_;
    SampledRows rows_;
    ProductReference products_;
};

}  // namespace demo
