// Lesson 5's kernels, and its two ways to combine them with the library's gemms. They stand here
// because 6_gating_fused and the gating bonuses run them too.
#pragma once

#include <memory>

#include "demo.cuh"
#include "demo/choose.cuh"
#include "demo/cublaslt.cuh"
#include "gating/gating.cuh"

namespace gating_unfused {

// --- The elementwise kernels: 16 bytes, 8 numbers, per thread; 32 rows x 64 columns per block ----

struct alignas(16) Half8 {
    half v[8];
};
constexpr int kRows = 32, kColumns = 64;

__device__ float logistic(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
__device__ Half8 load(const half* from) { return *reinterpret_cast<const Half8*>(from); }
__device__ void store(half* to, Half8 value) { *reinterpret_cast<Half8*>(to) = value; }

/// Calls f(row, col) where this thread has elements [row, col .. col + 7] of M x H.
template <class F>
__device__ void for_my_elements(size_t M, size_t H, F f) {
    const size_t row = size_t(blockIdx.x) * kRows + threadIdx.y;
    // In 32 bits: in 64 the compiler does not see a multiple of 8, and stores 4 bytes at a time.
    const size_t col = blockIdx.y * kColumns + threadIdx.x * 8;
    if (row < M && col < H) f(row, col);
}

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

// --- Calling them --------------------------------------------------------------------------------

/// Copies two row-major matrices of `columns` columns into one of twice as many: [first | second].
inline void place_side_by_side(half* to, const half* first, const half* second, size_t rows,
                               size_t columns) {
    const size_t row = columns * sizeof(half);  // bytes
    for (const half* from : {first, second}) {
        DEMO_CHECK(cudaMemcpy2D(to, 2 * row, from, row, row, rows, cudaMemcpyDeviceToDevice));
        to += columns;
    }
}

/// Both ways, with their temporary memory. Must not outlive `gating`.
class Unfused {
  public:
    using Gemm = demo::LtGemm<half>;
    explicit Unfused(const demo::Gating& gating)
        : g(gating), t_(2 * M, H), W_(2 * K, H), b_(2 * H) {}

    /// What a framework launches for the formula, line by line; t1, t2, out: [M, H].
    void six_kernels(const Gemm& gemm1, const Gemm& gemm2) const {
        half *const t1 = t_.data(), *const t2 = t1 + M * H, *const out = g.out;
        gemm1();                                         // t1 = x W1
        add_bias<<<grid, block>>>(t1, g.b1, t2, M, H);   // t2 = t1 + b1
        sigmoid<<<grid, block>>>(t2, t1, M, H);          // t1 = sigmoid(t2)
        gemm2();                                         // t2 = x W2
        add_bias<<<grid, block>>>(t2, g.b2, out, M, H);  // out = t2 + b2
        multiply<<<grid, block>>>(t1, out, out, M, H);   // out = t1 * out
    }

    /// The same for Session::run(). `setup` prepares the gemms, once.
    demo::Contender six_kernels() const {
        const size_t gemm = M * K + K * H + M * H, add = 2 * M * H + H;  // elements moved
        auto setup = [this](demo::Contender& self) {
            half* const t = t_.data();
            const auto gemm1 = gemm_of(g.W1, nullptr, t), gemm2 = gemm_of(g.W2, nullptr, t + M * H);
            self.launch = [=, this] { six_kernels(*gemm1, *gemm2); };
        };
        return {.kernel = "six_kernels",
                .role = demo::Role::kChain,
                .setup = setup,
                .check = g.check({.product = true, .sum = true, .gate = true}),
                .launches = 6,
                .repeatable = false,  // cuBLASLt chooses
                .temporary_bytes = t_.bytes(),
                .moved_bytes = sizeof(half) * (2 * gemm + 2 * add + 2 * M * H + 3 * M * H)};
    }

    /// The fastest that the library can do: two gemms that add the bias, or one over [W1 | W2].
    demo::Contender library_best() const {
        auto setup = [this](demo::Contender& self) {
            half* const t = t_.data();
            pack();
            const auto gemm1 = gemm_of(g.W1, g.b1, t), gemm2 = gemm_of(g.W2, g.b2, t + M * H);
            const auto gemm = gemm_of(W_.data(), b_.data(), t, 2);
            const std::function<void()> two_gemms = [=, this] {
                (*gemm1)(), (*gemm2)();  // t = x W1 + b1, and below it x W2 + b2
                sigmoid_multiply<<<grid, block>>>(t, t + M * H, H, g.out, M, H);
            };
            const std::function<void()> packed_gemm = [=, this] {
                (*gemm)();  // t = x [W1 | W2] + [b1 | b2]: [M, 2 H]
                sigmoid_multiply<<<grid, block>>>(t, t + H, 2 * H, g.out, M, H);
            };
            const bool packed = demo::quick_time(packed_gemm) < demo::quick_time(two_gemms);
            const size_t gemms = (packed ? 1 : 2) * M * K + 2 * (K * H + M * H + H);
            self.launch = packed ? packed_gemm : two_gemms;
            self.launches = packed ? 2 : 3;
            self.moved_bytes = sizeof(half) * (gemms + 3 * M * H);
            self.note = packed ? "one packed gemm" : "two gemms";
        };
        return {.kernel = "library_best",
                .role = demo::Role::kLibrary,
                .setup = setup,
                .check = g.check({.sum = true}),
                .repeatable = false,
                .temporary_bytes = t_.bytes(),
                .renew = [this] { pack(); }};
    }

  private:
    /// Makes [W1 | W2] and [b1 | b2], as a layer would once, when it is loaded.
    void pack() const {
        place_side_by_side(W_.data(), g.W1, g.W2, K, H);  // [K, 2 H]
        place_side_by_side(b_.data(), g.b1, g.b2, 1, H);  // [2 H]
    }

    /// out = x W + b, for one or both of the weights' matrices; `b` may be null.
    std::shared_ptr<Gemm> gemm_of(const half* W, const half* b, half* out, int matrices = 1) const {
        const demo::LtProduct<half> product{g.x, W, out, M, K, matrices * H, b};
        return std::make_shared<Gemm>(library_, product);
    }

    const demo::Gating& g;
    const size_t M = g.shape.M, K = g.shape.K, H = g.shape.H;
    const dim3 block{kColumns / 8, kRows};
    const dim3 grid{unsigned((M + kRows - 1) / kRows), unsigned((H + kColumns - 1) / kColumns)};
    const demo::CublasLt library_;
    const demo::Buffer<half> t_, W_, b_;  // between the launches; both weights, both biases
};

}  // namespace gating_unfused
