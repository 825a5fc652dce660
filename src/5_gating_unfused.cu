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
#include <memory>

#include "demo.cuh"
#include "demo/choose.cuh"
#include "demo/cublaslt.cuh"
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

using Gemm = demo::LtGemm<half>;

/// Gating as six kernels. `t`: temporary memory, 2 M H elements.
class SixKernels {
  public:
    SixKernels(const demo::Gating& g, const demo::CublasLt& library, half* t)
        : g_(g),
          t1_(t),
          t2_(t + g.shape.M * g.shape.H),
          gemm1_(library, g.x, g.W1, nullptr, t1_, g.shape.M, g.shape.K, g.shape.H),
          gemm2_(library, g.x, g.W2, nullptr, t2_, g.shape.M, g.shape.K, g.shape.H) {}

    void operator()() const {
        const size_t M = g_.shape.M, H = g_.shape.H;
        half* const out = g_.out;
        gemm1_();                                                  // t1 = x W1
        add_bias<<<grid(M, H), block()>>>(t1_, g_.b1, t2_, M, H);  // t2 = t1 + b1
        sigmoid<<<grid(M, H), block()>>>(t2_, t1_, M, H);          // t1 = sigmoid(t2)
        gemm2_();                                                  // t2 = x W2
        add_bias<<<grid(M, H), block()>>>(t2_, g_.b2, out, M, H);  // out = t2 + b2
        multiply<<<grid(M, H), block()>>>(t1_, out, out, M, H);    // out = t1 * out
    }

  private:
    const demo::Gating& g_;
    half *t1_, *t2_;  // [M, H] row-major
    Gemm gemm1_, gemm2_;
};

/// Copies two row-major matrices of `columns` columns into one of twice as many: [first | second].
void pack(half* to, const half* first, const half* second, size_t rows, size_t columns) {
    const size_t row = columns * sizeof(half);  // bytes
    for (const half* from : {first, second}) {
        DEMO_CHECK(cudaMemcpy2D(to, 2 * row, from, row, row, rows, cudaMemcpyDeviceToDevice));
        to += columns;
    }
}

/// Gating as the library does it best. `t`: temporary memory, 2 M H elements; W[K, 2 H] and b[2 H]:
/// room for both weights and biases.
class LibraryBest {
  public:
    LibraryBest(const demo::Gating& g, const demo::CublasLt& library, half* t, half* W, half* b)
        : g_(g),
          t_(t),
          gemm1_(library, g.x, g.W1, g.b1, t, g.shape.M, g.shape.K, g.shape.H),
          gemm2_(library, g.x, g.W2, g.b2, t + g.shape.M * g.shape.H, g.shape.M, g.shape.K,
                 g.shape.H),
          packed_gemm_(library, g.x, W, b, t, g.shape.M, g.shape.K, 2 * g.shape.H) {
        pack(W, g.W1, g.W2, g.shape.K, g.shape.H);
        pack(b, g.b1, g.b2, 1, g.shape.H);
        packed_ =
            demo::quick_time([&] { one_packed_gemm(); }) < demo::quick_time([&] { two_gemms(); });
    }

    void operator()() const { packed_ ? one_packed_gemm() : two_gemms(); }
    bool packed() const { return packed_; }

  private:
    void two_gemms() const {
        const size_t M = g_.shape.M, H = g_.shape.H;
        gemm1_();  // t[0] = x W1 + b1: [M, H]
        gemm2_();  // t[1] = x W2 + b2: [M, H]
        sigmoid_multiply<<<grid(M, H), block()>>>(t_, t_ + M * H, H, g_.out, M, H);
    }

    void one_packed_gemm() const {
        const size_t M = g_.shape.M, H = g_.shape.H;
        packed_gemm_();  // t = x [W1 | W2] + [b1 | b2]: [M, 2 H]
        sigmoid_multiply<<<grid(M, H), block()>>>(t_, t_ + H, 2 * H, g_.out, M, H);
    }

    const demo::Gating& g_;
    half* t_;
    Gemm gemm1_, gemm2_, packed_gemm_;
    bool packed_;
};

/// Both ways, with the memory they share.
class Unfused {
  public:
    explicit Unfused(const demo::Gating& g)
        : g_(g),
          temporary_(2 * g.shape.M, g.shape.H),
          W_(2 * g.shape.K, g.shape.H),
          b_(2 * g.shape.H) {}

    demo::Contender six_kernels() const {
        const auto [M, K, H] = sizes();
        const size_t gemm = M * K + K * H + M * H, add = 2 * M * H + H;
        return {.kernel = "six_kernels",
                .role = demo::Role::kChain,
                .setup =
                    [this](demo::Contender& self) {
                        self.launch = [six = std::make_shared<SixKernels>(
                                           g_, library_, temporary_.data())] { (*six)(); };
                    },
                .check = g_.check({.product = true, .sum = true, .gate = true}),
                .launches = 6,
                .temporary_bytes = 2 * (2 * M * H),
                .moved_bytes = 2 * (2 * gemm + 2 * add + 2 * M * H + 3 * M * H)};
    }

    demo::Contender library_best() const {
        const auto [M, K, H] = sizes();
        return {.kernel = "library_best",
                .role = demo::Role::kLibrary,
                .setup =
                    [this, M, K, H](demo::Contender& self) {
                        const auto best = std::make_shared<LibraryBest>(
                            g_, library_, temporary_.data(), W_.data(), b_.data());
                        const bool packed = best->packed();
                        const size_t gemms = packed ? M * K + 2 * K * H + 2 * M * H + 2 * H
                                                    : 2 * (M * K + K * H + M * H + H);
                        self.launch = [best] { (*best)(); };
                        self.launches = packed ? 2 : 3;
                        self.moved_bytes = 2 * (gemms + 3 * M * H);
                        self.note = packed ? "one packed gemm" : "two gemms";
                    },
                .check = g_.check({.sum = true}),
                .temporary_bytes = 2 * (2 * M * H)};
    }

  private:
    struct Sizes {
        size_t M, K, H;
    };
    Sizes sizes() const { return {g_.shape.M, g_.shape.K, g_.shape.H}; }

    const demo::Gating& g_;
    demo::CublasLt library_;
    demo::Buffer<half> temporary_, W_, b_;
};

}  // namespace gating_unfused

#ifndef GATING_UNFUSED_NO_MAIN

static void run(demo::Session& session) {
    const demo::Gating gating(session);
    const gating_unfused::Unfused unfused(gating);
    session.run(gating.shape.workload(), {}, {unfused.six_kernels(), unfused.library_best()});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "5_gating_unfused",
                                .summary = "sigmoid(x W1 + b1) * (x W2 + b2) as library calls",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}

#endif
