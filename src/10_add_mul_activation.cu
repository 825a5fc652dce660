// 10: out = act(x + m y + b), with the activation chosen when the program is compiled.
//
// Where it comes from: LoRA, which adapts a large layer by a small one beside it. With frozen
// weights W and two thin matrices A[in, r], B[r, out], the layer computes
//
//     act( input W + (alpha / r) (input A) B + bias )
//          -------   ---------   ----------    ----
//             x    +     m            y      +   b       act: relu, sigmoid, gelu, or none
//
// The products are the library's. What is left is this file: x and y [rows, cols] in, out
// [rows, cols] out, a number m and a row b[cols]. The least traffic is 3 MN.
//
// chain             as a framework runs it eagerly: t = m y, t = x + t, t = t + b, out = act(t).
//                   2 + 3 + 2 + 2 = 9 MN, and four launches.
// fused             one kernel, one thread per element.
// fused_vectorised  16 bytes at a time, as in 9_bias_relu, and loads that ask the L2 cache to evict
//                   last, as in 7_gelu.
//
// One template serves all activations. Its parameter is a type with a function, so the compiler
// sees the function and puts its instructions in place: no branch, no call. (A pointer to a
// function would cost a call for each element.) m is a float: as a double, 0.5 would make the
// whole sum a double's, at a fraction of the speed.
//
// Small matrices are another world: a launch takes microseconds, however little it does. --sweep
// shows where that stops to matter.
//
// TFLOP/s counts four operations per element, three without an activation.
#include <algorithm>

#include "demo.cuh"
#include "demo/elementwise.cuh"
#include "ptx.cuh"

namespace add_mul_activation {

// --- The activations: on a GPU in float, in the reference in double -----------------------------

struct Relu {
    static __device__ float of(float v) { return v < 0 ? 0 : v; }  // a NaN stays a NaN
    static DEMO_HOST_DEVICE double exact(double v) { return v < 0 ? 0 : v; }
};
struct Sigmoid {
    static __device__ float of(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
    static DEMO_HOST_DEVICE double exact(double v) { return 1 / (1 + exp(-v)); }
};
struct Gelu {  // by tanh: see 7_gelu
    static __device__ float of(float v) {
        const float a = 0.79788456f * (v + 0.044715f * v * v * v);
        // -infinity becomes the lowest number: 0 times that is 0, and not NaN.
        return fmaxf(v, -3.4028235e38f) * Sigmoid::of(2.0f * a);
    }
    static DEMO_HOST_DEVICE double exact(double v) {
        return 0.5 * v * (1 + tanh(0.79788456 * (v + 0.044715 * v * v * v)));
    }
};
struct None {
    static __device__ float of(float v) { return v; }
    static DEMO_HOST_DEVICE double exact(double v) { return v; }
};

constexpr int kThreads = 256;
constexpr int kVectorThreads = 128;  // small blocks end sooner, and make room for the next

inline size_t blocks_for(size_t size) { return (size + kThreads - 1) / kThreads; }

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

// --- One kernel for all -------------------------------------------------------------------------

template <class Activation, class T>
__global__ void fused(const T* x,  // [size / cols, cols] row-major, like y and out
                      float m, const T* y,
                      const T* b,  // [cols]
                      T* out, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(Activation::of(float(x[i]) + m * float(y[i]) + float(b[i % cols])));
}

/// 16 bytes, the most that one thread can load or store at a time.
template <class T>
struct alignas(16) Vector {
    static constexpr int kSize = 16 / sizeof(T);
    T at[kSize];
};

template <class Activation, class T>
__global__ void fused_vectorised(const T* x,  // [size / cols, cols] row-major, like y and out
                                 float m, const T* y,
                                 const T* b,  // [cols]
                                 T* out, size_t size, size_t cols) {
    constexpr int kSize = Vector<T>::kSize;
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t vectors = size / kSize, rest = vectors * kSize + i;
    if (i < vectors) {
        Vector<T> xs, ys, bias;
        ptx::load_evict_last(xs, reinterpret_cast<const Vector<T>*>(x) + i);
        ptx::load_evict_last(ys, reinterpret_cast<const Vector<T>*>(y) + i);
        size_t col = i * kSize % cols;  // of the first element
        if (cols % kSize == 0)
            bias = *reinterpret_cast<const Vector<T>*>(&b[col]);
        else
            for (T& element : bias.at) {
                element = b[col];
                if (++col == cols) col = 0;  // the vector goes on in the next row
            }
        for (int j = 0; j < kSize; ++j)
            xs.at[j] = T(Activation::of(float(xs.at[j]) + m * float(ys.at[j]) + float(bias.at[j])));
        reinterpret_cast<Vector<T>*>(out)[i] = xs;
    }
    // What is left is shorter than a vector: the first threads take an element each.
    if (rest < size)
        out[rest] = T(Activation::of(float(x[rest]) + m * float(y[rest]) + float(b[rest % cols])));
}

template <class Activation, class T>
void launch_fused_vectorised(const T* x, float m, const T* y, const T* b, T* out, size_t size,
                             size_t cols) {
    const size_t full_blocks = size / (kVectorThreads * Vector<T>::kSize);
    fused_vectorised<Activation><<<full_blocks + 1, kVectorThreads>>>(x, m, y, b, out, size, cols);
}

// --- What must come out, in double --------------------------------------------------------------

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
        // The activations' slopes are at most 1.13: errors of the sum pass nearly unchanged.
        const double terms = 1.13 * (fabs(v) + fabs(product) + fabs(bias));
        demo::Expected expected =
            demo::expect_elementwise(Activation::exact(sum), terms, demo::kFormat<T>);
        if (chained)
            expected.tolerance +=
                1.13 * demo::kFormat<T>.roundoff * (fabs(product) + fabs(v + product) + fabs(sum));
        return expected;
    }
};

// --- Running ------------------------------------------------------------------------------------

constexpr float kScale = 0.5f;  // m

/// The matrices of one shape, and the four ways to compute `out`.
template <class Activation, class T>
class Problem {
  public:
    Problem(const demo::Options& options, const demo::MatrixShape& shape)
        : shape(shape),
          x_(shape.size()),
          y_(shape.size()),
          b_(shape.cols),
          even_(shape.size()),
          odd_(shape.size()),
          out_(shape, options.seed),
          copy_(options, least_bytes(), options.seed) {
        demo::fill_uniform(x_, options.seed);
        demo::fill_uniform(y_, options.seed + 1);
        demo::fill_uniform(b_, options.seed + 2);
    }

    size_t matrix() const { return shape.size() * sizeof(T); }
    size_t row() const { return shape.cols * sizeof(T); }
    size_t least_bytes() const { return 3 * matrix() + row(); }

    demo::Workload workload(const std::string& dtype) const {
        const bool none = std::is_same_v<Activation, None>;
        return shape.workload(dtype, none ? 3 : 4, least_bytes());
    }

    std::vector<demo::Contender> contenders() const {
        auto expect = [&](bool chained) {
            return out_.check(ExpectActivation<Activation, T>{x_.data(), y_.data(), b_.data(),
                                                              kScale, shape.cols, chained});
        };
        const bool none = std::is_same_v<Activation, None>;  // then the chain ends at the bias
        return {{.kernel = "chain",
                 .check = expect(true),
                 .launch = [this] { chain(); },
                 .launches = none ? 3u : 4u,
                 .temporary_bytes = 2 * matrix(),
                 .moved_bytes = (none ? 7 : 9) * matrix() + row()},
                {.kernel = "fused",
                 .check = expect(false),
                 .launch = [this] { launch_fused(); },
                 .moved_bytes = least_bytes()},
                {.kernel = "fused_vectorised",
                 .check = expect(false),
                 .launch =
                     [this] {
                         launch_fused_vectorised<Activation>(x_.data(), kScale, y_.data(),
                                                             b_.data(), out_.data(), shape.size(),
                                                             shape.cols);
                     },
                 .moved_bytes = least_bytes()},
                copy_.contender()};
    }

    /// Device memory that it takes, in bytes; saturates.
    static size_t bytes(const demo::MatrixShape& shape) {
        const size_t matrix = demo::saturating_product(shape.size(), sizeof(T));
        const size_t row = demo::saturating_product(shape.cols, sizeof(T));
        return demo::saturating_sum(
            demo::saturating_product(4, matrix), row, demo::GuardedOutput<T>::bytes(shape),
            demo::Copy::bytes(demo::saturating_sum(demo::saturating_product(3, matrix), row)));
    }

    const demo::MatrixShape shape;

  private:
    void chain() const {
        const size_t size = shape.size(), blocks = blocks_for(size);
        multiply<<<blocks, kThreads>>>(kScale, y_.data(), even_.data(), size);
        add<<<blocks, kThreads>>>(x_.data(), even_.data(), odd_.data(), size);
        if (std::is_same_v<Activation, None>) {
            add_bias<<<blocks, kThreads>>>(odd_.data(), b_.data(), out_.data(), size, shape.cols);
        } else {
            add_bias<<<blocks, kThreads>>>(odd_.data(), b_.data(), even_.data(), size, shape.cols);
            activate<Activation><<<blocks, kThreads>>>(even_.data(), out_.data(), size);
        }
    }

    void launch_fused() const {
        fused<Activation><<<blocks_for(shape.size()), kThreads>>>(
            x_.data(), kScale, y_.data(), b_.data(), out_.data(), shape.size(), shape.cols);
    }

    demo::Buffer<T> x_, y_, b_;
    demo::Buffer<T> even_, odd_;  // the chain's temporaries, by turns
    demo::GuardedOutput<T> out_;
    demo::Copy copy_;
};

/// The table of --sweep: from a launch's cost alone to the road's.
template <class Activation, class T>
int sweep(const demo::Options& options, const demo::Gpu& gpu) {
    demo::Report report(options, gpu, "from 4 x 4 up, " + options.dtype);
    if (!options.csv)
        std::printf("\n%15s | %10s %10s %9s | %10s %9s |\n", "rows x cols", "chain ms", "fused ms",
                    "speed-up", "GB/s", "of copy");
    double launch_ms = 0;  // of the smallest: hardly anything but the launch
    std::string enough;    // the first shape at which the launch is a tenth of the time
    const size_t last = demo::kCpuLane ? 1024 : 262144;
    for (size_t rows = 4, cols = 4; rows <= last; rows *= 4, cols *= 2) {
        const demo::MatrixShape shape{rows, cols, false};
        const size_t bytes = demo::saturating_sum(Problem<Activation, T>::bytes(shape),
                                                  options.hot ? 0 : gpu.flush_bytes());
        if (bytes > demo::free_device_memory()) break;
        const Problem<Activation, T> problem(options, shape);
        const std::vector<demo::Contender> contenders = problem.contenders();
        const std::vector<demo::Result> results = demo::measure(options, gpu, contenders);
        const demo::Workload work = problem.workload(options.dtype);
        for (size_t i = 0; i < results.size(); ++i) report.record(work, contenders[i], results[i]);
        if (options.csv) continue;
        const double chain = results[0].median_ms(), fused = results[2].median_ms();
        const bool timed = chain > 0 && fused > 0 && results[3].median_ms() > 0;
        auto figure = [&](double value) { return timed ? demo::four_digits(value) : "-"; };
        const std::string name = std::to_string(rows) + " x " + std::to_string(cols);
        const bool right = std::all_of(results.begin(), results.end(),
                                       [](const demo::Result& r) { return r.verdict.ok(); });
        std::printf("%15s | %10s %10s %7s x | %10s %7s %% | %s\n", name.c_str(),
                    figure(chain).c_str(), figure(fused).c_str(), figure(chain / fused).c_str(),
                    figure(results[2].gb_per_s(work)).c_str(),
                    figure(100 * results[3].median_ms() / fused).c_str(),
                    right ? "verified" : "WRONG");
        if (!timed) continue;
        std::fflush(stdout);
        if (launch_ms == 0) launch_ms = fused;
        if (enough.empty() && fused > 10 * launch_ms) enough = name;
    }
    if (launch_ms > 0)
        report.note("4 x 4 is all launch: " + demo::four_digits(1000 * launch_ms) + " us. " +
                    (enough.empty() ? "It matters at every size here"
                                    : "From " + enough + " on it is under a tenth of the time"));
    return report.exit_code();
}

template <class Activation, class T>
int run(const demo::Options& options, const demo::Gpu& gpu) {
    if (options.has("--sweep")) return sweep<Activation, T>(options, gpu);
    demo::require_memory(options, [&](size_t size) {
        return demo::saturating_sum(
            Problem<Activation, T>::bytes(demo::MatrixShape::of(options, size)),
            options.hot ? 0 : gpu.flush_bytes());
    });
    const auto shape = demo::MatrixShape::of(options);
    demo::Report report(options, gpu, shape.text() + ", " + options.dtype);
    const Problem<Activation, T> problem(options, shape);
    report.run(problem.workload(options.dtype), problem.contenders());
    report.note("least possible traffic: " + demo::human_bytes(double(problem.least_bytes())));
    report.ratio("fused_vectorised", "chain");
    return report.exit_code();
}

/// From the names on the command line to the types that the templates take.
template <class T>
int run(const demo::Options& options, const demo::Gpu& gpu) {
    const std::string& activation = options.extras.at("--activation");
    if (activation == "sigmoid") return run<Sigmoid, T>(options, gpu);
    if (activation == "gelu") return run<Gelu, T>(options, gpu);
    if (activation == "none") return run<None, T>(options, gpu);
    return run<Relu, T>(options, gpu);
}

}  // namespace add_mul_activation

#ifndef ADD_MUL_ACTIVATION_NO_MAIN

int main(int argc, char** argv) {
    const demo::Options options = demo::parse_command_line(
        argc, argv,
        {.name = "10_add_mul_activation",
         .summary = "act(x + m y + b): a chain of kernels, one, and one at the speed of a copy",
         .kernels = {"chain", "fused", "fused_vectorised", "copy"},
         .any_shape = true,
         .dtypes = {"fp32", "fp16"},
         .extras = {{"--activation", "act", {"relu", "sigmoid", "gelu", "none"}},
                    {"--sweep", "a table from 4 x 4 to 262144 x 1024", {}}}});
    if (options.has("--sweep") && (options.sized || !options.kernel.empty()))
        demo::fail(demo::kUsage, "--sweep has sizes and kernels of its own: give no others");
    const demo::Gpu gpu(options);
    return options.dtype == "fp16" ? add_mul_activation::run<half>(options, gpu)
                                   : add_mul_activation::run<float>(options, gpu);
}

#endif
