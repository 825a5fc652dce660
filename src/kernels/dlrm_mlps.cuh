// Belongs to bonus_dlrm: MLPs within a block, which takes kRows samples through all layers. What a
// layer leaves stays in shared memory. Weights come from the L2 cache straight into registers,
// packed as mma wants them. T is half, or float: then mma multiplies in TF32.
#pragma once

#include <utility>
#include <vector>

#include "kernels/dlrm.cuh"
#include "ptx.cuh"

namespace dlrm_hopper {

constexpr int kWarps = 16, kMlpThreads = 32 * kWarps;
constexpr int kAhead = 8;                  // loads of weights on their way, of each warp
constexpr size_t kMostShared = 227 << 10;  // bytes of a block

template <class T>
constexpr int kDepth = 32 / sizeof(T);  // what mma multiplies at a time: 16 k, or 8 in TF32
template <class T>
constexpr int kPad = 16 / sizeof(T);  // elements behind each row in shared memory: no conflicts
template <class T>
constexpr int kWide = 512 + kPad<T>;  // elements from row to row
template <class T>
constexpr int kNarrow = 256 + kPad<T>;  // likewise

template <class T>
struct alignas(2 * sizeof(T)) Two {
    T first, second;
};

/// A layer's packed weights: of each 16 columns, for each kDepth k, one uint4 per lane.
template <class T>
struct Layer {
    const uint4* W;  // [columns / 16][depth][32]
    const T* b;
    int depth, columns;  // k / kDepth, rounded up
};
template <class T>
struct Model {
    const T* x;                  // [N, 13]
    const uint32_t *ids, *rows;  // [N, 26]; where the ids' rows are known already: else null
    const T* tables;             // [26, rows, E]
    Layer<T> bottom[4], top[2];
    const T *last, *last_b;  // the last layer's weights, [256]; and its bias
    T *hidden, *out;         // [N, 512], [N]
    size_t N;
    unsigned int E;

    /// The features of --dot, rounded up; and elements from row to row.
    __host__ __device__ unsigned int features() const { return (E + dlrm::kPairs + 15) / 16 * 16; }
    __host__ __device__ unsigned int pitch() const {
        return (features() > 256 ? features() : 256) + kPad<T>;
    }
};

/// Packs W[K, columns] for a layer, with zeros outside. One thread per uint4.
template <class T>
__global__ void pack_layer(const T* W, uint4* packed, int K, int columns, int depth) {
    constexpr int kCount = 4 / sizeof(T);  // numbers in 4 bytes
    const int e = dlrm::my_index(), lane = e % 32;
    const int k = e / 32 % depth * kDepth<T> + lane % 4 * kCount;
    const int column = e / 32 / depth * 16 + lane / 4;
    if (column - lane / 4 >= columns) return;
    auto word = [=](int k, int column) {  // two neighbors of a column, or one number
        alignas(4) T numbers[kCount];
        for (int i = 0; i < kCount; ++i)
            numbers[i] =
                k + i < K && column < columns ? W[size_t(k + i) * columns + column] : T(0.0f);
        return reinterpret_cast<const uint32_t&>(numbers);
    };
    constexpr int kHalf = kDepth<T> / 2;
    packed[e] = {word(k, column), word(k + kHalf, column), word(k, column + 8),
                 word(k + kHalf, column + 8)};
}

/// d[16, 8] += a[16, kDepth] b[kDepth, 8].
template <class T>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, half>)
        ptx::mma_m16n8k16(d, a, b0, b1);
    else
        ptx::mma_m16n8k8(d, a, b0, b1);
}

/// out = relu(in W + b), both in shared memory, by a whole block. A warp has 16 columns at a time.
template <int kRows, class T>
__device__ void apply(const Layer<T>& layer, const T* in, int in_pitch, T* out, int out_pitch) {
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
                    uint32_t a[4];  // (to ldmatrix a float is two 16-bit numbers)
                    ptx::ldmatrix_x4(a, &in[(16 * r + lane % 16) * in_pitch + kDepth<T> * k +
                                            lane / 16 * (kDepth<T> / 2)]);
                    mma<T>(sums[r][0], a, b.x, b.y);
                    mma<T>(sums[r][1], a, b.z, b.w);
                }
            }
        for (int side = 0; side < 2; ++side) {
            const int c = col + side * 8 + lane % 4 * 2;
            if (c >= layer.columns) break;
            const auto bias = *reinterpret_cast<const Two<T>*>(&layer.b[c]);
#pragma unroll
            for (int r = 0; r < kRows / 8; ++r) {
                const float* const sum = &sums[r / 2][side][r % 2 * 2];
                *reinterpret_cast<Two<T>*>(&out[(8 * r + lane / 4) * out_pitch + c]) = {
                    T(fmaxf(sum[0] + float(bias.first), 0.0f)),
                    T(fmaxf(sum[1] + float(bias.second), 0.0f))};
            }
        }
    }
    __syncthreads();  // the layer is complete
}

/// The bottom MLP of kRows samples, the last of which may be copies.
template <int kRows, class T>
__device__ void bottom_mlp(const Model<T>& m, size_t first, T* wide, T* narrow, T* out,
                           int out_pitch) {
    constexpr int kInputs = 16 + kPad<T>, kSmall = 64 + kPad<T>;  // elements from row to row
    for (int e = threadIdx.x; e < kRows * 16; e += kMlpThreads) {
        const size_t n = min(first + e / 16, m.N - 1), k = e % 16;
        narrow[e / 16 * kInputs + k] = k < 13 ? m.x[n * 13 + k] : T(0.0f);
    }
    __syncthreads();  // the inputs are complete
    apply<kRows>(m.bottom[0], narrow, kInputs, wide, kWide<T>);
    apply<kRows>(m.bottom[1], wide, kWide<T>, narrow, kNarrow<T>);
    apply<kRows>(m.bottom[2], narrow, kNarrow<T>, wide, kSmall);
    apply<kRows>(m.bottom[3], wide, kSmall, out, out_pitch);
}

/// The top MLP's other layers: wide has the first one's.
template <int kRows, class T>
__device__ void top_mlp(const Model<T>& m, size_t first, const T* wide, T* narrow) {
    struct alignas(16) Eight {
        T at[8];
    };
    apply<kRows>(m.top[1], wide, kWide<T>, narrow, kNarrow<T>);
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < kRows && first + r < m.N; r += kWarps) {  // 256 to 1
        const auto in = *reinterpret_cast<const Eight*>(&narrow[r * kNarrow<T> + lane * 8]);
        const auto W = *reinterpret_cast<const Eight*>(&m.last[lane * 8]);
        float sum = 0;
        for (int c = 0; c < 8; ++c) sum += float(in.at[c]) * float(W.at[c]);
        for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
        if (lane == 0)
            m.out[first + r] = T(__fdividef(1.0f, 1.0f + __expf(-(sum + float(*m.last_b)))));
    }
}

/// Copies kRows rows of `columns` numbers between shared and global memory, 4 numbers a thread.
template <int kRows, class T>
__device__ void copy_rows(const T* from, size_t from_pitch, T* to, size_t to_pitch, int columns,
                          size_t rows) {
    const int pieces = columns / 4;
    for (int e = threadIdx.x; e < kRows * pieces; e += kMlpThreads) {
        const unsigned int r = e / pieces, c = e % pieces * 4;
        if (r < rows) dlrm::four(&to[r * to_pitch + c]) = dlrm::four(&from[r * from_pitch + c]);
    }
}

/// The MLPs' weights, packed for apply(), and all that the kernels need of the model.
template <class T>
class Packed {
  public:
    explicit Packed(const demo::Dlrm<T>& model) : m(model), W_(total()) {}

    void pack() const {
        for (const auto& [layer, packed] : layers_)
            pack_layer<<<dlrm::blocks(size_of(*layer)), dlrm::kElementThreads>>>(
                layer->W.data(), W_.data() + packed, layer->K, layer->N, depth_of(*layer));
    }
    Model<T> model() const {
        Model<T> model{
            m.x,        m.ids,      nullptr,         m.tables, {},        {},
            m.top[2].W, m.top[2].b, m.hidden.data(), m.out,    m.shape.N, unsigned(m.shape.E)};
        for (const auto& [layer, packed] : layers_) {
            const bool top = layer == &m.top[0] || layer == &m.top[1];
            (top ? model.top[layer - m.top] : model.bottom[layer - m.bottom]) =
                Layer<T>{W_.data() + packed, layer->b, depth_of(*layer), int(layer->N)};
        }
        return model;
    }
    /// Calls launch(rows, bytes) with the samples of a block, a constant, and its shared memory.
    /// Each block reads all weights, so few blocks are best, but as many as keep 132
    /// multiprocessors busy, and as shared memory has room for.
    template <class Launch>
    void with_rows(Launch launch) const {
        const size_t of_row = (kWide<T> + model().pitch()) * sizeof(T);
        auto with = [&](auto rows) { launch(rows, rows * of_row); };
        if (m.shape.N <= 16 * 132) return with(std::integral_constant<int, 16>());
        if (m.shape.N <= 32 * 132 || 64 * of_row > kMostShared)
            return with(std::integral_constant<int, 32>());
        with(std::integral_constant<int, 64>());
    }
    size_t blocks(int rows) const { return (m.shape.N + rows - 1) / rows; }

    /// What the kernels read and write of the MLPs: no activations.
    size_t bytes() const {
        size_t bytes = m.x.bytes() + m.top[2].W.bytes() + m.top[2].b.bytes() + m.out.bytes();
        for (const auto& [layer, packed] : layers_) bytes += layer->W.bytes() + layer->b.bytes();
        return bytes;
    }

    const demo::Dlrm<T>& m;

  private:
    using OfModel = demo::DlrmLayer<T>;
    static int depth_of(const OfModel& layer) { return int((layer.K + kDepth<T> - 1) / kDepth<T>); }
    static size_t size_of(const OfModel& layer) {
        return depth_of(layer) * ((layer.N + 15) / 16) * 32;
    }
    /// Fills layers_. The outer product's features have weights of their own.
    size_t total() {
        size_t size = 0;
        auto add = [&](const OfModel& layer) {
            layers_.push_back({&layer, size}), size += size_of(layer);
        };
        for (const OfModel& layer : m.bottom) add(layer);
        if (m.shape.dot) add(m.top[0]);
        add(m.top[1]);
        return size;
    }
    std::vector<std::pair<const OfModel*, size_t>> layers_;  // where they begin
    const demo::Buffer<uint4> W_;
};

}  // namespace dlrm_hopper
