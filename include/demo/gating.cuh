// The gating demos' problem: out = sigmoid(x W1 + b1) * (x W2 + b2), its data and its reference.
#pragma once

#include <optional>

#include "matmul.cuh"

namespace demo {

/// x[M, K], W1[K, H], W2[K, H], b1[H], b2[H], out[M, H].
struct GatingShape {
    size_t M, K, H;
    const char* name;
    size_t size;  // N, or S

    /// Every dimension N.
    static GatingShape square(size_t N) { return {N, N, N, "square", N}; }
    /// The talk's: tall and skinny.
    static GatingShape talk(size_t S) { return {saturating_product(4, S, S), 128, 64, "talk", S}; }
    /// The one that the command line asks for, with `size` in place of its size.
    static GatingShape of(const Options& options, size_t size) {
        return options.talk ? talk(size) : square(size);
    }
    static GatingShape of(const Options& options) { return of(options, options.size.value); }

    std::string text() const {
        return (size == M ? "N = " : "S = ") + std::to_string(size) + ": x[" + std::to_string(M) +
               ", " + std::to_string(K) + "], W1 and W2[" + std::to_string(K) + ", " +
               std::to_string(H) + "], fp16, fp32 sums";
    }

    /// Two products of 2 M K H operations. The talk's shape is bound by memory.
    Workload workload() const {
        const bool memory_bound = size != M;
        return {name,
                size,
                "fp16",
                4.0 * double(M) * double(K) * double(H),
                2 * (M * K + 2 * K * H + 2 * H + M * H),
                memory_bound};
    }

    /// Device memory of Gating, in bytes; saturates.
    size_t bytes() const {
        return saturating_sum(saturating_product(2, M, K), saturating_product(4, K, H), 4 * H,
                              saturating_product(2, M, H),
                              saturating_product(2, ProductReference::bytes(M, H)));
    }
};

/// The element that gating must produce, for verify_output().
struct ExpectGating {
    const Product *products1, *products2;  // [sampled rows, H] row-major
    const half *b1, *b2;                   // [H]
    size_t K, H;
    Rounded rounded;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        return expect_gating(products1[i * H + column], double(float(b1[column])),
                             products2[i * H + column], double(float(b2[column])), K, rounded);
    }
};

/// Random inputs, an output, and the fp64 reference. The weights lie within sqrt(3 / K), so that
/// the sums stay near 1 and the sigmoid does not saturate.
class Gating {
  public:
    Gating(const GatingShape& shape, uint64_t seed)
        : shape(shape),
          x(shape.M * shape.K),
          W1(shape.K * shape.H),
          W2(W1.size()),
          b1(shape.H),
          b2(shape.H),
          out(shape.M * shape.H),
          rows_(shape.M, seed) {
        const float scale = std::sqrt(3.0f / float(shape.K));
        fill_uniform(x, seed);
        fill_uniform(W1, seed + 1, scale);
        fill_uniform(W2, seed + 2, scale);
        fill_uniform(b1, seed + 3);
        fill_uniform(b2, seed + 4);
        products1_.emplace(x.data(), W1.data(), rows_, shape.K, shape.H);
        products2_.emplace(x.data(), W2.data(), rows_, shape.K, shape.H);
    }

    /// How to verify `out`. Must not outlive the object.
    Check check(Rounded rounded) const {
        const ExpectGating expect{products1_->data(),
                                  products2_->data(),
                                  b1.data(),
                                  b2.data(),
                                  shape.K,
                                  shape.H,
                                  rounded};
        return {out.data(), out.bytes(), [this, expect] {
                    return verify_output(out.data(), shape.M, shape.H, rows_, expect);
                }};
    }

    const GatingShape shape;
    const Buffer<half> x, W1, W2, b1, b2, out;

  private:
    SampledRows rows_;
    std::optional<ProductReference> products1_, products2_;
};

}  // namespace demo
