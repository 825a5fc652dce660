// Belongs to 10_attention: attention as separate launches, which hand the scores on through memory,
// N x N numbers a head. bonus_attention runs library_best as well.
#pragma once

#include <memory>
#include <optional>

#include "attention/attention.cuh"
#include "demo/cublas.cuh"
#include "rows/softmax_chain.cuh"
#include "rows/softmax_rows.cuh"

namespace attention {

/// s *= factor, on all of [rows, N].
static __global__ void scale(half* s, float factor, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) s[i] = __float2half(__half2float(s[i]) * factor);
}

/// Row i of a head does not attend to what comes after it: the softmax turns -infinity into 0. A
/// block per row.
static __global__ void mask(half* s, size_t N) {
    half* const row = s + blockIdx.x * N;
    for (size_t key = blockIdx.x % N + 1 + threadIdx.x; key < N; key += blockDim.x)
        row[key] = __float2half(-INFINITY);
}

}  // namespace attention

namespace demo {

/// Both ways. Their scores are allocated when one of them is set up: where there is no room for
/// them, the other contenders run without. Must not outlive `a`.
class UnfusedAttention {
  public:
    UnfusedAttention(const Attention& a, const Gpu& gpu) : a(a), gpu_(gpu) {}

    /// A product of all heads in one call, a scale, a mask, the five steps of lesson 8, a product.
    Contender chain() const {
        const size_t maxima_and_sums = saturating_product(2, rows, sizeof(float));
        Contender chain = contender("chain", Role::kChain, Rounds::kEverything,
                                    saturating_sum(scores_bytes(), maxima_and_sums));
        chain.launches = causal ? 9 : 8;
        chain.moved_bytes =
            4 * a.Q.bytes() + 12 * scores_bytes() + masked_bytes() + 2 * maxima_and_sums;
        chain.setup = [this](Contender& self) {
            half* const s = scores();
            const auto max = std::make_shared<Buffer<float>>(rows);
            const auto sum = std::make_shared<Buffer<float>>(rows);
            self.launch = [=, this] {
                multiply_scores(s, 1);
                attention::scale<<<blocks(), 256>>>(s, a.shape.scale(), rows * N);
                if (causal) attention::mask<<<unsigned(rows), 256>>>(s, N);
                softmax::chain<half>(s, s, max->data(), sum->data(), s, rows, N);
                multiply_values(s);
            };
        };
        return chain;
    }

    /// Three launches: a product that scales, the suite's softmax, a product. A mask is a fourth.
    Contender library_best() const {
        Contender best =
            contender("library_best", Role::kLibrary, Rounds::kScoresAndWeights, scores_bytes());
        best.launches = causal ? 4 : 3;
        best.moved_bytes = 4 * a.Q.bytes() + 4 * scores_bytes() + masked_bytes();
        best.setup = [this](Contender& self) {
            half* const s = scores();
            Contender softmax = softmax::records<half>(s, s, rows, N, gpu_).front();
            softmax.setup(softmax);
            self.launch = [=, this] {
                multiply_scores(s, a.shape.scale());
                if (causal) attention::mask<<<unsigned(rows), 256>>>(s, N);
                softmax.launch();
                multiply_values(s);
            };
        };
        return best;
    }

    /// What the program says first.
    std::string scores_text() const {
        return "scores: " + human_bytes(double(scores_bytes())) +
               " in chain and library_best, none in the fused kernels";
    }

  private:
    Contender contender(const std::string& name, Role role, Rounds rounds, size_t temporary) const {
        return {.kernel = name,
                .role = role,
                .check = a.check(rounds),
                .repeatable = false,  // cuBLAS chooses
                .temporary_bytes = temporary,
                .why_not = gpu_.why_no_room(temporary)};
    }

    size_t scores_bytes() const { return saturating_product(rows, N, sizeof(half)); }
    size_t masked_bytes() const { return causal ? scores_bytes() / 2 : 0; }
    unsigned int blocks() const { return unsigned((rows * N + 255) / 256); }

    /// [heads, N, N]: every step works in place.
    half* scores() const {
        if (!scores_) scores_.emplace(rows, N);
        return scores_->data();
    }

    /// s = factor Q K^T of every head. The library's matrices are column-major: s^T = K Q^T.
    void multiply_scores(half* s, float factor) const {
        multiply(CUBLAS_OP_T, N, N, D, factor, a.K, D, a.Q, D, s);
    }
    /// O = P V of every head: O^T = V^T P^T.
    void multiply_values(const half* P) const {
        multiply(CUBLAS_OP_N, D, N, N, 1, a.V, D, P, N, a.O);
    }
    /// C[m, n] = factor op(A) B of every head, column-major.
    void multiply(cublasOperation_t op, size_t m, size_t n, size_t k, float factor, const half* A,
                  size_t lda, const half* B, size_t ldb, half* C) const {
        const float zero = 0;
        DEMO_CHECK(cublasGemmStridedBatchedEx(
            cublas_, op, CUBLAS_OP_N, int(m), int(n), int(k), &factor, A, CUDA_R_16F, int(lda),
            (long long)(N * D), B, CUDA_R_16F, int(ldb), (long long)(n * k), &zero, C, CUDA_R_16F,
            int(m), (long long)(m * n), int(a.shape.heads()), CUBLAS_COMPUTE_32F,
            CUBLAS_GEMM_DEFAULT));
    }

    const Attention& a;
    const Gpu& gpu_;
    const size_t N = a.shape.N, D = a.shape.D, rows = a.shape.rows();
    const bool causal = a.shape.causal;
    const Cublas cublas_;
    mutable std::optional<Buffer<half>> scores_;
};

}  // namespace demo
