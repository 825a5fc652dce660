// The matrix-multiplication demos' problem: its reference in fp64, its memory and its operations.
#pragma once

#include "device.cuh"
#include "measure.cuh"
#include "verify.cuh"

namespace demo {

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

/// Device memory of a square matmul demo with elements of T: A, B, C, what verifying them takes,
/// the cache flush, and `more`. In bytes; saturates.
template <class T>
size_t matmul_bytes(const Options& options, const Gpu& gpu, size_t N, size_t more = 0) {
    return saturating_sum(saturating_product(3, N, N, sizeof(T)), ProductReference::bytes(N, N),
                          options.hot ? 0 : gpu.flush_bytes(), more);
}

/// A square matmul: 2 N^3 operations, three matrices of T.
template <class T>
Workload matmul_workload(size_t N, const std::string& dtype) {
    return {"square", N, dtype, 2.0 * double(N) * double(N) * double(N), 3 * N * N * sizeof(T)};
}

}  // namespace demo
