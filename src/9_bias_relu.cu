// 9: Bias and ReLU, out = relu(x + b): b[cols] is added to every row of x[rows, cols].
//
// Two operations, one of which needs the element's column: b is broadcast, used again in every row.
// The arithmetic is nothing beside the traffic. The least is x once in and out once back: 2 MN for
// M x N elements.
//
// chain             two kernels, x + b and relu: 4 MN.
// fused             one kernel, one thread per element: 2 MN. The element's column is i % cols, and
//                   that remainder of two 64-bit numbers takes more instructions than all the rest.
// fused_vectorized  16 bytes per thread (as in 7_gelu), so one remainder for 4 or 8 elements. If
//                   4 (or 8) divides cols, one load fetches all their biases. Else their columns
//                   come from counting on:
//
//                       i         0  1  2  3 |  4  5  6  7 |  8  9 10 11       cols = 6
//                       column    0  1  2  3 |  4  5  0  1 |  2  3  4  5
//                                 ^             ^             ^                i % cols
//
// relu(v) is v < 0 ? 0 : v, not fmaxf(v, 0): of a NaN and 0, fmaxf returns the 0 and hides the NaN.
//
// With --in-place the result replaces its input: out holds a copy of x. A second launch would add b
// again, so x is copied into it before every launch, outside the timed part.
//
// What limits it: memory. 10_add_mul_activation has a second matrix, and a choice of activations.
#include "demo.cuh"
#include "demo/copy.cuh"
#include "ptx.cuh"
#include "rows/rows.cuh"

namespace bias_relu {

__device__ float relu(float v) { return v < 0 ? 0 : v; }

constexpr int kThreads = 256;
constexpr int kVectorThreads = 128;  // a small block ends sooner and makes room for the next

inline size_t blocks_for(size_t size) { return (size + kThreads - 1) / kThreads; }

// --- One kernel per operation -------------------------------------------------------------------

template <class T>
__global__ void add_bias(const T* x,  // [size / cols, cols] row-major, like out
                         const T* b,  // [cols]
                         T* out, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(float(x[i]) + float(b[i % cols]));
}

template <class T>
__global__ void apply_relu(const T* x, T* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(relu(float(x[i])));
}

// --- One kernel for both ------------------------------------------------------------------------

template <class T>
__global__ void fused(const T* x,  // [size / cols, cols] row-major, like out
                      const T* b,  // [cols]
                      T* out, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(relu(float(x[i]) + float(b[i % cols])));
}

using demo::Vector;  // 16 bytes, the most that one thread can load or store at a time

template <class T>
__global__ void fused_vectorized(const T* x,  // [size / cols, cols] row-major, like out
                                 const T* b,  // [cols]
                                 T* out, size_t size, size_t cols) {
    constexpr int kSize = Vector<T>::kSize;
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t vectors = size / kSize, rest = vectors * kSize + i;
    if (i < vectors) {
        Vector<T> values, bias;
        ptx::ld_global_evict_last(values, reinterpret_cast<const Vector<T>*>(x) + i);  // see 7_gelu
        size_t col = i * kSize % cols;  // of the first element
        if (cols % kSize == 0)
            bias = *reinterpret_cast<const Vector<T>*>(&b[col]);
        else
            for (T& element : bias.at) {
                element = b[col];
                if (++col == cols) col = 0;  // the vector continues in the next row
            }
        for (int j = 0; j < kSize; ++j)
            values.at[j] = T(relu(float(values.at[j]) + float(bias.at[j])));
        reinterpret_cast<Vector<T>*>(out)[i] = values;
    }
    // Fewer elements than a vector are left over: the first threads take one each.
    if (rest < size) out[rest] = T(relu(float(x[rest]) + float(b[rest % cols])));
}

template <class T>
void launch_fused_vectorized(const T* x, const T* b, T* out, size_t size, size_t cols) {
    const size_t full_blocks = size / (kVectorThreads * Vector<T>::kSize);
    fused_vectorized<<<full_blocks + 1, kVectorThreads>>>(x, b, out, size, cols);
}

// --- The right result, in double ----------------------------------------------------------------

template <class T>
struct ExpectBiasRelu {
    const T *x, *b;  // [rows, cols] row-major, [cols]
    size_t cols;
    bool chained;  // the sum is rounded to T before relu sees it
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double sum = double(float(x[row * cols + col])) + double(float(b[col]));
        const double roundoff = 0x1p-24 + (chained ? demo::kFormat<T>.roundoff : 0);
        return demo::expect_activation<demo::ExactRelu>(sum, roundoff * fabs(sum),
                                                        demo::kFormat<T>);
    }
};

// --- Running ------------------------------------------------------------------------------------

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t size = shape.size(), cols = shape.cols;
    const bool in_place = session.options.flag("--in-place");
    const demo::Input<T> x(session, "x", shape, {.hard = demo::kHardRows<T>});  // random
    const demo::Input<T> b(session, "b", {cols});
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<T> temporary(size);
    auto expect = [&](bool chained) { return out.check(ExpectBiasRelu<T>{x, b, cols, chained}); };

    // In place, `out` holds the input at the start of each launch.
    const T* const input = in_place ? out.data() : x.data();
    T* const between = in_place ? out.data() : temporary.data();
    auto restore = [&] {
        if (in_place) DEMO_CHECK(cudaMemcpyAsync(out, x, x.bytes(), cudaMemcpyDeviceToDevice));
    };
    auto launch_chain = [&] {
        add_bias<T><<<blocks_for(size), kThreads>>>(input, b, between, size, cols);
        apply_relu<T><<<blocks_for(size), kThreads>>>(between, out, size);
    };
    auto launch_fused = [&] {
        fused<T><<<blocks_for(size), kThreads>>>(input, b, out, size, cols);
    };

    const size_t matrix = x.bytes();
    const demo::Workload work = shape.workload(session, 2);  // operations per element
    session.run(work, expect(false),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch = launch_chain,
                  .check = expect(true),
                  .launches = 2,
                  .temporary_bytes = in_place ? 0 : matrix,
                  .moved_bytes = 4 * matrix + b.bytes(),
                  .prepare = restore},
                 {.kernel = "fused",
                  .launch = launch_fused,
                  .moved_bytes = work.least_bytes,
                  .prepare = restore},
                 {.kernel = "fused_vectorized",
                  .launch = [&] { launch_fused_vectorized<T>(input, b, out, size, cols); },
                  .moved_bytes = work.least_bytes,
                  .prepare = restore},
                 demo::copy_contender(session, work)});
}

}  // namespace bias_relu

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "9_bias_relu",
        .summary = "relu(x + b): a broadcast, and what a remainder per element costs",
        .types = {{"fp32", bias_relu::run<float>}, {"fp16", bias_relu::run<half>}},
        .any_shape = true,
        .options = {{.name = "--in-place", .help = "the result replaces x"}},
        .sizes = {4096, 8192, 16384}};
    return demo::main_of(program, argc, argv);
}
