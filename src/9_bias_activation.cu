// 9: Bias and activation: out = relu(x + b), and then out = act(x + m y + b).
//
// As in 7_gelu the limit is memory. Three things are new here:
//
// A broadcast: b[cols] is added to every row of x[rows, cols], so element i needs b[i % cols]. b is
// read MN times, but hardly from memory: it stays in the caches, and costs no traffic to speak of.
//
// One kernel for many functions: an activation is a type, which a kernel takes as a template
// parameter. Lesson 7 made the chain's kernels so; here `fused` is made for any activation, without
// a call or an `if` per element.
//
// Fusing more operations saves more. In a chain each one loads and stores matrices; in one kernel
// it adds only its own operand. --op add_mul is how a layer with LoRA ends (11_lora). Then x and y
// are products of matrices, and m is a number.
//
//                       relu(x + b)   act(x + m y + b)   traffic, for M x N elements
//     chain             4 MN          9 MN (none: 7)     a kernel per operation: 2, or 4 (none: 3)
//     fused             2 MN          3 MN               one kernel, one thread per element
//     fused_vectorized  2 MN          3 MN               one kernel, 16 bytes per thread
//
//     ./9_bias_activation 8192        ./9_bias_activation 8192 --op add_mul --activation gelu
//
// What limits it: memory; fused has too few bytes on their way, as in 7_gelu. Next: 10_attention.
// H200, N = 4096, ms: chain 0.110, fused 0.0567, fused_vectorized 0.0353 (docs/figures.md)
#include "demo.cuh"
#include "demo/copy.cuh"
#include "ptx.cuh"
#include "rows/rows.cuh"

namespace bias_activation {

/// Both operations, plainly: x, y, out [rows, cols] row-major, b [cols]. y is null for relu(x + b).
inline void on_cpu(const float* x, float m, const float* y, const float* b, float* out, size_t rows,
                   size_t cols, float (*act)(float)) {
    for (size_t row = 0; row < rows; ++row)
        for (size_t col = 0; col < cols; ++col) {
            const size_t i = row * cols + col;
            out[i] = act(y ? x[i] + m * y[i] + b[col] : x[i] + b[col]);
        }
}

// --- The activations: types with a function, for kernels to take as a template parameter --------

struct Relu {
    // Not fmaxf(v, 0): for a NaN that returns 0, and hides the NaN.
    static __device__ float of(float v) { return v < 0 ? 0 : v; }
    using Exact = demo::ExactRelu;  // the same in double, for the reference
};
struct Sigmoid {
    static __device__ float of(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
    using Exact = demo::ExactSigmoid;
};
struct Gelu {  // as in 7_gelu
    static __device__ float of(float v) {
        const float a = 0.79788456f * (v + 0.044715f * v * v * v);
        // -infinity becomes the lowest finite number: times 0 that is 0, not NaN.
        return fmaxf(v, -3.4028235e38f) * Sigmoid::of(2.0f * a);
    }
    using Exact = demo::ExactGelu;
};
struct None {
    static __device__ float of(float v) { return v; }
    using Exact = demo::ExactNone;
};

// --- One kernel per operation: x, y, t, out [size / cols, cols] row-major, b [cols] -------------

template <class T>
__global__ void multiply(float m, const T* y, T* t, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) t[i] = T(m * float(y[i]));
}

template <class T>
__global__ void add(const T* x, const T* t, T* sum, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) sum[i] = T(float(x[i]) + float(t[i]));
}

template <class T>
__global__ void add_bias(const T* t, const T* b, T* sum, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) sum[i] = T(float(t[i]) + float(b[i % cols]));
}

template <class Activation, class T>
__global__ void activate(const T* t, T* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(Activation::of(float(t[i])));
}

// --- One kernel for all: x, y, out [size / cols, cols] row-major, b [cols] ----------------------

/// One element: act(x + m y + b), or without y act(x + b). Each case is compiled apart.
template <class Activation, bool kHasY, class T>
__device__ T result(T x, float m, T y, T b) {
    const float v = kHasY ? float(x) + m * float(y) : float(x);
    return T(Activation::of(v + float(b)));
}

template <class Activation, bool kHasY, class T>
__global__ void fused(const T* x, float m, const T* y, const T* b, T* out, size_t size,
                      size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = result<Activation, kHasY>(x[i], m, kHasY ? y[i] : T(), b[i % cols]);
}

using demo::Vector;  // 16 bytes, the most that one thread can load or store at a time

/// The biases of a matrix's vector i, with one remainder (some 25 instructions) for all.
template <class T>
__device__ Vector<T> biases_of(size_t i, const T* b, size_t cols) {
    size_t col = i * Vector<T>::kSize % cols;  // of the first element
    if (cols % Vector<T>::kSize == 0) return *reinterpret_cast<const Vector<T>*>(&b[col]);
    Vector<T> biases;
    for (T& bias : biases.at) {
        bias = b[col];
        if (++col == cols) col = 0;  // the vector continues in the next row
    }
    return biases;
}

template <class Activation, bool kHasY, class T>
__global__ void fused_vectorized(const T* x, float m, const T* y, const T* b, T* out, size_t size,
                                 size_t cols) {
    constexpr int kSize = Vector<T>::kSize;
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t vectors = size / kSize, rest = vectors * kSize + i;
    if (i < vectors) {
        Vector<T> xs, ys{};
        ptx::ld_global_evict_last(xs, reinterpret_cast<const Vector<T>*>(x) + i);  // see 7_gelu
        if (kHasY) ptx::ld_global_evict_last(ys, reinterpret_cast<const Vector<T>*>(y) + i);
        const Vector<T> bs = biases_of(i, b, cols);
        for (int j = 0; j < kSize; ++j)
            xs.at[j] = result<Activation, kHasY>(xs.at[j], m, ys.at[j], bs.at[j]);
        reinterpret_cast<Vector<T>*>(out)[i] = xs;
    }
    if (rest < size)  // what is left over, as in 7_gelu
        out[rest] = result<Activation, kHasY>(x[rest], m, kHasY ? y[rest] : T(), b[rest % cols]);
}

// --- Running ------------------------------------------------------------------------------------

constexpr int kThreads = 256, kVectorThreads = 128;  // as in 7_gelu

/// kHasY: act(x + m y + b), --op add_mul. Without, relu(x + b): y is null, m is 0, neither is used.
template <class Activation, bool kHasY, class T>
void run_with(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t size = shape.size(), cols = shape.cols, blocks = (size + kThreads - 1) / kThreads;
    const demo::Fill random{.hard = demo::kHardRows<T>};
    const demo::Input<T> x(session, "x", shape, random);
    std::optional<demo::Input<T>> second;
    if (kHasY) second.emplace(session, "y", shape, random);
    const T* const y = kHasY ? second->data() : nullptr;
    const demo::Input<T> b(session, "b", {cols});
    const float m = kHasY ? session.parameter("m", 0.25f, 2) : 0;
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<T> t1(size), t2(kHasY ? size : 0);
    using Expect = demo::ExpectActivation<typename Activation::Exact, T>;
    auto expect = [&](bool chained) { return out.check(Expect{x, m, y, b, cols, chained}); };

    constexpr bool kNone = std::is_same_v<Activation, None>;  // then the chain ends at the bias
    auto chain = [&] {
        if (kHasY) multiply<T><<<blocks, kThreads>>>(m, y, t1.data(), size);     // t1 = m y
        if (kHasY) add<T><<<blocks, kThreads>>>(x, t1.data(), t2.data(), size);  // t2 = x + m y
        const T* const sum = kHasY ? t2.data() : x.data();
        add_bias<T><<<blocks, kThreads>>>(sum, b, kNone ? out : t1.data(), size, cols);
        if (!kNone) activate<Activation, T><<<blocks, kThreads>>>(t1.data(), out, size);
    };
    auto launch_fused = [&] {
        fused<Activation, kHasY, T><<<blocks, kThreads>>>(x, m, y, b, out, size, cols);
    };
    const size_t full_blocks = size / (kVectorThreads * Vector<T>::kSize);  // + 1: for what is left
    auto launch_vectorized = [&] {
        fused_vectorized<Activation, kHasY, T>
            <<<full_blocks + 1, kVectorThreads>>>(x, m, y, b, out, size, cols);
    };
    const size_t operations = 2 + 2 * kHasY - kNone;
    demo::Workload work = shape.workload(session, double(operations));
    if (kHasY) work.shape = "add_mul" + (shape.square ? "" : work.shape);  // for --csv
    session.run(work, expect(false),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch = chain,
                  .check = expect(true),
                  .launches = operations,
                  .temporary_bytes = t1.bytes() + t2.bytes(),
                  .moved_bytes = (2 * operations + kHasY) * x.bytes() + b.bytes()},
                 {.kernel = "fused", .launch = launch_fused, .moved_bytes = work.least_bytes},
                 {.kernel = "fused_vectorized",
                  .launch = launch_vectorized,
                  .moved_bytes = work.least_bytes},
                 demo::copy_contender(session, work)});
}

/// From the names on the command line to the types that the templates take.
template <class T>
void run(demo::Session& session) {
    const std::string& activation = session.options.choice("--activation");
    if (session.options.choice("--op") == "bias_relu") return run_with<Relu, false, T>(session);
    if (activation == "sigmoid") return run_with<Sigmoid, true, T>(session);
    if (activation == "gelu") return run_with<Gelu, true, T>(session);
    if (activation == "none") return run_with<None, true, T>(session);
    return run_with<Relu, true, T>(session);
}

}  // namespace bias_activation

int main(int argc, char** argv) {
    std::vector<demo::Extent> shapes;  // 4 x 4, 16 x 8, 64 x 16, ..., 262144 x 1024
    for (size_t cols = 4; cols <= 1024; cols *= 2) shapes.push_back({cols * cols / 4, cols});
    const demo::Program program{
        .name = "9_bias_activation",
        .summary = "relu(x + b), act(x + m y + b): a broadcast, and a kernel for each activation",
        .types = {{"fp32", bias_activation::run<float>}, {"fp16", bias_activation::run<half>}},
        .any_shape = true,
        .options = {{.name = "--op",
                     .help = "relu(x + b), or act(x + m y + b)",
                     .choices = {"bias_relu", "add_mul"}},
                    {.name = "--activation",
                     .help = "act, with --op add_mul",
                     .choices = {"relu", "sigmoid", "gelu", "none"},
                     .only_with = {"--op", "add_mul"}}},
        .sizes = {4096, 8192, 16384},
        .shapes = shapes,
        .variants = {"4096 --op add_mul", "8192 --op add_mul", "16384 --op add_mul"},
        .sweep = demo::Sweep::kOnRequest};
    return demo::main_of(program, argc, argv);
}
