// DLRM's two MLPs by the library, which is all that the demos do about them.
#pragma once

#include <memory>

#include "cublaslt.cuh"
#include "dlrm.cuh"

namespace demo {

/// v[i] = max(0, v[i]), in place; a NaN stays one. `size` is a multiple of 4, a thread has 4.
__global__ void relu_in_place(half* v, size_t size) {
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i >= size) return;
    struct alignas(8) Half4 {
        half at[4];
    };
    for (half& e : reinterpret_cast<Half4*>(&v[i])->at) e = float(e) < 0 ? half(0.0f) : e;
}
__global__ void sigmoid_in_place(half* v, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) v[i] = half(__fdividef(1.0f, 1.0f + __expf(-float(v[i]))));
}

/// Both MLPs: gemms that add the bias, then apply ReLU (`fused`); or a kernel for ReLU after each.
/// Must not outlive `model`.
class DlrmLayers {
  public:
    explicit DlrmLayers(const Dlrm& model)
        : m(model), a_(model.shape.N, 512), b_(model.shape.N, 256) {}

    /// Prepares the bottom MLP, into the rows of `to`, `pitch` elements apart.
    std::function<void()> bottom(half* to, size_t pitch, bool fused) const {
        half *const a = a_.data(), *const b = b_.data();
        const DlrmLayer* const l = m.bottom;
        return launch({product(m.x, l[0], a), product(a, l[1], b), product(b, l[2], a),
                       product(a, l[3], to, pitch)},
                      fused);
    }
    /// Prepares the top MLP, from features[N, K] with its first weights W[K, 512], or, where there
    /// are no features, from m.hidden on.
    std::function<void()> top(const half* features, const half* W, size_t K, bool fused) const {
        half *const hidden = m.hidden.data(), *const b = b_.data();
        std::vector<LtProduct<half>> products;
        if (features)
            products.push_back({features, W, hidden, m.shape.N, K, m.shape.kHidden, m.top[0].b});
        products.push_back(product(hidden, m.top[1], b));
        const auto hidden_layers = launch(products, fused), last = launch({logit()}, true, false);
        return [=, this] {
            hidden_layers(), last();
            sigmoid_in_place<<<(m.shape.N + 255) / 256, 256>>>(m.out, m.shape.N);
        };
    }

    size_t temporary_bytes() const { return a_.bytes() + b_.bytes() + m.hidden.bytes(); }
    /// Launches of both.
    size_t launches(bool fused) const { return fused ? 4 + 4 : 8 + 6; }
    /// The bytes that both read and write, without the top MLP's first layer.
    size_t moved_bytes(bool fused) const {
        size_t bytes = 2 * sizeof(half) * m.shape.N;  // sigmoid
        for (const DlrmLayer& layer : m.bottom) bytes += bytes_of(layer, layer.K, !fused);
        bytes += bytes_of(m.top[1], m.top[1].K, !fused) + bytes_of(m.top[2], m.top[2].K, false);
        return bytes;
    }
    /// The same bytes of the top MLP's first layer, from K features.
    size_t first_bytes(size_t K, bool fused) const { return bytes_of(m.top[0], K, !fused); }

  private:
    LtProduct<half> product(const half* x, const DlrmLayer& layer, half* out,
                            size_t pitch = 0) const {
        return {.x = x,
                .W = layer.W,
                .out = out,
                .M = m.shape.N,
                .K = layer.K,
                .N = layer.N,
                .bias = layer.b,
                .out_pitch = pitch};
    }
    LtProduct<half> logit() const { return product(b_.data(), m.top[2], m.out); }

    std::function<void()> launch(std::vector<LtProduct<half>> products, bool fused,
                                 bool relu = true) const {
        std::vector<std::shared_ptr<LtGemm<half>>> gemms;
        for (LtProduct<half>& product : products) {
            if (relu && fused) product.activation = CUBLASLT_EPILOGUE_RELU;
            gemms.push_back(std::make_shared<LtGemm<half>>(library_, product));
        }
        return [=] {
            for (size_t i = 0; i < products.size(); ++i) {
                (*gemms[i])();
                const size_t size = products[i].M * products[i].N;
                if (relu && !fused)
                    relu_in_place<<<(size / 4 + 255) / 256, 256>>>(products[i].out, size);
            }
        };
    }
    size_t bytes_of(const DlrmLayer& layer, size_t K, bool with_relu) const {
        const size_t in = m.shape.N * K, out = m.shape.N * layer.N;
        return sizeof(half) * (in + K * layer.N + layer.N + (with_relu ? 3 : 1) * out);
    }

    const Dlrm& m;
    const CublasLt library_;
    const Buffer<half> a_, b_;  // what the layers leave in turn
};

}  // namespace demo
