// DLRM's two MLPs by the library, which is all that the demos do about them.
#pragma once

#include <array>
#include <memory>

#include "demo/cublaslt.cuh"
#include "demo/graph.cuh"
#include "dlrm/dlrm.cuh"

namespace demo {

/// Four numbers that are moved at once.
template <class T>
struct alignas(4 * sizeof(T)) Four {
    T at[4];
};
template <class T>
__device__ const Four<T>& four(const T* from) {
    return *reinterpret_cast<const Four<T>*>(from);
}
template <class T>
__device__ Four<T>& four(T* to) {
    return *reinterpret_cast<Four<T>*>(to);
}

/// v[i] = max(0, v[i]), in place; a NaN stays one. `size` is a multiple of 4, a thread has 4.
template <class T>
__global__ void relu_in_place(T* v, size_t size) {
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i >= size) return;
    for (T& e : four(&v[i]).at) e = float(e) < 0 ? T(0.0f) : e;
}
template <class T>
__global__ void sigmoid_in_place(T* v, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) v[i] = T(__fdividef(1.0f, 1.0f + __expf(-float(v[i]))));
}

/// turned[n, k] = W[k, n], of W[K, N]; turned rows are `pitch` elements apart.
template <class T>
__global__ void turn(const T* W, T* turned, size_t K, size_t N, size_t pitch) {
    const size_t e = size_t(blockIdx.x) * blockDim.x + threadIdx.x, n = e / K, k = e % K;
    if (e < K * N) turned[n * pitch + k] = W[k * N + n];
}

/// Both MLPs: gemms that add the bias, then apply ReLU (`fused`); or a kernel for ReLU after each.
/// Must not outlive `model`.
template <class T>
class DlrmLayers {
  public:
    explicit DlrmLayers(const Dlrm<T>& model)
        : m(model),
          a_(model.shape.N, 512),
          b_(model.shape.N, 256),
          padded_W_(pads() ? m.shape.pitch : 1, DlrmShape::kHidden) {}

    /// What the two MLPs exchange with the kernels between them.
    struct Between {
        T* bottom;  // [N, E]: what the bottom MLP leaves, rows `pitch` elements apart
        size_t pitch;
        const T *features = nullptr, *W = nullptr;  // [N, K], [K, kHidden]; null: m.hidden ...
        size_t K = 0;                               // ... is there already
        bool fused = true, turned = false;  // turned: W is [kHidden, K], and turn_W() has run
    };
    /// A contender of the whole model. `c` counts `between` alone; this adds the MLPs.
    Contender contender(Contender c, const Between& at, std::function<void()> between) const {
        c.repeatable = false;  // cuBLASLt chooses
        c.launches += (at.fused ? 7 : 12) + (at.features == nullptr ? 0 : at.fused ? 1 : 2);
        c.temporary_bytes += a_.bytes() + b_.bytes() + m.hidden.bytes();
        c.moved_bytes += 2 * sizeof(T) * m.shape.N;  // sigmoid
        for (const Layer& layer : m.bottom) c.moved_bytes += bytes_of(layer, layer.K, at.fused);
        c.moved_bytes += bytes_of(m.top[1], m.top[1].K, at.fused) + bytes_of(m.top[2], 256, true);
        if (at.features) c.moved_bytes += bytes_of(m.top[0], at.K, at.fused);
        c.setup = [=, this](Contender& self) {
            self.renew();
            const auto bottom = this->bottom(at);
            const auto top = this->top(at);
            self.launch = [=] { bottom(nullptr), between(), top(nullptr); };
        };
        return c;
    }
    /// The same as a CUDA graph. `between` launches into a stream.
    Contender graph(Contender c, const Between& at,
                    std::function<void(cudaStream_t)> between) const {
        c = contender(c, at, {});
        c.setup = [=, this](Contender& self) {
            self.renew();
            const auto bottom = this->bottom(at);
            const auto top = this->top(at);
            const auto graph = std::make_shared<Graph>(
                [=](cudaStream_t stream) { bottom(stream), between(stream), top(stream); });
            self.launch = [=] { (*graph)(); };
        };
        c.note = "one CUDA graph" + (c.note.empty() ? "" : ", " + c.note);
        return c;
    }

    /// The features' weights, if needed padded with rows of zeros: then pad_W() fills them.
    const T* padded_W() const { return pads() ? padded_W_.data() : m.top[0].W.data(); }
    void pad_W() const {
        const Input<T>& W = m.top[0].W;
        if (!pads()) return;
        DEMO_CHECK(cudaMemset(padded_W_.data(), 0, padded_W_.bytes()));
        DEMO_CHECK(cudaMemcpy(padded_W_.data(), W, W.bytes(), cudaMemcpyDeviceToDevice));
    }

    /// Fills the layers' turned weights. In TF32 tensor cores read a column's side by side.
    void turn_W() const {
        for (const Layer* layer : turned_layers())
            turn<T><<<(layer->W.size() + 255) / 256, 256>>>(
                layer->W, turned_.data() + place_of(*layer), layer->K, layer->N, layer->K);
    }

  private:
    using Layer = DlrmLayer<T>;
    /// All but the features', the first (rows of 13 numbers are unaligned), and the last (N = 1).
    std::array<const Layer*, 4> turned_layers() const {
        return {&m.bottom[1], &m.bottom[2], &m.bottom[3], &m.top[1]};
    }
    size_t place_of(const Layer& layer) const {  // behind all for one that is not among them
        size_t place = 0;
        for (const Layer* each : turned_layers()) {
            if (each == &layer) break;
            place += each->W.size();
        }
        return place;
    }
    bool pads() const { return m.shape.pitch > m.shape.features; }
    LtProduct<T> product(const T* x, const Layer& layer, T* out, bool turned = false,
                         size_t pitch = 0) const {
        return {.x = x,
                .W = turned ? turned_.data() + place_of(layer) : layer.W.data(),
                .out = out,
                .M = m.shape.N,
                .K = layer.K,
                .N = layer.N,
                .bias = layer.b,
                .out_pitch = pitch,
                .turned = turned};
    }
    using Launch = std::function<void(cudaStream_t)>;
    Launch bottom(const Between& at) const {
        T *const a = a_.data(), *const b = b_.data();
        const Layer* const l = m.bottom;
        return launch(
            {product(m.x, l[0], a), product(a, l[1], b, at.turned), product(b, l[2], a, at.turned),
             product(a, l[3], at.bottom, at.turned, at.pitch)},
            at.fused);
    }
    Launch top(const Between& at) const {
        T *const hidden = m.hidden.data(), *const b = b_.data();
        std::vector<LtProduct<T>> products;
        if (at.features)
            products.push_back({.x = at.features,
                                .W = at.W,
                                .out = hidden,
                                .M = m.shape.N,
                                .K = at.K,
                                .N = DlrmShape::kHidden,
                                .bias = m.top[0].b,
                                .turned = at.turned});
        products.push_back(product(hidden, m.top[1], b, at.turned));
        const auto first = launch(products, at.fused);
        const auto last = launch({product(b, m.top[2], m.out)}, true, false);
        return [=, this](cudaStream_t stream) {
            first(stream), last(stream);
            sigmoid_in_place<<<(m.shape.N + 255) / 256, 256, 0, stream>>>(m.out.data(), m.shape.N);
        };
    }
    Launch launch(std::vector<LtProduct<T>> products, bool fused, bool relu = true) const {
        std::vector<std::shared_ptr<LtGemm<T>>> gemms;
        for (LtProduct<T>& product : products) {
            if (relu && fused) product.activation = CUBLASLT_EPILOGUE_RELU;
            gemms.push_back(std::make_shared<LtGemm<T>>(library_, product));
        }
        return [=](cudaStream_t stream) {
            for (size_t i = 0; i < products.size(); ++i) {
                (*gemms[i])(stream);
                const size_t size = products[i].M * products[i].N;
                if (relu && !fused)
                    relu_in_place<<<(size / 4 + 255) / 256, 256, 0, stream>>>(products[i].out,
                                                                              size);
            }
        };
    }
    size_t bytes_of(const Layer& layer, size_t K, bool fused) const {
        const size_t in = m.shape.N * K, out = m.shape.N * layer.N;
        return sizeof(T) * (in + K * layer.N + layer.N + (fused ? 1 : 3) * out);
    }

    const Dlrm<T>& m;
    const CublasLt library_;
    const Buffer<T> a_, b_;  // what the layers leave in turn
    const Buffer<T> padded_W_;
    const Buffer<T> turned_{place_of(m.top[0])};
};

}  // namespace demo
