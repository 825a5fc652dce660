// out = act(x W + s (x A) B + b), a layer with a low-rank adapter: its data, its bound (ExpectLora)
// and its reference in fp64.
//
// unfused.cuh          lesson 11: the chain, and library_best
// lora_hopper.cuh      appended_hopper and appended_early, the records of bonus_lora
// lora_recomputed.cuh  recomputed: bonus_lora's other kernel, in one launch
#pragma once

#include "demo/cublaslt.cuh"
#include "matmul/matmul.cuh"
#include "rows/rows.cuh"

namespace demo {

// The activations, types that kernels take as a template parameter: `of` for a kernel, Exact for
// the reference, and the epilogue of cuBLASLt that applies it.
struct Relu {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_RELU;
    static __device__ float of(float v) { return v < 0 ? 0 : v; }  // a NaN stays a NaN
    using Exact = ExactRelu;
};
struct Sigmoid {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_DEFAULT;  // it has none
    static __device__ float of(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
    using Exact = ExactSigmoid;
};
struct Gelu {  // by tanh
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_GELU;
    static __device__ float of(float v) {
        const float a = 0.79788456f * (v + 0.044715f * v * v * v);
        return fmaxf(v, -3.4028235e38f) * Sigmoid::of(2.0f * a);  // see 9_bias_activation
    }
    using Exact = ExactGelu;
};
struct None {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_DEFAULT;
    static __device__ float of(float v) { return v; }
    using Exact = ExactNone;
};

/// What the programs take besides N.
inline std::vector<Option> lora_options() {
    const Numbers rank{.first = 8, .last = 64, .multiple = 8, .usual = 16};
    return {{.name = "--rows", .help = "rows of x", .numbers = Numbers{.first = 1}, .value = "M"},
            {.name = "--rank", .help = "r, the columns of A", .numbers = rank, .value = "R"},
            {.name = "--activation",
             .help = "the function act",
             .choices = {"relu", "gelu", "sigmoid", "none"}}};
}

/// Calls run(Activation()) with the type that --activation names.
template <class Run>
void with_activation(const Session& session, Run run) {
    const std::string& activation = session.options.choice("--activation");
    if (activation == "gelu") return run(Gelu());
    if (activation == "sigmoid") return run(Sigmoid());
    if (activation == "none") return run(None());
    run(Relu());
}

/// x[M, N], W[N, N], A[N, rank], B[rank, N], b[N], out[M, N].
struct LoraShape {
    size_t M, N, rank;
    bool usual;  // M = N and rank 16

    /// The one that the command line asks for: N, --rows and --rank.
    static LoraShape of(const Options& options) {
        const size_t N = options.n, rank = options.number("--rank");
        const size_t M = options.flag("--rows") ? options.number("--rows") : N;
        return {M, N, rank, M == N && rank == 16};
    }

    /// Three products. The elementwise rest is not counted.
    Workload workload() const {
        const std::string m = std::to_string(M), n = std::to_string(N), r = std::to_string(rank);
        const size_t elements =
            saturating_sum(saturating_product(2, M, N), saturating_product(N, N),
                           saturating_product(2, N, rank), N);
        return {.shape = usual ? "square" : m + "x" + n + "r" + r,
                .size = usual ? N : M,
                .dtype = "fp16",
                .flops = 2.0 * double(M) * double(N) * double(N + 2 * rank),
                .least_bytes = saturating_product(2, elements),
                .text = "M = " + m + ", N = " + n + ", r = " + r,
                .arithmetic = "fp32 sums"};
    }
};

/// What a way to compute LoRA rounds to fp16 besides u = x A and out.
struct LoraRounded {
    bool product = false;  // x W
    bool based = false;    // x W + b
    bool update = false;   // u B, and s u B
    bool sum = false;      // x W + s u B
    bool total = false;    // x W + s u B + b, before the activation
};

/// The element that LoRA must produce, for verify_output(). What rounding does to u_j arrives at
/// act()'s argument times s B_jn.
template <class Activation>
struct ExpectLora {
    const Product *products, *thin;  // x W and x A: [checked rows, N], [checked rows, rank]
    const half *B, *b;               // [rank, N], [N]
    size_t N, rank;
    float s;
    LoraRounded rounded;

    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        auto rounding = [](double value) { return kFp16.roundoff * fabs(value) + kFp16.subnormal; };
        const Product product = products[i * N + column];
        const double scale = double(s), bias = double(float(b[column]));
        Product update{0, 0};  // s u B
        double error = 0;
        for (size_t j = 0; j < rank; ++j) {
            const Product u = thin[i * rank + j];
            const double factor = double(float(B[j * N + column]));
            update.value += scale * u.value * factor;
            update.magnitude += fabs(scale * u.value * factor);
            // u or s u is stored as fp16.
            const double stored = fmax(fabs(scale) * rounding(u.value), rounding(scale * u.value));
            error += fabs(factor) * (fabs(scale) * accumulation_error(u, N) + stored);
        }
        // In one sum or in several, it is N + rank products and the bias.
        const double sum = product.value + update.value, total = sum + bias;
        const double magnitude = product.magnitude + update.magnitude + fabs(bias);
        error += accumulation_error({total, magnitude}, N + rank + 1);
        if (rounded.product) error += rounding(product.value);
        if (rounded.update)
            error += fabs(scale) * rounding(update.value / scale) + rounding(update.value);
        if (rounded.sum) error += rounding(sum);
        if (rounded.based) error += rounding(product.value + bias);
        if (rounded.total) error += rounding(total);
        error += 0x1p-23 * (fabs(product.value) + fabs(update.value) + fabs(bias));
        return expect_activation<typename Activation::Exact>(total, error, kFormat<half>);
    }
};

/// Random inputs, an output, and the fp64 reference. Scaled so that x W, u and u B stay near 1.
class Lora {
  public:
    explicit Lora(Session& session)
        : shape(LoraShape::of(session.options)),
          s(session.parameter("s", 0.25f, 1)),
          x(session, "x", {shape.M, shape.N}, {.hard = hard_operand()}),
          W(session, "W", {shape.N, shape.N}, {.scale = wide_scale()}),
          A(session, "A", {shape.N, shape.rank}, {.scale = wide_scale()}),
          B(session, "B", {shape.rank, shape.N}, {.scale = thin_scale()}),
          b(session, "b", {shape.N}),
          out(session, "out", {shape.M, shape.N}),
          rows_(CheckedRows::some(shape.M, shape.N, saturating_product(shape.N, shape.N),
                                  session.options.seed)),
          products_(x.data(), W.data(), rows_, shape.N, shape.N),
          thin_(x.data(), A.data(), rows_, shape.N, shape.rank),
          alone_(session.wants("gemm_alone") ? saturating_product(shape.M, shape.N) : 1) {}

    /// How to verify `out`. Must not outlive the object.
    template <class Activation>
    Check check(LoraRounded rounded) const {
        const ExpectLora<Activation> expect{products_.data(), thin_.data(), B, b,
                                            shape.N,          shape.rank,   s, rounded};
        const double wide =
            kHardScale * largest_product(shape.N, wide_scale());  // of x W, and of u
        const double largest = wide + s * largest_product(shape.rank, thin_scale()) * wide + 1;
        return out.check(rows_, expect, largest, [this] { products_.renew(), thin_.renew(); });
    }

    /// The yardstick: x W alone, by the best of cuBLASLt. Must not outlive the object.
    Contender gemm_alone() const {
        const size_t M = shape.M, N = shape.N;
        const auto library = std::make_shared<CublasLt>();
        const auto setup = [=, this](Contender& self) {
            const LtProduct<half> product{x, W, alone_.data(), M, N, N};
            const auto gemm = std::make_shared<LtGemm<half>>(*library, product);
            self.launch = [library, gemm] { (*gemm)(); };
        };
        return {.kernel = "gemm_alone",
                .role = Role::kYardstick,
                .setup = setup,
                .check = check_of(
                    alone_.data(), M, N, rows_, ExpectMatmul{products_.data(), N, N, kFormat<half>},
                    kHardScale * largest_product(N, wide_scale()), [this] { products_.renew(); }),
                .repeatable = false,
                .moved_bytes = sizeof(half) * (2 * M * N + N * N)};
    }

    const LoraShape shape;
    const float s;
    const Input<half> x, W, A, B, b;
    const Output<half> out;

  private:
    float wide_scale() const { return std::sqrt(3.0f / float(shape.N)); }
    float thin_scale() const { return std::sqrt(3.0f / float(shape.rank)); }

    CheckedRows rows_;
    ProductReference products_, thin_;
    Buffer<half> alone_;  // of gemm_alone: [M, N]
};

}  // namespace demo
