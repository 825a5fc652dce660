// out = sigmoid(x W1 + b1) * (x W2 + b2): the data of both shapes, square and the talk's, and the
// reference in fp64.
//
// bounds.hpp         the bound: how far rounding may move a result
// unfused.cuh        lesson 5: six_kernels, the chain, and library_best, the library's way
// gating_mma.cuh     fused_mma, the record of bonus_gating_mma: every GPU
// gating_hopper.cuh  fused_hopper, the record of bonus_gating_hopper
// gating_talk.cuh    fused_talk_mma and fused_talk_hopper, the records of bonus_gating_talk
// gating_record.cuh  all records, as lesson 6 and bonus_benchmark_fused run them
#pragma once

#include "gating/bounds.hpp"
#include "matmul/matmul.cuh"

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
    /// The one that the command line asks for.
    static GatingShape of(const Options& options) {
        return options.talk ? talk(options.talk) : square(options.n);
    }

    /// Two products of 2 M K H operations. The talk's shape is bound by memory.
    Workload workload() const {
        auto text = [](size_t number) { return std::to_string(number); };
        const bool is_talk = size != M;
        const size_t elements = saturating_sum(
            saturating_product(M, K), saturating_product(2, K, H), 2 * H, saturating_product(M, H));
        return {.shape = name,
                .size = size,
                .dtype = "fp16",
                .flops = 4.0 * double(M) * double(K) * double(H),
                .least_bytes = saturating_product(2, elements),
                .memory_bound = is_talk,
                .text = is_talk ? "S = " + text(size) + ": x[" + text(M) + ", " + text(K) +
                                      "], W[" + text(K) + ", " + text(H) + "]"
                                : "N = " + text(size),
                .arithmetic = is_talk ? "" : "fp32 sums"};
    }
};

/// What a kernel takes: all row-major.
struct GatingOperands {
    const half *x, *W1, *b1, *W2, *b2;  // [M, K], [K, H], [H], [K, H], [H]
    half* out;                          // [M, H]
    size_t M, K, H;
};

/// The element that gating must produce, for verify_output().
struct ExpectGating {
    const Product *products1, *products2;  // [checked rows, H] row-major
    const half *b1, *b2;                   // [H]
    size_t K, H;
    Rounded rounded;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        return expect_gating(products1[i * H + column], double(float(b1[column])),
                             products2[i * H + column], double(float(b2[column])), K, rounded);
    }
};

/// How much larger a hard row of x is: some of its sums are beyond 88, where exp() of a float ends.
inline constexpr double kHardGating = 128;

/// Random inputs, an output, and the fp64 reference. The weights are within sqrt(3 / K), so that
/// sums stay near 1 and the sigmoid does not saturate, except in hard rows.
class Gating {
  public:
    explicit Gating(Session& session) : Gating(session, GatingShape::of(session.options)) {}
    Gating(Session& session, const GatingShape& shape)
        : shape(shape),
          x(session, "x", {shape.M, shape.K}, {.hard = hard_operand(1, kHardGating)}),
          W1(session, "W1", {shape.K, shape.H}, {.scale = weight_scale(shape)}),
          W2(session, "W2", {shape.K, shape.H}, {.scale = weight_scale(shape)}),
          b1(session, "b1", {shape.H}),
          b2(session, "b2", {shape.H}),
          out(session, "out", {shape.M, shape.H}),
          rows_(CheckedRows::some(shape.M, 2 * shape.H, saturating_product(2, shape.K, shape.H),
                                  session.options.seed)),
          products1_(x.data(), W1.data(), rows_, shape.K, shape.H),
          products2_(x.data(), W2.data(), rows_, shape.K, shape.H) {}

    operator GatingOperands() const { return {x, W1, b1, W2, b2, out, shape.M, shape.K, shape.H}; }

    /// How to verify `out`. Must not outlive the object.
    Check check(Rounded rounded) const {
        const ExpectGating expect{products1_.data(), products2_.data(), b1.data(), b2.data(),
                                  shape.K,           shape.H,           rounded};
        const double largest =
            kHardGating * largest_product(shape.K, weight_scale(shape)) + 1;  // x W2 + b2
        return out.check(rows_, expect, largest,
                         [this] { products1_.renew(), products2_.renew(); });
    }

    /// A fused kernel, which moves the least that is possible. `only`: the one shape it is for;
    /// `why_not`: why it cannot run here.
    Contender fused(const std::string& kernel, std::function<void()> launch,
                    const std::string& only = "", const std::string& why_not = "") const {
        return {.kernel = kernel,
                .launch = launch,
                .moved_bytes = shape.workload().least_bytes,
                .only = only,
                .why_not = why_not};
    }
    /// The same where preparing the launch needs a GPU: `prepare` does that, once, and returns it.
    Contender fused_prepared(const std::string& kernel,
                             std::function<std::function<void()>()> prepare,
                             const std::string& only = "", const std::string& why_not = "") const {
        Contender contender = fused(kernel, {}, only, why_not);
        contender.setup = [=](Contender& self) { self.launch = prepare(); };
        return contender;
    }

    const GatingShape shape;
    const Input<half> x, W1, W2, b1, b2;
    const Output<half> out;

  private:
    static float weight_scale(const GatingShape& shape) { return std::sqrt(3.0f / float(shape.K)); }

    CheckedRows rows_;
    ProductReference products1_, products2_;
};

}  // namespace demo
