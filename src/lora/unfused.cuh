// Belongs to lesson 11, 11_lora: the library's gemms, and a kernel for each operation they leave.
#pragma once

#include <cuda_fp16.h>

#include "demo/choose.cuh"
#include "demo/graph.cuh"
#include "lora/lora.cuh"

namespace lora {

// One thread per element of a matrix, as in lesson 9.
__global__ void scale(float s, const half* v, half* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = __float2half(s * __half2float(v[i]));
}

/// out = t + v, where v[period] begins anew whenever it ends: a matrix, or a bias.
__global__ void add(const half* t, const half* v, half* out, size_t size, size_t period) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = __float2half(__half2float(t[i]) + __half2float(v[i % period]));
}

template <class Activation>
__global__ void activate(const half* t, half* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = __float2half(Activation::of(__half2float(t[i])));
}

}  // namespace lora

namespace demo {

/// Line by line, and in the library's fewest calls; with temporary memory. Must not outlive `lora`.
template <class Activation>
class LoraByLibrary {
  public:
    explicit LoraByLibrary(const Lora& lora) : l(lora), t_(M * N), v_(M * N), u_(M * r) {}

    /// What a framework launches for the formula, line by line.
    Contender chain() const {
        auto setup = [this](Contender& self) {
            half *const t = t_.data(), *const v = v_.data(), *const u = u_.data();
            const auto xW = gemm({l.x, l.W, t, M, N, N}), xA = thin_gemm(1);
            const auto uB = gemm({u, l.B, v, M, r, N});
            self.launch = [=, this] {
                (*xW)(), (*xA)(), (*uB)();                          // t = x W, u = x A, v = u B
                lora::scale<<<blocks, 256>>>(l.s, v, v, M * N);     // v = s v
                lora::add<<<blocks, 256>>>(t, v, t, M * N, M * N);  // t = t + v
                lora::add<<<blocks, 256>>>(t, l.b, kNone ? l.out : t, M * N, N);  // t = t + b
                if (!kNone) lora::activate<Activation><<<blocks, 256>>>(t, l.out, M * N);
            };
        };
        return {.kernel = "chain",
                .role = Role::kChain,
                .setup = setup,
                .check = l.template check<Activation>(
                    {.product = true, .update = true, .sum = true, .total = !kNone}),
                .launches = kNone ? 6u : 7u,
                .repeatable = false,  // cuBLASLt chooses
                .temporary_bytes = t_.bytes() + v_.bytes() + u_.bytes(),
                .moved_bytes = gemms() + sizeof(half) * ((kNone ? 7 : 9) * M * N + N)};
    }

    /// The fastest that the library can do: the bias, the sum and the activation are epilogues.
    /// (For some sizes cuBLASLt itself splits this: it stores the sum as fp16, and a second kernel
    /// activates it. Where rows do not begin at multiples of 16 bytes, likewise for the bias.)
    Contender library_best() const {
        auto setup = [this](Contender& self) {
            half* const u = u_.data();
            const auto xA = thin_gemm(1), xW = gemm({l.x, l.W, l.out, M, N, N, l.b});
            const auto rest = gemm({.x = u,
                                    .W = l.B,
                                    .out = l.out,
                                    .M = M,
                                    .K = r,
                                    .N = N,
                                    .activation = Activation::kEpilogue,
                                    .scale = l.s,
                                    .add = true});
            auto enqueue = [=, this](cudaStream_t stream) {
                (*xA)(stream), (*xW)(stream), (*rest)(stream);
                if (kOurs)
                    lora::activate<Activation><<<blocks, 256, 0, stream>>>(l.out, l.out, M * N);
            };
            const std::function<void()> launches = [=] { enqueue(nullptr); };
            const auto graph = std::make_shared<const Graph>(enqueue);
            const std::function<void()> as_graph = [graph] { (*graph)(); };
            const bool faster = quick_time(as_graph) < quick_time(launches);
            self.launch = faster ? as_graph : launches;
            self.note = faster ? "a CUDA graph" : "one launch after the other";
        };
        return {.kernel = "library_best",
                .role = Role::kLibrary,
                .setup = setup,
                .check = l.template check<Activation>(
                    {.product = N % 8 != 0, .based = true, .total = !kNone}),
                .launches = kOurs ? 4u : 3u,
                .repeatable = false,
                .temporary_bytes = u_.bytes(),
                .moved_bytes = gemms() + sizeof(half) * ((kOurs ? 3 : 1) * M * N + N)};
    }

    /// u = scale x A
    auto thin_gemm(float scale) const {
        return gemm({.x = l.x, .W = l.A, .out = u(), .M = M, .K = N, .N = r, .scale = scale});
    }
    half* u() const { return u_.data(); }
    size_t u_bytes() const { return u_.bytes(); }

  private:
    static constexpr bool kNone = std::is_same_v<Activation, None>;
    static constexpr bool kOurs = std::is_same_v<Activation, Sigmoid>;  // no epilogue for it

    std::shared_ptr<LtGemm<half>> gemm(const LtProduct<half>& product) const {
        return std::make_shared<LtGemm<half>>(library_, product);
    }
    /// What three gemms move: x W, x A and u B.
    size_t gemms() const { return sizeof(half) * (4 * M * N + N * N + 2 * r * N + 2 * M * r); }

    const Lora& l;
    const size_t M = l.shape.M, N = l.shape.N, r = l.shape.rank, blocks = (M * N + 255) / 256;
    const CublasLt library_;
    const Buffer<half> t_, v_, u_;
};

}  // namespace demo
