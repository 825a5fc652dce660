// 5: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), as separate kernels.
//
// Each matmul is the library's, as fast as it gets. But a kernel ends by writing its result to
// global memory, and the next one begins by reading it again:
//
//      x, W1 -> [gemm] -> t1 -> [add b1] -> t2 -> [sigmoid] -> t1 -----------+
//                                                                            v
//      x, W2 -> [gemm] -> t2 -> [add b2] -> out -------------------> [multiply] -> out
//
// Every arrow is a trip of M x H numbers through global memory. The three kernels behind each gemm
// do almost no arithmetic: their time is the traffic.
//
// six_kernels   the picture above: what a framework launches for this formula, line by line.
// library_best  what the library can do about it. Its gemm can add the bias before it writes, and
//               one gemm over [W1 | W2], packed side by side beforehand, reads x only once. We time
//               two gemms with bias against one packed gemm with bias and keep the faster. The
//               sigmoid and the product need a kernel of their own in any case: no library call
//               takes two products and multiplies them. 6_gating_fused does.
#include <cublasLt.h>

#include "demo.cuh"
#include "demo/choose.cuh"
#include "demo/cublas.cuh"
#include "demo/gating.cuh"

namespace gating_unfused {

// The elementwise kernels move 16 bytes at a time: 8 numbers. A block covers 32 rows x 64 columns.
struct alignas(16) Half8 {
    half v[8];
};
constexpr int kRows = 32, kColumns = 64;
dim3 block() { return dim3(kColumns / 8, kRows); }
dim3 grid(size_t M, size_t H) {
    return dim3((M + kRows - 1) / kRows, (H + kColumns - 1) / kColumns);
}

__device__ float logistic(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }

/// Calls f(row, column) where this thread has elements [row, column .. column + 7] of M x H.
template <class F>
__device__ void for_my_elements(size_t M, size_t H, F f) {
    const size_t row = size_t(blockIdx.x) * kRows + threadIdx.y;
    const size_t col = size_t(blockIdx.y) * kColumns + threadIdx.x * 8;
    if (row < M && col < H) f(row, col);
}
__device__ Half8 load(const half* from) { return *reinterpret_cast<const Half8*>(from); }
__device__ void store(half* to, Half8 value) { *reinterpret_cast<Half8*>(to) = value; }

__global__ void add_bias(const half* in,  // [M, H] row-major
                         const half* b,   // [H]
                         half* out,       // [M, H] row-major
                         size_t M, size_t H) {
    for_my_elements(M, H, [&](size_t row, size_t col) {
        Half8 v = load(&in[row * H + col]), bias = load(&b[col]);
        for (int i = 0; i < 8; ++i) v.v[i] = __hadd(v.v[i], bias.v[i]);
        store(&out[row * H + col], v);
    });
}

__global__ void sigmoid(const half* in,  // [M, H] row-major
                        half* out,       // [M, H] row-major
                        size_t M, size_t H) {
    for_my_elements(M, H, [&](size_t row, size_t col) {
        Half8 v = load(&in[row * H + col]);
        for (int i = 0; i < 8; ++i) v.v[i] = __float2half(logistic(__half2float(v.v[i])));
        store(&out[row * H + col], v);
    });
}

__global__ void multiply(const half* a,  // [M, H] row-major
                         const half* b,  // [M, H] row-major
                         half* out,      // [M, H] row-major, may be a or b
                         size_t M, size_t H) {
    for_my_elements(M, H, [&](size_t row, size_t col) {
        Half8 v = load(&a[row * H + col]), w = load(&b[row * H + col]);
        for (int i = 0; i < 8; ++i) v.v[i] = __hmul(v.v[i], w.v[i]);
        store(&out[row * H + col], v);
    });
}

__global__ void sigmoid_multiply(const half* v1,  // [M, H], rows `pitch` elements apart
                                 const half* v2,  // [M, H], likewise
                                 size_t pitch,
                                 half* out,  // [M, H] row-major
                                 size_t M, size_t H) {
    for_my_elements(M, H, [&](size_t row, size_t col) {
        Half8 v = load(&v1[row * pitch + col]), w = load(&v2[row * pitch + col]);
        for (int i = 0; i < 8; ++i)
            v.v[i] = __float2half(logistic(__half2float(v.v[i])) * __half2float(w.v[i]));
        store(&out[row * H + col], v);
    });
}

/// A cuBLASLt handle with its workspace. cuBLASLt is cuBLAS with more to say: it can add a bias
/// before it stores, and it lists several algorithms for one problem.
struct Library {
    cublasLtHandle_t handle;
    demo::Buffer<char> workspace{demo::kCublasWorkspace};
    Library() { DEMO_CHECK(cublasLtCreate(&handle)); }
    ~Library() { cublasLtDestroy(handle); }
};

/// out[M, N] = x[M, K] W[K, N] (+ bias[N]) by cuBLASLt, all row-major fp16 (or bfloat16), summed in
/// fp32. As in 4_matmul_cublas, the library sees column-major matrices: out^T = W^T x^T. Of the
/// algorithms that it proposes the constructor keeps the one that proves fastest.
template <class T>
class GemmOf {
  public:
    GemmOf(const Library& library, const T* x, const T* W, const T* bias, T* out, size_t M,
           size_t K, size_t N)
        : library_(library), x_(x), W_(W), out_(out) {
        DEMO_CHECK(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        const cudaDataType type = std::is_same_v<T, half> ? CUDA_R_16F : CUDA_R_16BF;
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_W_, type, N, K, N));
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_x_, type, K, M, K));
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_out_, type, N, M, N));
        if (bias) {
            const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                      &epilogue, sizeof epilogue));
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                      &bias, sizeof bias));
        }
        const size_t workspace = library.workspace.bytes();
        cublasLtMatmulPreference_t preference;
        DEMO_CHECK(cublasLtMatmulPreferenceCreate(&preference));
        DEMO_CHECK(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
        cublasLtMatmulHeuristicResult_t proposals[8];
        int count = 0;
        DEMO_CHECK(cublasLtMatmulAlgoGetHeuristic(library.handle, operation_, layout_W_, layout_x_,
                                                  layout_out_, layout_out_, preference, 8,
                                                  proposals, &count));
        DEMO_CHECK(cublasLtMatmulPreferenceDestroy(preference));

        double best = 0;
        for (int i = 0; i < count; ++i) {
            if (multiply(proposals[i].algo) != CUBLAS_STATUS_SUCCESS) continue;
            const double ms = demo::quick_time([&] { multiply(proposals[i].algo); });
            if (best == 0 || ms < best) best = ms, algorithm_ = proposals[i].algo;
        }
        if (best == 0) DEMO_CHECK(CUBLAS_STATUS_NOT_SUPPORTED);
    }
    ~GemmOf() {
        cublasLtMatrixLayoutDestroy(layout_W_);
        cublasLtMatrixLayoutDestroy(layout_x_);
        cublasLtMatrixLayoutDestroy(layout_out_);
        cublasLtMatmulDescDestroy(operation_);
    }
    GemmOf(const GemmOf&) = delete;

    void operator()() const { DEMO_CHECK(multiply(algorithm_)); }

  private:
    cublasStatus_t multiply(const cublasLtMatmulAlgo_t& algorithm) const {
        const float alpha = 1, beta = 0;
        return cublasLtMatmul(library_.handle, operation_, &alpha, W_, layout_W_, x_, layout_x_,
                              &beta, out_, layout_out_, out_, layout_out_, &algorithm,
                              library_.workspace.data(), library_.workspace.bytes(), nullptr);
    }

    const Library& library_;
    const T *x_, *W_;
    T* out_;
    cublasLtMatmulDesc_t operation_;
    cublasLtMatrixLayout_t layout_W_, layout_x_, layout_out_;
    cublasLtMatmulAlgo_t algorithm_;
};
using Gemm = GemmOf<half>;

/// Gating as six kernels. `t`: temporary memory, 2 M H elements.
class SixKernels {
  public:
    SixKernels(const demo::Gating& g, const Library& library, half* t)
        : g_(g),
          t1_(t),
          t2_(t + g.out.size()),
          gemm1_(library, g.x.data(), g.W1.data(), nullptr, t1_, g.shape.M, g.shape.K, g.shape.H),
          gemm2_(library, g.x.data(), g.W2.data(), nullptr, t2_, g.shape.M, g.shape.K, g.shape.H) {}

    void operator()() const {
        const auto [M, K, H, name, size] = g_.shape;
        half* const out = g_.out.data();
        gemm1_();                                                         // t1 = x W1
        add_bias<<<grid(M, H), block()>>>(t1_, g_.b1.data(), t2_, M, H);  // t2 = t1 + b1
        sigmoid<<<grid(M, H), block()>>>(t2_, t1_, M, H);                 // t1 = sigmoid(t2)
        gemm2_();                                                         // t2 = x W2
        add_bias<<<grid(M, H), block()>>>(t2_, g_.b2.data(), out, M, H);  // out = t2 + b2
        multiply<<<grid(M, H), block()>>>(t1_, out, out, M, H);           // out = t1 * out
    }

    demo::Contender contender() const {
        const auto [M, K, H, name, size] = g_.shape;
        const size_t gemm = M * K + K * H + M * H, add = 2 * M * H + H;
        return {.kernel = "six_kernels",
                .check = g_.check({.product = true, .sum = true, .gate = true}),
                .launch = [this] { (*this)(); },
                .launches = 6,
                .temporary_bytes = 2 * (2 * M * H),
                .moved_bytes = 2 * (2 * gemm + 2 * add + 2 * M * H + 3 * M * H)};
    }

  private:
    const demo::Gating& g_;
    half *t1_, *t2_;  // [M, H] row-major
    Gemm gemm1_, gemm2_;
};

/// Two row-major matrices of `columns` columns as one of twice as many: [first | second].
struct SideBySide : demo::Buffer<half> {
    SideBySide(const Buffer<half>& first, const Buffer<half>& second, size_t columns)
        : Buffer<half>(first.size() + second.size()) {
        const size_t row = columns * sizeof(half);  // bytes
        half* to = data();
        for (const half* from : {first.data(), second.data()}) {
            DEMO_CHECK(cudaMemcpy2D(to, 2 * row, from, row, row, first.size() / columns,
                                    cudaMemcpyDeviceToDevice));
            to += columns;
        }
    }
};

/// Gating as the library does it best. `t`: temporary memory, 2 M H elements.
class LibraryBest {
  public:
    LibraryBest(const demo::Gating& g, const Library& library, half* t)
        : g_(g),
          t_(t),
          W_(g.W1, g.W2, g.shape.H),
          b_(g.b1, g.b2, g.shape.H),
          gemm1_(library, g.x.data(), g.W1.data(), g.b1.data(), t, g.shape.M, g.shape.K, g.shape.H),
          gemm2_(library, g.x.data(), g.W2.data(), g.b2.data(), t + g.out.size(), g.shape.M,
                 g.shape.K, g.shape.H),
          packed_gemm_(library, g.x.data(), W_.data(), b_.data(), t, g.shape.M, g.shape.K,
                       2 * g.shape.H) {
        packed_ =
            demo::quick_time([&] { one_packed_gemm(); }) < demo::quick_time([&] { two_gemms(); });
    }

    void two_gemms() const {
        const auto [M, K, H, name, size] = g_.shape;
        gemm1_();  // t[0] = x W1 + b1: [M, H]
        gemm2_();  // t[1] = x W2 + b2: [M, H]
        sigmoid_multiply<<<grid(M, H), block()>>>(t_, t_ + M * H, H, g_.out.data(), M, H);
    }

    void one_packed_gemm() const {
        const auto [M, K, H, name, size] = g_.shape;
        packed_gemm_();  // t = x [W1 | W2] + [b1 | b2]: [M, 2 H]
        sigmoid_multiply<<<grid(M, H), block()>>>(t_, t_ + H, 2 * H, g_.out.data(), M, H);
    }

    demo::Contender contender() const {
        const auto [M, K, H, name, size] = g_.shape;
        const size_t gemms =
            packed_ ? M * K + 2 * K * H + 2 * M * H + 2 * H : 2 * (M * K + K * H + M * H + H);
        return {.kernel = "library_best",
                .check = g_.check({.sum = true}),
                .launch = [this] { packed_ ? one_packed_gemm() : two_gemms(); },
                .launches = packed_ ? 2u : 3u,
                .temporary_bytes = 2 * (2 * M * H),
                .moved_bytes = 2 * (gemms + 3 * M * H),
                .note = packed_ ? "one packed gemm" : "two gemms"};
    }

  private:
    const demo::Gating& g_;
    half* t_;
    SideBySide W_, b_;  // [W1 | W2]: [K, 2 H] row-major; [b1 | b2]: [2 H]
    Gemm gemm1_, gemm2_, packed_gemm_;
    bool packed_;
};

/// Both ways, with the memory they share.
struct Unfused {
    Library library;
    demo::Buffer<half> temporary;
    SixKernels six_kernels;
    LibraryBest library_best;

    explicit Unfused(const demo::Gating& g)
        : temporary(2 * g.out.size()),
          six_kernels(g, library, temporary.data()),
          library_best(g, library, temporary.data()) {}

    /// Device memory beside Gating's, in bytes; saturates.
    static size_t bytes(const demo::GatingShape& shape) {
        return demo::saturating_sum(demo::saturating_product(4, shape.M, shape.H),
                                    demo::saturating_product(4, shape.K, shape.H), 4 * shape.H,
                                    demo::kCublasWorkspace);
    }
};

/// Device memory to measure both ways, and a fused kernel beside them, in bytes; saturates.
inline size_t bytes_needed(const demo::GatingShape& shape, const demo::Gpu& gpu) {
    return demo::saturating_sum(shape.bytes(), Unfused::bytes(shape), gpu.flush_bytes());
}

}  // namespace gating_unfused

#ifndef GATING_UNFUSED_NO_MAIN

int main(int argc, char** argv) {
    const demo::Options options =
        demo::parse_command_line(argc, argv,
                                 {.name = "5_gating_unfused",
                                  .summary = "sigmoid(x W1 + b1) * (x W2 + b2) as library calls",
                                  .kernels = {"six_kernels", "library_best"},
                                  .talk = true});
    const demo::Gpu gpu(options);
    demo::require_memory(options, [&](size_t size) {
        return gating_unfused::bytes_needed(demo::GatingShape::of(options, size), gpu);
    });
    const auto shape = demo::GatingShape::of(options);
    demo::Report report(options, gpu, shape.text());

    const demo::Gating gating(shape, options.seed);
    const gating_unfused::Unfused unfused(gating);
    report.run(shape.workload(),
               {unfused.six_kernels.contender(), unfused.library_best.contender()});
    return report.exit_code();
}

#endif
