// The MLP's layers as separate launches: what frameworks and libraries make of them.
#pragma once

#include <memory>

#include "demo/choose.cuh"
#include "demo/cublaslt.cuh"
#include "demo/graph.cuh"
#include "mlp/mlp.cuh"
#include "ptx.cuh"
#include "rows/rows.cuh"

namespace mlp {

/// v (1 + tanh(0.79788456 (v + 0.044715 v^3))) / 2: tanh is one instruction.
__device__ float gelu_of(float v) {
    const float t = ptx::tanh_approx(v * (0.79788456f + 0.035677408f * v * v));
    return 0.5f * v + 0.5f * v * t;
}

using demo::Vector;  // 16 bytes, 8 numbers

__global__ void gelu(const Vector<half>* v, Vector<half>* h, size_t vectors) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    Vector<half> numbers = v[i];
    for (half& number : numbers.at) number = __float2half(gelu_of(__half2float(number)));
    h[i] = numbers;
}

}  // namespace mlp

namespace demo {

/// The layers as separate launches, with the temporary memory between them. Must not outlive `m`.
class UnfusedMlp {
  public:
    explicit UnfusedMlp(const Mlp& m) : m(m), t_(N, D) {}

    /// As a framework runs it eagerly: per layer a gemm that adds the bias, then a gelu.
    Contender chain() const {
        return {.kernel = "chain",
                .role = Role::kChain,
                .setup = [this](auto& self) { self.launch = [f = chain_calls()] { f(nullptr); }; },
                .check = m.check(true),
                .launches = 2 * L,
                .repeatable = false,  // cuBLASLt chooses
                .temporary_bytes = t_.bytes(),
                .moved_bytes = L * (gemm_bytes() + 2 * t_.bytes())};
    }

    /// The library's gemm applies gelu as well before it stores: one launch per layer.
    Contender library_best() const {
        return {.kernel = "library_best",
                .role = Role::kLibrary,
                .setup = [this](auto& self) { self.launch = [f = gemm_calls()] { f(nullptr); }; },
                .check = m.check(false),
                .launches = L,
                .repeatable = false,
                .temporary_bytes = L > 1 ? t_.bytes() : 0,
                .moved_bytes = L * gemm_bytes()};
    }

    /// The faster of the two as a CUDA graph: the host hands over all launches as one.
    Contender graph(const Options& options) const {
        Contender graph = library_best();
        graph.kernel = "graph", graph.note = "of library_best";
        graph.setup = [this, &options](Contender& self) {
            auto best = std::make_shared<Graph>(gemm_calls());
            if (!options.once && !kSimulator) {
                const auto eager = std::make_shared<Graph>(chain_calls());
                if (quick_time([=] { (*eager)(); }) < quick_time([=] { (*best)(); })) {
                    const Contender other = chain();
                    best = eager, self.note = "of chain", self.check = other.check;
                    self.launches = other.launches, self.moved_bytes = other.moved_bytes;
                    self.temporary_bytes = other.temporary_bytes;
                }
            }
            self.launch = [best] { (*best)(); };
        };
        return graph;
    }

  private:
    using Calls = std::function<void(cudaStream_t)>;  // enqueues them

    Calls chain_calls() const {
        std::vector<std::shared_ptr<Gemm>> gemms;
        const half* h = m.x;
        for (size_t l = 0; l < L; ++l, h = m.out) gemms.push_back(gemm_of(l, h, t_.data(), false));
        const auto t = reinterpret_cast<const Vector<half>*>(t_.data());
        const auto next = reinterpret_cast<Vector<half>*>(m.out.data());
        const size_t vectors = N * D / Vector<half>::kSize;  // D is a multiple of 16
        return [=, this](cudaStream_t stream) {
            for (size_t l = 0; l < L; ++l) {
                (*gemms[l])(stream);  // t = h W + b
                mlp::gelu<<<(vectors + 255) / 256, 256, 0, stream>>>(t, next, vectors);
            }
        };
    }
    Calls gemm_calls() const {
        std::vector<std::shared_ptr<Gemm>> gemms;
        const half* h = m.x;
        for (size_t l = 0; l < L; ++l) {
            half* const next = (L - l) % 2 ? m.out.data() : t_.data();  // the last: out
            gemms.push_back(gemm_of(l, h, next, true));
            h = next;
        }
        return [=](cudaStream_t stream) {
            for (const auto& gemm : gemms) (*gemm)(stream);
        };
    }

    using Gemm = LtGemm<half>;
    std::shared_ptr<Gemm> gemm_of(size_t l, const half* h, half* next, bool gelu) const {
        LtProduct<half> product{h, m.weights(l), next, N, D, D, m.biases(l)};
        if (gelu) product.activation = CUBLASLT_EPILOGUE_GELU;
        return std::make_shared<Gemm>(library_, product);
    }
    size_t gemm_bytes() const { return sizeof(half) * (2 * N * D + D * D + D); }

    const Mlp& m;
    const size_t N = m.shape.N, D = m.shape.D, L = m.shape.L;
    const CublasLt library_;
    const Buffer<half> t_;
};

}  // namespace demo
