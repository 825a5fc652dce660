// 10: out = act(x + m y + b), with a kernel compiled for each activation.
//
// From LoRA (low-rank adaptation; Hu et al., arXiv 2106.09685), which adapts a large layer by a
// small one beside it. With frozen weights W[p, q] and two thin matrices A[p, r], B[r, q] it gives
//
//     act( input W + (alpha / r) (input A) B + bias )
//          -------   ---------   ----------    ----
//             x    +     m            y      +   b       act: relu, sigmoid, gelu, or none
//
// A library computes the products. What is left is this program: x and y [rows, cols] in, out
// [rows, cols] back, a number m and a row b[cols]. The least traffic is 3 MN for M x N elements.
//
// chain             as a framework runs it eagerly: t = m y, t = x + t, t = t + b, out = act(t).
//                   2 + 3 + 2 + 2 = 9 MN, and four launches.
// fused             one kernel, one thread per element: 3 MN.
// fused_vectorized  the same, 16 bytes per thread, as in 7_gelu and 9_bias_relu.
//
//     ./10_add_mul_activation 4096 --activation gelu        ./10_add_mul_activation --sweep
//
// What limits it: memory, and for small matrices the launch, which takes microseconds however
// little it does. --sweep shows from which size on that no longer matters.
#include "demo.cuh"
#include "demo/copy.cuh"
#include "ptx.cuh"
#include "rows/rows.cuh"

namespace add_mul_activation {

// --- The activations ----------------------------------------------------------------------------
// Each is a type with a function, for kernels to take as a template parameter: see 7_gelu. Exact is
// the same in double, for the reference.

struct Relu {
    static __device__ float of(float v) { return v < 0 ? 0 : v; }  // a NaN stays a NaN
    using Exact = demo::ExactRelu;
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

constexpr int kThreads = 256;
constexpr int kVectorThreads = 128;  // a small block ends sooner and makes room for the next

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

template <class Activation, class T>
__global__ void fused(const T* x, float m, const T* y, const T* b, T* out, size_t size,
                      size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(Activation::of(float(x[i]) + m * float(y[i]) + float(b[i % cols])));
}

using demo::Vector;  // 16 bytes, the most that one thread can load or store at a time

template <class Activation, class T>
__global__ void fused_vectorized(const T* x, float m, const T* y, const T* b, T* out, size_t size,
                                 size_t cols) {
    constexpr int kSize = Vector<T>::kSize;
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t vectors = size / kSize, rest = vectors * kSize + i;
    if (i < vectors) {
        Vector<T> xs, ys, bias;
        ptx::ld_global_evict_last(xs, reinterpret_cast<const Vector<T>*>(x) + i);
        ptx::ld_global_evict_last(ys, reinterpret_cast<const Vector<T>*>(y) + i);
        size_t col = i * kSize % cols;  // of the first element
        if (cols % kSize == 0)
            bias = *reinterpret_cast<const Vector<T>*>(&b[col]);
        else
            for (T& element : bias.at) {
                element = b[col];
                if (++col == cols) col = 0;  // the vector continues in the next row
            }
        for (int j = 0; j < kSize; ++j)
            xs.at[j] = T(Activation::of(float(xs.at[j]) + m * float(ys.at[j]) + float(bias.at[j])));
        reinterpret_cast<Vector<T>*>(out)[i] = xs;
    }
    // Fewer elements than a vector are left over: the first threads take one each.
    if (rest < size)
        out[rest] = T(Activation::of(float(x[rest]) + m * float(y[rest]) + float(b[rest % cols])));
}

template <class Activation, class T>
void launch_fused_vectorized(const T* x, float m, const T* y, const T* b, T* out, size_t size,
                             size_t cols) {
    const size_t full_blocks = size / (kVectorThreads * Vector<T>::kSize);
    fused_vectorized<Activation><<<full_blocks + 1, kVectorThreads>>>(x, m, y, b, out, size, cols);
}

// --- The right result, in double ----------------------------------------------------------------

template <class Activation, class T>
struct ExpectActivation {
    const T *x, *y, *b;  // [rows, cols] row-major twice, [cols]
    float m;
    size_t cols;
    bool chained;  // every operation's result is rounded to T
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double v = double(float(x[row * cols + col]));
        const double product = double(m) * double(float(y[row * cols + col]));
        const double bias = double(float(b[col])), sum = v + product + bias;
        const demo::Format format = demo::kFormat<T>;
        double error = 0x1p-23 * (fabs(v) + fabs(product) + fabs(bias));  // two roundings
        if (chained)
            error += format.roundoff * (fabs(product) + fabs(v + product) + fabs(sum)) +
                     format.subnormal;
        return demo::expect_activation<typename Activation::Exact>(sum, error, format);
    }
};

// --- Running ------------------------------------------------------------------------------------

template <class Activation, class T>
void run_with(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t size = shape.size(), cols = shape.cols, blocks = (size + kThreads - 1) / kThreads;
    const demo::Fill random{.hard = demo::kHardRows<T>};
    const demo::Input<T> x(session, "x", shape, random), y(session, "y", shape, random),
        b(session, "b", {cols});
    const float m = session.parameter("m", 0.25f, 2);
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<T> t1(size), t2(size);
    auto expect = [&](bool chained) {
        return out.check(ExpectActivation<Activation, T>{x, y, b, m, cols, chained});
    };

    const bool none = std::is_same_v<Activation, None>;  // then the chain ends at the bias
    auto chain = [&] {
        multiply<T><<<blocks, kThreads>>>(m, y, t1.data(), size);
        add<T><<<blocks, kThreads>>>(x, t1.data(), t2.data(), size);
        add_bias<T><<<blocks, kThreads>>>(t2.data(), b, none ? out : t1.data(), size, cols);
        if (!none) activate<Activation, T><<<blocks, kThreads>>>(t1.data(), out, size);
    };
    auto launch_fused = [&] {
        fused<Activation, T><<<blocks, kThreads>>>(x, m, y, b, out, size, cols);
    };
    auto launch_vectorized = [&] {
        launch_fused_vectorized<Activation, T>(x, m, y, b, out, size, cols);
    };

    const size_t matrix = x.bytes();
    const demo::Workload work = shape.workload(session, none ? 3 : 4);  // operations per element
    session.run(work, expect(false),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch = chain,
                  .check = expect(true),
                  .launches = none ? 3u : 4u,
                  .temporary_bytes = 2 * matrix,
                  .moved_bytes = (none ? 7 : 9) * matrix + b.bytes()},
                 {.kernel = "fused", .launch = launch_fused, .moved_bytes = work.least_bytes},
                 {.kernel = "fused_vectorized",
                  .launch = launch_vectorized,
                  .moved_bytes = work.least_bytes},
                 demo::copy_contender(session, work)});
}

/// From the name on the command line to the type that the templates take.
template <class T>
void run(demo::Session& session) {
    const std::string& activation = session.options.choice("--activation");
    if (activation == "sigmoid") return run_with<Sigmoid, T>(session);
    if (activation == "gelu") return run_with<Gelu, T>(session);
    if (activation == "none") return run_with<None, T>(session);
    return run_with<Relu, T>(session);
}

}  // namespace add_mul_activation

int main(int argc, char** argv) {
    std::vector<demo::Extent> shapes;  // 4 x 4, 16 x 8, 64 x 16, ..., 262144 x 1024
    for (size_t cols = 4; cols <= 1024; cols *= 2) shapes.push_back({cols * cols / 4, cols});
    const demo::Program program{
        .name = "10_add_mul_activation",
        .summary = "act(x + m y + b), a LoRA layer's end: a kernel compiled for each activation",
        .types = {{"fp32", add_mul_activation::run<float>},
                  {"fp16", add_mul_activation::run<half>}},
        .any_shape = true,
        .options = {{.name = "--activation",
                     .help = "the function act",
                     .choices = {"relu", "sigmoid", "gelu", "none"}}},
        .sizes = {4096, 8192, 16384},
        .shapes = shapes,
        .sweep = demo::Sweep::kOnRequest};
    return demo::main_of(program, argc, argv);
}
