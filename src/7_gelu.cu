// 7: GELU, out = 0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))), on every element of a matrix.
//
// Hardly any arithmetic: the cost is the road between warehouse (global memory) and factory (the
// multiprocessors). The least traffic is x once in and out once back: 2 MN for M x N elements.
//
// chain             as a framework runs it eagerly, a kernel for every operation of the formula.
//                   Each ships its whole input in and its whole result out again:
//
//                       t = x x      t = t x      t = 0.044715 t    ...    out = 0.5 t
//                       2 MN         3 MN         2 MN                     2 MN      21 MN in all
//
// fused             one kernel, one thread per element: 2 MN. Everything in between stays in
//                   registers. This is most of the gain.
// fused_vectorized  the same, 16 bytes per thread. An H200's memory brings each multiprocessor
//                   some 20 bytes a clock, 500 to 800 clocks after it asked: to keep the road full,
//                   it must have asked for 10 KB or more. It holds 2048 threads. If each asks for
//                   16 bytes, that is 32 KB; for 4 bytes 8 KB, for 2 bytes 4 KB.
//
//     ./7_gelu 8192        ./7_gelu 8192 --dtype fp16
//
// What limits it: memory. Compare with "copy", a kernel that loads and stores and does nothing
// else: at its speed the arithmetic is free. 8_softmax is next, where elements need each other.
// H200, N = 4096, ms: chain 0.510, fused 0.0580, fused_vectorized 0.0351 (docs/figures.md)
#include "demo.cuh"
#include "demo/copy.cuh"
#include "ptx.cuh"
#include "rows/expect_gelu.cuh"
#include "rows/rows.cuh"

namespace gelu {

/// The operation on the CPU: out[size] = gelu(x[size]).
inline void on_cpu(const float* x, float* out, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        const double v = x[i];
        out[i] = float(0.5 * v * (1 + std::tanh(0.79788456 * (v + 0.044715 * v * v * v))));
    }
}

// --- The function -------------------------------------------------------------------------------

/// 0.5 (1 + tanh(a)) = 1 / (1 + e^-2a): one exponential and one division. It is right at both ends,
/// where e^-2a is 0 or infinity and the quotient 1 or 0. The textbook's tanh(a) = (e^2a - 1) /
/// (e^2a + 1) is not: beyond x = 10 it is infinity / infinity, NaN.
__device__ float gelu_of(float x) {
    const float a = 0.79788456f * (x + 0.044715f * x * x * x);
    const float gate = __fdividef(1.0f, 1.0f + __expf(-2.0f * a));
    // gelu(-infinity) is 0, but -infinity times 0 would be NaN, as it is in the chain: so x is at
    // least the lowest finite number. (fmaxf drops a NaN, but `gate` is NaN then, too.)
    return fmaxf(x, -3.4028235e38f) * gate;
}

// --- One kernel per operation -------------------------------------------------------------------

// A kernel takes one of these as a template parameter, and the compiler inlines its function. (A
// pointer to a function would cost a call for each element.)
struct Add {
    static __device__ float of(float a, float b) { return a + b; }
};
struct Multiply {
    static __device__ float of(float a, float b) { return a * b; }
};
struct Tanh {
    static __device__ float of(float a, float) { return tanhf(a); }
};

/// out = a Operation b, with a number for b.
template <class Operation, class T>
__global__ void with_number(const T* a, float b, T* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(Operation::of(float(a[i]), b));
}

/// out = a Operation b, with a matrix for b.
template <class Operation, class T>
__global__ void with_matrix(const T* a, const T* b, T* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(Operation::of(float(a[i]), float(b[i])));
}

constexpr int kThreads = 256;         // of a block
constexpr size_t kOperations = 9;     // in the formula, so kernels in the chain
constexpr size_t kChainTraffic = 21;  // matrices that the chain reads and writes

/// Kernels run in the order of their launches, each after the one before has finished. Results
/// alternate between `out` and `temporary`: a framework's operations do not overwrite their input.
template <class T>
void chain(const T* x, T* temporary, T* out, size_t size) {
    const size_t blocks = (size + kThreads - 1) / kThreads;
    T *const t1 = out, *const t2 = temporary;
    with_matrix<Multiply><<<blocks, kThreads>>>(x, x, t1, size);   // x^2
    with_matrix<Multiply><<<blocks, kThreads>>>(t1, x, t2, size);  // x^3
    with_number<Multiply><<<blocks, kThreads>>>(t2, 0.044715f, t1, size);
    with_matrix<Add><<<blocks, kThreads>>>(t1, x, t2, size);  // x + 0.044715 x^3
    with_number<Multiply><<<blocks, kThreads>>>(t2, 0.79788456f, t1, size);
    with_number<Tanh><<<blocks, kThreads>>>(t1, 0, t2, size);  // tanh takes one number: not the 0
    with_number<Add><<<blocks, kThreads>>>(t2, 1, t1, size);
    with_matrix<Multiply><<<blocks, kThreads>>>(t1, x, t2, size);     // x (1 + tanh(...))
    with_number<Multiply><<<blocks, kThreads>>>(t2, 0.5f, t1, size);  // the ninth: in `out`
}

// --- One kernel for all -------------------------------------------------------------------------

template <class T>
__global__ void fused(const T* x, T* out, size_t size) {  // x, out: [size]
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(gelu_of(float(x[i])));
}

using demo::Vector;  // 16 bytes, the most that one thread can load or store at a time

template <class T>
__global__ void fused_vectorized(const T* x, T* out, size_t size) {  // x, out: [size]
    constexpr int kSize = Vector<T>::kSize;
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t vectors = size / kSize, rest = vectors * kSize + i;
    if (i < vectors) {
        // A load of 16 bytes. evict_last asks the L2 cache, which all multiprocessors share, to
        // keep x longest. Nothing reads x again, yet on an H200 it gains 1 to 2% (measured; the
        // cause is not established). The result is the same without it.
        Vector<T> values;
        ptx::ld_global_evict_last(values, reinterpret_cast<const Vector<T>*>(x) + i);
        for (T& value : values.at) value = T(gelu_of(float(value)));
        reinterpret_cast<Vector<T>*>(out)[i] = values;
    }
    // The elements after the last whole vector: the first threads compute one each.
    if (rest < size) out[rest] = T(gelu_of(float(x[rest])));
}

template <class T>
void launch_fused(const T* x, T* out, size_t size) {
    fused<<<(size + kThreads - 1) / kThreads, kThreads>>>(x, out, size);
}

/// Threads of a block. A small block soon makes room for the next, but only so many blocks can
/// start in a microsecond: bonus_waves --show block_sizes measures both.
constexpr int kVectorThreads = 128;

template <class T>
void launch_fused_vectorized(const T* x, T* out, size_t size) {
    const size_t full_blocks = size / (kVectorThreads * Vector<T>::kSize);
    fused_vectorized<<<full_blocks + 1, kVectorThreads>>>(x, out, size);  // + 1: the rest
}

// --- Running ------------------------------------------------------------------------------------

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t size = shape.size();
    const demo::Input<T> x(session, "x", shape,
                           {.scale = 6, .hard = demo::kHardRows<T>});  // GELU bends
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<T> temporary(size);
    auto expect = [&](bool chained) {
        return out.check(demo::ExpectGelu<T>{x, shape.cols, chained});
    };

    const size_t matrix = x.bytes();
    const demo::Workload work = shape.workload(session, kOperations);
    session.run(work, expect(false),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch = [&] { chain<T>(x, temporary.data(), out, size); },
                  .check = expect(true),
                  .launches = kOperations,
                  .temporary_bytes = matrix,
                  .moved_bytes = kChainTraffic * matrix},
                 {.kernel = "fused",
                  .launch = [&] { launch_fused<T>(x, out, size); },
                  .moved_bytes = 2 * matrix},
                 {.kernel = "fused_vectorized",
                  .launch = [&] { launch_fused_vectorized<T>(x, out, size); },
                  .moved_bytes = 2 * matrix},
                 demo::copy_contender(session, work)});
}

}  // namespace gelu

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "7_gelu",
        .summary = "GELU, which is all traffic: nine kernels, one, and one at the speed of a copy",
        .types = {{"fp32", gelu::run<float>}, {"fp16", gelu::run<half>}},
        .any_shape = true,
        .sizes = {4096, 8192, 16384}};
    return demo::main_of(program, argc, argv);
}
