// Belongs to bonus_dlrm: MLPs within a block, which takes kRows samples through all layers. What a
// layer leaves stays in shared memory. Weights come from the L2 cache straight into registers,
// packed as mma wants them.
#pragma once

#include <utility>
#include <vector>

#include "kernels/dlrm.cuh"
#include "ptx.cuh"

namespace dlrm_hopper {

using Half8 = demo::Vector<half>;

constexpr int kWarps = 16, kMlpThreads = 32 * kWarps;
constexpr int kWide = 512 + 8, kNarrow = 256 + 8;  // elements from row to row: 8 against conflicts
constexpr int kAhead = 8;                          // loads of weights on their way, of each warp

/// A layer's packed weights: of each 16 columns, for each 16 k, one uint4 per lane.
struct Layer {
    const uint4* W;  // [columns / 16][depth][32]
    const half* b;
    int depth, columns;  // k / 16, rounded up
};
struct Model {
    const half* x;               // [N, 13]
    const uint32_t *ids, *rows;  // [N, 26]; where the ids' rows are known already: else null
    const half* tables;          // [26, rows, E]
    Layer bottom[4], top[2];
    const half *last, *last_b;  // the last layer's weights, [256]; and its bias
    half *hidden, *out;         // [N, 512], [N]
    size_t N;
    unsigned int E;

    /// The features of --dot, rounded up; and elements from row to row.
    __host__ __device__ unsigned int features() const { return (E + dlrm::kPairs + 15) / 16 * 16; }
    __host__ __device__ unsigned int pitch() const {
        return (features() > 256 ? features() : 256) + 8;
    }
};

/// Packs W[K, columns] for a layer, with zeros outside. One thread per uint4.
__global__ void pack_layer(const half* W, uint4* packed, int K, int columns, int depth) {
    const int e = dlrm::my_index(), lane = e % 32, k = e / 32 % depth * 16 + lane % 4 * 2;
    const int column = e / 32 / depth * 16 + lane / 4;
    if (column - lane / 4 >= columns) return;
    auto pair = [=](int k, int column) {  // two neighbors of a column
        auto at = [=](int k) {
            return k < K && column < columns ? W[size_t(k) * columns + column] : half(0);
        };
        const half2 both = {at(k), at(k + 1)};
        return reinterpret_cast<const uint32_t&>(both);
    };
    packed[e] = {pair(k, column), pair(k + 8, column), pair(k, column + 8),
                 pair(k + 8, column + 8)};
}

/// out = relu(in W + b), both in shared memory, by a whole block. A warp has 16 columns at a time.
template <int kRows>
__device__ void apply(const Layer& layer, const half* in, int in_pitch, half* out, int out_pitch) {
    const int lane = threadIdx.x % 32;
    for (int col = threadIdx.x / 32 * 16; col < layer.columns; col += kWarps * 16) {
        const uint4* const W = &layer.W[size_t(col / 16) * layer.depth * 32 + lane];
        float sums[kRows / 16][2][4] = {};
        uint4 ahead[kAhead];
#pragma unroll
        for (int q = 0; q < kAhead; ++q)
            if (q < layer.depth) ahead[q] = W[q * 32];
        for (int first = 0; first < layer.depth; first += kAhead)
#pragma unroll
            for (int q = 0; q < kAhead; ++q) {
                const int k = first + q;
                if (k >= layer.depth) break;
                const uint4 b = ahead[q];
                if (k + kAhead < layer.depth) ahead[q] = W[(k + kAhead) * 32];
#pragma unroll
                for (int r = 0; r < kRows / 16; ++r) {
                    uint32_t a[4];
                    ptx::ldmatrix_x4(a,
                                     &in[(16 * r + lane % 16) * in_pitch + 16 * k + lane / 16 * 8]);
                    ptx::mma_m16n8k16(sums[r][0], a, b.x, b.y);
                    ptx::mma_m16n8k16(sums[r][1], a, b.z, b.w);
                }
            }
        for (int side = 0; side < 2; ++side) {
            const int c = col + side * 8 + lane % 4 * 2;
            if (c >= layer.columns) break;
            const float2 bias = __half22float2(*reinterpret_cast<const half2*>(&layer.b[c]));
#pragma unroll
            for (int r = 0; r < kRows / 8; ++r) {
                const float* const sum = &sums[r / 2][side][r % 2 * 2];
                *reinterpret_cast<half2*>(&out[(8 * r + lane / 4) * out_pitch + c]) =
                    __floats2half2_rn(fmaxf(sum[0] + bias.x, 0.0f), fmaxf(sum[1] + bias.y, 0.0f));
            }
        }
    }
    __syncthreads();  // the layer is complete
}

/// The bottom MLP of kRows samples, the last of which may be copies.
template <int kRows>
__device__ void bottom_mlp(const Model& m, size_t first, half* wide, half* narrow, half* out,
                           int out_pitch) {
    for (int e = threadIdx.x; e < kRows * 16; e += kMlpThreads) {
        const size_t n = min(first + e / 16, m.N - 1), k = e % 16;
        narrow[e / 16 * 24 + k] = k < 13 ? m.x[n * 13 + k] : half(0);
    }
    __syncthreads();  // the inputs are complete
    apply<kRows>(m.bottom[0], narrow, 24, wide, kWide);
    apply<kRows>(m.bottom[1], wide, kWide, narrow, kNarrow);
    apply<kRows>(m.bottom[2], narrow, kNarrow, wide, 72);
    apply<kRows>(m.bottom[3], wide, 72, out, out_pitch);
}

/// The top MLP's other layers: wide has the first one's.
template <int kRows>
__device__ void top_mlp(const Model& m, size_t first, const half* wide, half* narrow) {
    apply<kRows>(m.top[1], wide, kWide, narrow, kNarrow);
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < kRows && first + r < m.N; r += kWarps) {  // 256 to 1
        const auto in = *reinterpret_cast<const Half8*>(&narrow[r * kNarrow + lane * 8]);
        const auto W = *reinterpret_cast<const Half8*>(&m.last[lane * 8]);
        float sum = 0;
        for (int c = 0; c < 8; ++c) sum += float(in.at[c]) * float(W.at[c]);
        for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
        if (lane == 0)
            m.out[first + r] = __fdividef(1.0f, 1.0f + __expf(-(sum + float(*m.last_b))));
    }
}

/// Copies kRows rows of `columns` numbers between shared and global memory, 8 bytes a thread.
template <int kRows>
__device__ void copy_rows(const half* from, size_t from_pitch, half* to, size_t to_pitch,
                          int columns, size_t rows) {
    const int pieces = columns / 4;
    for (int e = threadIdx.x; e < kRows * pieces; e += kMlpThreads) {
        const unsigned int r = e / pieces, c = e % pieces * 4;
        if (r < rows) dlrm::four(&to[r * to_pitch + c]) = dlrm::four(&from[r * from_pitch + c]);
    }
}

/// The MLPs' weights, packed for apply(), and all that the kernels need of the model.
class Packed {
  public:
    explicit Packed(const demo::Dlrm& model) : m(model), W_(total()) {}

    void pack() const {
        for (const auto& [layer, packed] : layers_)
            pack_layer<<<dlrm::blocks(size_of(*layer)), dlrm::kElementThreads>>>(
                layer->W, W_.data() + packed, layer->K, layer->N, depth_of(*layer));
    }
    Model model() const {
        Model model{
            m.x,        m.ids,      nullptr,         m.tables, {},        {},
            m.top[2].W, m.top[2].b, m.hidden.data(), m.out,    m.shape.N, unsigned(m.shape.E)};
        for (const auto& [layer, packed] : layers_) {
            const bool top = layer == &m.top[0] || layer == &m.top[1];
            (top ? model.top[layer - m.top] : model.bottom[layer - m.bottom]) = {
                W_.data() + packed, layer->b, depth_of(*layer), int(layer->N)};
        }
        return model;
    }
    /// Calls launch(rows, bytes) with the samples of a block, a constant, and its shared memory.
    /// Each block reads all weights, so few blocks are best, but as many as keep 132
    /// multiprocessors busy.
    template <class Launch>
    void with_rows(Launch launch) const {
        auto with = [&](auto rows) {
            launch(rows, rows * (kWide + model().pitch()) * sizeof(half));
        };
        if (m.shape.N <= 16 * 132) return with(std::integral_constant<int, 16>());
        if (m.shape.N <= 32 * 132) return with(std::integral_constant<int, 32>());
        with(std::integral_constant<int, 64>());
    }
    size_t blocks(int rows) const { return (m.shape.N + rows - 1) / rows; }

    /// What the kernels read and write of the MLPs: no activations.
    size_t bytes() const {
        size_t bytes = m.x.bytes() + m.top[2].W.bytes() + m.top[2].b.bytes() + m.out.bytes();
        for (const auto& [layer, packed] : layers_) bytes += layer->W.bytes() + layer->b.bytes();
        return bytes;
    }

    const demo::Dlrm& m;

  private:
    static int depth_of(const demo::DlrmLayer& layer) { return int((layer.K + 15) / 16); }
    static size_t size_of(const demo::DlrmLayer& layer) {
        return depth_of(layer) * ((layer.N + 15) / 16) * 32;
    }
    /// Fills layers_. The outer product's features have weights of their own.
    size_t total() {
        size_t size = 0;
        auto add = [&](const demo::DlrmLayer& layer) {
            layers_.push_back({&layer, size}), size += size_of(layer);
        };
        for (const demo::DlrmLayer& layer : m.bottom) add(layer);
        if (m.shape.dot) add(m.top[0]);
        add(m.top[1]);
        return size;
    }
    std::vector<std::pair<const demo::DlrmLayer*, size_t>> layers_;  // where they begin
    const demo::Buffer<uint4> W_;
};

}  // namespace dlrm_hopper
