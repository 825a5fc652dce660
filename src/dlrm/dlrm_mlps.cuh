// Belongs to bonus_dlrm: MLPs within a block: it takes kRows samples through all layers, and keeps
// their results in shared memory. Weights stream through a ring of tiles, in the order of their
// use. One thread copies them ahead, without a pause between layers.
//
//     out^T = relu(W^T in^T + b)      wgmma multiplies 64 rows at least. A block may have only 16
//                                     samples, so they are the columns; W's columns are the rows.
//
// All operands are in shared memory in panels of 128 bytes of k, swizzled. T is half, or float,
// which wgmma multiplies in TF32.
#pragma once

#include <utility>
#include <vector>

#include "dlrm/grouped.cuh"
#include "hopper.cuh"
#include "matmul/matmul_hopper.cuh"

namespace dlrm_hopper {

using dlrm::kTables, dlrm::kHidden;
using matmul_hopper::Position, matmul_hopper::warpgroup_index;

constexpr int kWarpgroups = 4, kWarps = 4 * kWarpgroups, kConsumers = 32 * kWarps;
constexpr int kMlpThreads = kConsumers + 128;  // one thread of these copies, three warps prefetch

template <class T>
constexpr int kDepth = 32 / sizeof(T);  // what wgmma multiplies at a time: 16 k, or 8 in TF32
template <class T>
constexpr int kPanelK = 128 / sizeof(T);  // k of a panel
template <class T>
constexpr int kChunk = 16 / sizeof(T);  // numbers that the swizzle keeps together

/// Where number c of sample n is, among panels of kRows samples.
template <int kRows, class T>
__device__ int place(int n, int c) {
    const int first = c / kPanelK<T> * kRows * kPanelK<T> + c % kPanelK<T>;  // of sample 0
    return n * kPanelK<T> + (first ^ n % 8 * kChunk<T>);
}

/// Whether the library gets all weights as wgmma wants them in TF32: [columns, K].
template <class T>
constexpr bool kTurned = std::is_same_v<T, float>;

__device__ uint32_t modulus_hash(uint32_t id) {  // (id + 1) mod rows, in 32 bits
    const uint32_t row = id % demo::DlrmShape::kRows + 1;
    return row == demo::DlrmShape::kRows ? 0 : row;
}

template <class T>
struct Layer {
    const T* b;
    int panels, columns;
};
template <class T>
struct Model {
    const T* x;               // [N, 13]
    const uint32_t* ids;      // [N, 26]
    const T* tables;          // [26, rows, E]
    const uint4* W;           // all layers' tiles, in the order in which they are used
    int bottom_tiles, tiles;  // of the bottom MLP, of all
    Layer<T> bottom[4], top[2];
    const T *last, *last_b;  // the last layer's weights, [256]; and its bias
    T *hidden, *out;         // [N, 512], [N]
    size_t N;
    unsigned int E;

    /// The features of --dot: whole panels.
    __host__ __device__ unsigned int features() const {
        return (E + dlrm::kPairs + kPanelK<T> - 1) / kPanelK<T> * kPanelK<T>;
    }
};

/// A tile of W: 64 columns, a panel of each.
constexpr int kTileBytes = 64 * 128, kTileVectors = kTileBytes / 16;

/// Packs W[K, columns] for a layer, with zeros outside: for each four tiles beside each other,
/// which the warpgroups multiply at the same time, panel after panel. One thread per uint4.
template <class T>
__global__ void pack_layer(const T* W, uint4* packed, int K, int columns, int panels) {
    const int e = dlrm::my_index(), tiles = (columns + 63) / 64;
    const int tile = e / kTileVectors, r = e / 8 % 64, first = tile / panels / kWarpgroups;
    if (tile >= tiles * panels) return;
    const int beside = tile - first * panels * kWarpgroups;
    const int width = min(kWarpgroups, tiles - first * kWarpgroups);
    const int column = (first * kWarpgroups + beside % width) * 64 + r;
    const int k = beside / width * kPanelK<T> + (e % 8 ^ r % 8) * kChunk<T>;
    alignas(16) T numbers[kChunk<T>];
    for (int i = 0; i < kChunk<T>; ++i)
        numbers[i] = k + i < K && column < columns ? W[size_t(k + i) * columns + column] : T(0.0f);
    packed[e] = reinterpret_cast<const uint4&>(numbers);
}

/// Tiles of weights on their way. About 50 bytes a clock arrive at a multiprocessor, and no more if
/// clusters of 2, 4 or 8 blocks share each copy (tried).
struct WeightRing {
    static constexpr int kStages = 12;
    alignas(1024) unsigned char tiles[kStages][kTileBytes];
    hopper::Barrier full[kStages], empty[kStages];

    /// One thread initializes the barriers.
    __device__ void init() {
        for (int s = 0; s < kStages; ++s) {
            hopper::mbarrier_init(&full[s], 1);
            hopper::mbarrier_init(&empty[s], 4);  // warps of the one warpgroup that reads a tile
        }
        hopper::fence_mbarrier_init();
    }
    /// One thread copies `count` tiles.
    __device__ void copy(Position<kStages>& at, const uint4* W, int count) {
        for (int i = 0; i < count; ++i, at.advance()) {
            hopper::mbarrier_wait(&empty[at.stage], at.parity ^ 1);
            hopper::mbarrier_arrive_expect_tx(&full[at.stage], kTileBytes);
            hopper::cp_async_bulk(tiles[at.stage], &W[i * kTileVectors], kTileBytes,
                                  &full[at.stage], ptx::createpolicy_evict_last());
        }
    }
};

/// The threads that multiply wait for each other.
__device__ void meet() {
    hopper::fence_proxy_async();  // what this thread wrote, before wgmma reads it
    hopper::barrier_sync(1, kConsumers);
}

/// What a block needs to take kRows samples through layers.
template <int kRows, class T>
class Block {
  public:
    const Model<T>& m;
    T* const wide;    // kRows samples of 512
    T* const narrow;  // of 256, or the features

    __device__ Block(const Model<T>& m, unsigned char* shared)
        : m(m),
          wide(reinterpret_cast<T*>(shared + sizeof(WeightRing))),
          narrow(wide + kRows * 512),
          ring_(*reinterpret_cast<WeightRing*>(shared)) {}
    static size_t shared_bytes(const Model<T>& m) {
        return sizeof(WeightRing) + kRows * (512 + std::max(256u, m.features())) * sizeof(T);
    }

    /// All threads call this. For each group of kRows samples the threads that multiply call
    /// work(first). Three warps call ahead(first), one group earlier.
    template <class Work, class Ahead>
    __device__ void run(int first_tile, int last_tile, Work work, Ahead ahead) {
        if (threadIdx.x == 0) ring_.init();
        __syncthreads();  // the barriers are ready
        const size_t begin = size_t(blockIdx.x) * kRows, step = size_t(gridDim.x) * kRows;
        auto for_each_group = [&](auto visit) {
            for (size_t first = begin; first < m.N; first += step) visit(first);
        };
        auto together = [=](size_t first) {  // those who multiply, and those who are ahead: these
                                             // may not be further ahead than one group
            if (first > begin) hopper::barrier_sync(2, kMlpThreads - 32);
        };
        if (warpgroup_index() < kWarpgroups) {
            hopper::setmaxnreg_inc<112>();
            for_each_group([&](size_t first) { together(first), work(first); });
            return;
        }
        hopper::setmaxnreg_dec<32>();
        if (threadIdx.x >= kConsumers + 32) {
            for_each_group([&](size_t first) { ahead(first), together(first); });
        } else if (threadIdx.x == kConsumers) {
            Position<WeightRing::kStages> at;
            const uint4* const W = m.W + size_t(first_tile) * kTileVectors;
            for_each_group([&](size_t) { ring_.copy(at, W, last_tile - first_tile); });
        }
    }

    /// How many of a group's samples there are.
    __device__ int count(size_t first) const { return int(min(m.N - first, size_t(kRows))); }

    /// out = relu(in W + b). Each warpgroup has 64 columns at a time.
    __device__ void apply(const Layer<T>& layer, const T* in, T* out) {
        const int tiles = (layer.columns + 63) / 64, warpgroup = warpgroup_index();
        for (int first = 0; first < tiles; first += kWarpgroups) {
            const int width = min(kWarpgroups, tiles - first);
            if (warpgroup < width) multiply(layer, in, out, first + warpgroup, width);
            next_ += layer.panels * width;
        }
        meet();  // the layer is complete
    }

    /// The bottom MLP of kRows samples, the last of which may be copies. Leaves `narrow`.
    __device__ void bottom_mlp(size_t first) {
#pragma unroll 1
        for (int e = threadIdx.x; e < kRows * 16; e += kConsumers) {
            const size_t n = min(first + e / 16, m.N - 1), k = e % 16;
            narrow[place<kRows, T>(e / 16, k)] = k < 13 ? m.x[n * 13 + k] : T(0.0f);
        }
        constexpr int kPieces = (kPanelK<T> - 16) / 4;  // and zeros up to the panel's end
        for (int e = threadIdx.x; e < kRows * kPieces; e += kConsumers)
            dlrm::four(&narrow[place<kRows, T>(e / kPieces, 16 + e % kPieces * 4)]) = {};
        meet();  // the inputs are complete
        apply(m.bottom[0], narrow, wide);
        apply(m.bottom[1], wide, narrow);
        apply(m.bottom[2], narrow, wide);
        apply(m.bottom[3], wide, narrow);
    }

    /// The top MLP's other layers: wide has the first one's.
    __device__ void top_mlp(size_t first) {
        apply(m.top[1], wide, narrow);
        const int lane = threadIdx.x % 32;
        for (int r = threadIdx.x / 32; r < count(first); r += kWarps) {  // 256 to 1
            float sum = 0;
            for (int half = 0; half < 8; half += 4) {
                const dlrm::Four<T> in = dlrm::four(&narrow[place<kRows, T>(r, lane * 8 + half)]);
                const dlrm::Four<T> W = dlrm::four(&m.last[lane * 8 + half]);
                for (int c = 0; c < 4; ++c) sum += float(in.at[c]) * float(W.at[c]);
            }
            for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
            if (lane == 0)
                m.out[first + r] = T(__fdividef(1.0f, 1.0f + __expf(-(sum + float(*m.last_b)))));
        }
        meet();  // nobody needs `narrow` any more
    }

    /// Calls move(number in panels, number in rows of `pitch`) for all `columns` of the samples.
    template <class Move>
    __device__ void for_each_four(size_t first, int columns, size_t pitch, Move move) const {
        const int pieces = columns / 4;
        for (int e = threadIdx.x; e < count(first) * pieces; e += kConsumers) {
            const int r = e / pieces, c = e % pieces * 4;
            move(place<kRows, T>(r, c), (first + r) * pitch + c);
        }
    }

  private:
    /// A warpgroup's 64 columns of a layer: its share of `width` tiles beside each other.
    __device__ void multiply(const Layer<T>& layer, const T* in, T* out, int tile, int width) {
        const int lane = threadIdx.x % 32;
        const int column = tile * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        float bias[2], sums[kRows / 2];
        for (int h = 0; h < 2; ++h)
            bias[h] = column + 8 * h < layer.columns ? float(layer.b[column + 8 * h]) : 0;
        unsigned int at = next_ + tile % kWarpgroups;
        int previous = 0;
        for (int p = 0; p < layer.panels; ++p, at += width) {
            const int stage = at % WeightRing::kStages;
            hopper::mbarrier_wait(&ring_.full[stage], at / WeightRing::kStages % 2);
            hopper::wgmma_fence();
            const uint64_t W = hopper::matrix_descriptor(ring_.tiles[stage]);
            const uint64_t x = hopper::matrix_descriptor(&in[p * kRows * kPanelK<T>]);
#pragma unroll
            for (int k = 0; k < 4; ++k)  // a descriptor counts in 16 bytes
                hopper::wgmma_mma_async_k_major<T>(sums, W + 2 * k, x + 2 * k, p > 0 || k > 0);
            hopper::wgmma_commit_group();
            hopper::wgmma_wait_group<1>();
            if (p > 0) release(previous);
            previous = stage;
        }
        hopper::wgmma_wait_group<0>();
        release(previous);
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) sums[i] = fmaxf(sums[i] + bias[i / 2 % 2], 0.0f);
        store(sums, out, tile * 64 + threadIdx.x / 32 % 4 * 16);
    }
    /// Stores a warp's 16 columns from `column` on. A thread has columns lane / 4 and 8 more, of
    /// samples 8 j + 2 (lane % 4) and the next.
    static __device__ void store(const float (&sums)[kRows / 2], T* out, int column) {
        const int lane = threadIdx.x % 32;
        if constexpr (std::is_same_v<T, half>) {
            // Four matrices of 8 samples with 8 columns: for both halves of the columns, twice.
            T* const to =
                &out[place<kRows, T>(lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8)];
#pragma unroll
            for (int j = 0; j < kRows / 8; j += 2) {
                uint32_t pairs[4];
                for (int i = 0; i < 4; ++i)
                    pairs[i] = ptx::cvt_rn_x2<T>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
                hopper::stmatrix_x4_trans(&to[8 * j * kPanelK<T>], pairs[0], pairs[1], pairs[2],
                                          pairs[3]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                T* const to =
                    &out[place<kRows, T>(lane % 4 * 2 + i % 2, column + lane / 4 + i / 2 * 8)];
#pragma unroll
                for (int j = 0; j < kRows / 8; ++j) to[8 * j * kPanelK<T>] = sums[4 * j + i];
            }
        }
    }
    __device__ void release(int stage) {  // by each warp
        if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&ring_.empty[stage]);
    }

    WeightRing& ring_;
    unsigned int next_ = 0;  // how many tiles have been multiplied
};

/// The MLPs' weights, packed tile by tile, and all that the kernels need of the model.
template <class T>
class Packed {
  public:
    Packed(const demo::Dlrm<T>& model, const demo::Gpu& gpu)
        : m(model), multiprocessors_(gpu.multiprocessors), W_(total()) {}

    void pack() const {
        for (const auto& [layer, packed] : layers_)
            pack_layer<<<dlrm::blocks(size_of(*layer)), dlrm::kElementThreads>>>(
                layer->W.data(), W_.data() + packed, layer->K, layer->N, panels_of(*layer));
    }
    Model<T> model() const {
        Model<T> model{.x = m.x,
                       .ids = m.ids,
                       .tables = m.tables,
                       .W = W_.data(),
                       .bottom_tiles = int(layers_[4].second / kTileVectors),
                       .tiles = int(W_.size() / kTileVectors),
                       .bottom = {},
                       .top = {},
                       .last = m.top[2].W,
                       .last_b = m.top[2].b,
                       .hidden = m.hidden.data(),
                       .out = m.out,
                       .N = m.shape.N,
                       .E = unsigned(m.shape.E)};
        for (const auto& [layer, packed] : layers_) {
            const bool top = layer == &m.top[0] || layer == &m.top[1];
            (top ? model.top[layer - m.top] : model.bottom[layer - m.bottom]) =
                Layer<T>{layer->b, panels_of(*layer), int(layer->N)};
        }
        return model;
    }
    /// Calls launch(rows, blocks, bytes) with the samples of a block, a constant, and its shared
    /// memory. A block reads all weights for each group, so large groups are best; but not so large
    /// that some of 132 multiprocessors have none.
    template <class Launch>
    void with_rows(Launch launch) const {
        auto with = [&](auto rows) {
            const size_t groups = (m.shape.N + rows - 1) / rows;
            launch(rows, int(std::min(groups, size_t(multiprocessors_))),
                   Block<rows, T>::shared_bytes(model()));
        };
        constexpr int kLargest = std::is_same_v<T, half> ? 64 : 32;  // shared memory has room for
        if (m.shape.N <= 16 * 132) return with(std::integral_constant<int, 16>());
        if (m.shape.N <= 32 * 132) return with(std::integral_constant<int, 32>());
        with(std::integral_constant<int, kLargest>());
    }

    /// What the kernels read and write of the MLPs: no activations.
    size_t bytes() const {
        size_t bytes = m.x.bytes() + m.top[2].W.bytes() + m.top[2].b.bytes() + m.out.bytes();
        for (const auto& [layer, packed] : layers_) bytes += layer->W.bytes() + layer->b.bytes();
        return bytes;
    }

    const demo::Dlrm<T>& m;

  private:
    const int multiprocessors_;
    using OfModel = demo::DlrmLayer<T>;
    static int panels_of(const OfModel& layer) {
        return int((layer.K + kPanelK<T> - 1) / kPanelK<T>);
    }
    static size_t size_of(const OfModel& layer) {
        return panels_of(layer) * ((layer.N + 63) / 64) * kTileVectors;
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
