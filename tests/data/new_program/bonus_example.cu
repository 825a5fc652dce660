// Bonus: a program in two files, to begin a new one with: out = relu(a x + y) of two matrices.
//
// chain   two kernels: a x + y goes to memory, in fp32, and comes back. 5 MN of M x N elements.
// fused   one kernel: what is between stays in a register. 3 MN.
// What limits both is memory; at the speed of a copy: 7_gelu. README.md beside it says what to do.
#include "demo.cuh"
#include "rows/rows.cuh"

constexpr float kA = 1.3f;
constexpr int kThreads = 256;

template <class T>
__global__ void add(const T* x, const T* y, float* sums, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) sums[i] = kA * float(x[i]) + float(y[i]);
}

template <class T>
__global__ void relu(const float* sums, T* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(sums[i] < 0 ? 0 : sums[i]);
}

template <class T>
__global__ void fused(const T* x, const T* y, T* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const float sum = i < size ? kA * float(x[i]) + float(y[i]) : 0;
    if (i < size) out[i] = T(sum < 0 ? 0 : sum);
}

template <class T>  // the right result, in double, and how far from it a kernel's may lie
struct Expect {
    const T *x, *y;  // [rows, cols] row-major
    size_t cols;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double a_x = kA * double(float(x[row * cols + col])), yi = float(y[row * cols + col]);
        const double error = 0x1p-23 * (fabs(a_x) + fabs(yi));  // two roundings
        return demo::expect_activation<demo::ExactRelu>(a_x + yi, error, demo::kFormat<T>);
    }
};

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t size = shape.size(), blocks = (size + kThreads - 1) / kThreads;
    const demo::Fill random{.hard = demo::kHardRows<T>};
    const demo::Input<T> x(session, "x", shape, random), y(session, "y", shape, random);
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<float> sums(size);
    auto chain = [&] {
        add<T><<<blocks, kThreads>>>(x, y, sums.data(), size);
        relu<T><<<blocks, kThreads>>>(sums.data(), out, size);
    };
    auto fuse = [&] { fused<T><<<blocks, kThreads>>>(x, y, out, size); };
    session.run(shape.workload(session, 3), out.check(Expect<T>{x, y, shape.cols}),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch = chain,
                  .launches = 2,
                  .temporary_bytes = sums.bytes(),
                  .moved_bytes = 3 * x.bytes() + 2 * sums.bytes()},
                 {.kernel = "fused", .launch = fuse, .moved_bytes = 3 * x.bytes()}});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_example",
                                .summary = "relu(a x + y): two kernels, or one",
                                .types = {{"fp32", run<float>}, {"fp16", run<half>}},
                                .any_shape = true};
    return demo::main_of(program, argc, argv);
}
