// L layers h = gelu(h W + b): their data, their bound and their reference. W is [L, D, D]
// row-major, b [L, D]; unfused.cuh, both programs and scripts/frameworks/mlp.py know this layout.
//
// unfused.cuh  the chain, library_best, and both as a CUDA graph
//
// The fused kernels stand in their programs: one_kernel in 12_mlp, the records in bonus_mlp.
#pragma once

#include "demo/data.cuh"

namespace demo {

/// What the programs take besides N.
inline std::vector<Option> mlp_options() {
    const Numbers dims{.first = 16, .last = 4096, .multiple = 16, .usual = 64};
    const Numbers layers{.first = 1, .last = 64, .usual = 4};
    return {{.name = "--dim", .help = "columns of x", .numbers = dims, .value = "D"},
            {.name = "--layers", .help = "layers", .numbers = layers, .value = "L"}};
}

/// x[N, D]; of each of the L layers W[D, D] and b[D]; out[N, D].
struct MlpShape {
    size_t N, D, L;

    /// The one that the command line asks for.
    static MlpShape of(const Options& options) {
        return {options.n, options.number("--dim"), options.number("--layers")};
    }

    /// A product of 2 N D^2 operations per layer. Without the weights that is D L / 2 operations
    /// for each byte of x and out. GPUs with tensor cores do some 200 while they move a byte, so
    /// below that memory is the limit.
    Workload workload() const {
        const size_t least = saturating_product(
            sizeof(half), saturating_sum(saturating_product(2, N, D), L * D * D, L * D));
        const double flops = 2.0 * double(N) * double(D) * double(D) * double(L);
        auto text = [](size_t number) { return std::to_string(number); };
        const bool usual = D == 64 && L == 4;
        return {.shape = usual ? "square" : "d" + text(D) + "l" + text(L),
                .size = N,
                .dtype = "fp16",
                .flops = flops,
                .least_bytes = least,
                .memory_bound = D * L < 400,
                .text = "N = " + text(N) + ", D = " + text(D) + ", L = " + text(L),
                .arithmetic = "fp32 sums"};
    }
};

/// An activation of the reference. Errors for two ways to compute it: [0] rounds to fp16 once a
/// layer, [1] also before the gelu.
struct MlpElement {
    double value;
    float error[2];      // how far it typically is from `value`, at most
    float tolerance[2];  // how far it may be
};

/// gelu(v) by tanh, its slope, and v tanh(...) / 2, the part that an error of tanh scales with.
struct GeluTerms {
    double value, slope, half_tanh;
    static DEMO_HOST_DEVICE GeluTerms at(double v) {
        const double t = tanh(0.79788456 * (v + 0.044715 * v * v * v));
        const double inner = 0.79788456 * (1 + 3 * 0.044715 * v * v);
        return {0.5 * v * (1 + t), 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * inner, 0.5 * v * t};
    }
};

/// The same activation, from v = h W + b and what is known of h.
///
/// Errors of different elements are independent, or the weights give them independent signs. So the
/// errors of h add up as the root of the sum of their squares, d. Each is a maximum, not an
/// average, so 4 d is some 7 standard deviations. gelu multiplies an error by its slope, which the
/// error changes by up to 0.8 of itself, on average by half of that. New errors come from the sum;
/// from tanh, which ptx::tanh_approx knows to 2^-11 (PTX ISA), and which is 1 from v = 6 on; from
/// gelu's other operations; from rounding, if fp16 does not hold the number.
DEMO_HOST_DEVICE inline MlpElement expect_mlp(Product product, double bias,
                                              const double (&squares)[2], size_t D) {
    const double v = product.value + bias;
    const GeluTerms gelu = GeluTerms::at(v);
    auto rounding = [](double number) {
        const bool exact = double(float(__double2half(number))) == number;
        return exact ? 0 : kFp16.roundoff * fabs(number) + kFp16.subnormal;
    };
    const double of_tanh = fabs(v) < 6 ? 0x1p-11 * fabs(gelu.half_tanh) : 0;
    MlpElement element{gelu.value, {}, {}};
    for (int twice = 0; twice < 2; ++twice) {
        const double carried = sqrt(squares[twice]);
        const double sum =
            accumulation_error({v, product.magnitude + fabs(bias)}, D) + twice * rounding(v);
        const double slope = fabs(gelu.slope) + 0.4 * (4 * carried + sum);
        const double own = slope * sum + of_tanh + 0x1p-20 * fabs(v) + rounding(gelu.value);
        // The slope's square for a normal error e: on average e^4 is 3 times the square of e^2.
        const double typical = gelu.slope * gelu.slope + 3 * 0.16 * squares[twice];
        element.error[twice] = float(sqrt(typical * squares[twice] + own * own));
        element.tolerance[twice] = float(4 * slope * carried + own);
    }
    return element;
}

/// One layer of the reference, one thread per element, in fp64 and in the plainest way.
__global__ void reference_layer(const half* x,        // [N, D], of the first layer; else null
                                const size_t* rows,   // [samples]
                                const MlpElement* h,  // [samples, D], of the others
                                const half* W,        // [D, D] row-major
                                const half* b,        // [D]
                                MlpElement* next,     // [samples, D]
                                size_t samples, size_t D) {
    const size_t i = size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= samples || j >= D) return;
    Product sum{0, 0};
    double squares[2] = {0, 0};  // of the errors that come with h
    for (size_t k = 0; k < D; ++k) {
        const double w = double(float(W[k * D + j]));
        const double term = w * (x ? double(float(x[rows[i] * D + k])) : h[i * D + k].value);
        sum.value += term;
        sum.magnitude += fabs(term);
        for (int twice = 0; twice < 2 && !x; ++twice) {
            const double error = w * double(h[i * D + k].error[twice]);
            squares[twice] += error * error;
        }
    }
    next[i * D + j] = expect_mlp(sum, double(float(b[j])), squares, D);
}

/// The element that the last layer must produce, for verify_output().
struct ExpectMlp {
    const MlpElement* elements;  // [checked rows, D] row-major
    size_t D;
    bool twice;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        const MlpElement& element = elements[i * D + column];
        return {element.value, double(element.tolerance[twice])};
    }
};

/// Random inputs, an output, and the fp64 reference. Weights within sqrt(3 / D) keep the
/// activations near 0.5, however many layers there are, and shrink errors to two thirds in each. So
/// of many layers `out` would forget the first ones. (With sqrt(6 / D), as He et al. choose it, it
/// remembers more. But of 64 layers with D = 16 it still forgets those of every fourth seed, and up
/// to D = 64 right kernels exceed the bound with one seed in a hundred.)
///
/// Therefore every 16th column counts. Its weights are a 1 on the diagonal, so that each layer only
/// adds its bias, an odd multiple of 1/32. In x it is near 32. There gelu changes nothing, and fp16
/// holds the sums. So `out` shows what was left out, however many layers before.
class Mlp {
  public:
    explicit Mlp(Session& session)
        : shape(MlpShape::of(session.options)),
          x(session, "x", {shape.N, shape.D}, {.then = Then::kCountFrom32, .hard = hard_operand()}),
          W(session, "W", {shape.L, shape.D, shape.D},
            {.scale = weight_scale(), .then = Then::kPassOn}),
          b(session, "b", {shape.L, shape.D}, {.then = Then::kCount}),
          out(session, "out", {shape.N, shape.D}),
          rows_(CheckedRows::some(shape.N, 3 * shape.D,
                                  saturating_product(shape.L, shape.D, shape.D),
                                  session.options.seed)),
          h_{Buffer<MlpElement>(rows_.size(), shape.D), Buffer<MlpElement>(rows_.size(), shape.D)} {
        compute(0, rows_.compared);
    }

    /// How to verify `out`. `twice`: rounds to fp16 before gelu, too. Must not outlive the object.
    Check check(bool twice) const {
        // x is within 8, and h no larger on average over a row; counters end below 100.
        const double largest = 8 * largest_product(shape.D, weight_scale()) + 1;
        const ExpectMlp expect{h_[(shape.L - 1) % 2].data(), shape.D, twice};
        return out.check(rows_, expect, largest, [this] { compute(rows_.compared, rows_.kSpots); });
    }

    const half* weights(size_t layer) const { return W.data() + layer * shape.D * shape.D; }
    const half* biases(size_t layer) const { return b.data() + layer * shape.D; }

    const MlpShape shape;
    const Input<half> x, W, b;
    const Output<half> out;

  private:
    float weight_scale() const { return std::sqrt(3.0f / float(shape.D)); }

    /// The reference of `count` of the checked rows, from `first` on.
    void compute(size_t first, size_t count) const {
        if (dry_run) return;
        const size_t D = shape.D;
        const dim3 block(32, 8);
        const dim3 grid((count + block.y - 1) / block.y, (D + block.x - 1) / block.x);
        for (size_t l = 0; l < shape.L; ++l)
            reference_layer<<<grid, block>>>(l == 0 ? x.data() : nullptr, rows_.data() + first,
                                             h_[(l + 1) % 2].data() + first * D, weights(l),
                                             biases(l), h_[l % 2].data() + first * D, count, D);
        DEMO_CHECK(cudaGetLastError());
    }

    CheckedRows rows_;
    Buffer<MlpElement> h_[2];  // [rows, D] row-major each: layer l's in h_[l % 2]
};

}  // namespace demo
