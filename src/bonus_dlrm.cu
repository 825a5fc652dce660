// Bonus: the fastest DLRM on Hopper (compute capability 9.0), in fp16 and in TF32; see lesson 13.
//
// The outer product. Feature z_i z_j is feature z_j z_i, so W[i, j] and W[j, i], two rows of 512
// weights, may be added up beforehand, once. That leaves half of the work, 93,528 features with
// E = 16. The gemm makes them where wgmma can read them: in registers.
//
//         columns j ... j + 15 of z        a thread holds its numbers of 16 columns of z, as wgmma
//      i  +---+                            wants A. For each i it multiplies them by z_i of their
//      |  |   |    used: i <= j + 15       rows, and that is the next A, of 16 features. Nothing of
//      |  |   |                            it is stored; only W streams through shared memory.
//      v  +---+---+
//         |   |   |                        W is packed in the order in which this walks through the
//         +---+---+---+                    features: for each 16 j, all i up to j + 15; with zeros
//         |   |   |   |                    where i > j. Those are 3.3% of it.
//         +---+---+---+                    (In TF32 all of these 16 are 8, and 3.3% are 1.6%.)
//
// What limits it: power and the tensor cores, as any product; with few samples reading W.
//
// With --dot the model is so small that one kernel computes all of it: fused_model. With --lookups
// a kernel that only looks up and multiplies stands beside a copy: all_products.
//
//     ./bonus_dlrm 2048        ./bonus_dlrm 65536 --dot        ./bonus_dlrm 65536 --lookups
#include "demo.cuh"
#include "demo/copy.cuh"
#include "dlrm/dlrm_mlps.cuh"
#include "dlrm/grouped.cuh"
#include "dlrm/library.cuh"
#include "hopper.cuh"
#include "matmul/matmul_hopper.cuh"
#include "rows/rows.cuh"

namespace dlrm_hopper {

using dlrm::kTables, dlrm::kHidden;
using matmul_hopper::kPanel, matmul_hopper::kWarpgroup;

// --- Lookups -------------------------------------------------------------------------------------

__device__ uint32_t modulus_hash(uint32_t id) {  // (id + 1) mod rows, in 32 bits
    const uint32_t row = id % demo::DlrmShape::kRows + 1;
    return row == demo::DlrmShape::kRows ? 0 : row;
}

/// z[n, 1 + t] = tables[t, row of ids[n, t]], in pieces of sizeof(Piece) bytes: a thread has one of
/// each of kLoads vectors, so that as many loads are on their way.
constexpr int kLoads = 4;
template <class Piece, class T>
__global__ void gather_pieces(const uint32_t* ids, const T* tables, T* z, size_t pitch,
                              size_t vectors, unsigned int E) {
    const unsigned int e = threadIdx.x * (sizeof(Piece) / sizeof(T));
    const size_t first = size_t(blockIdx.x) * blockDim.y * kLoads + threadIdx.y;
    Piece pieces[kLoads];
    for (int l = 0; l < kLoads; ++l) {
        const size_t v = first + l * blockDim.y;  // number 26 n + t
        if (v >= vectors) continue;
        const size_t row = v % kTables * demo::DlrmShape::kRows + modulus_hash(ids[v]);
        pieces[l] = *reinterpret_cast<const Piece*>(&tables[row * E + e]);
    }
    for (int l = 0; l < kLoads; ++l) {
        const size_t v = first + l * blockDim.y;
        if (v >= vectors) continue;
        T* const to = &z[v / kTables * pitch + (1 + v % kTables) * E + e];
        *reinterpret_cast<Piece*>(to) = pieces[l];
    }
}

// --- The order of the features -------------------------------------------------------------------

/// A step of the gemm multiplies a tile of features, 128 bytes of a row: 4 numbers of z from i on,
/// each times kDepth numbers from j on.
template <class T>
constexpr int kFeatures = 4 * kDepth<T>;
template <class T>
struct FeatureTile {
    unsigned int i, j;

    /// The tile of step s. Block B of kDepth columns, each with i up to its last column, has
    /// kDepth / 4 (B + 1) steps: before() adds them up, and the root inverts that.
    static __host__ __device__ FeatureTile at(unsigned int s) {
        const unsigned int block = (unsigned(sqrtf(float(32 / kDepth<T> * s + 1))) - 1) / 2;
        return {4 * (s - before(block)), kDepth<T> * block};
    }
    __device__ void advance(unsigned int width) {
        i += 4;
        if (i >= min(j + kDepth<T>, width)) i = 0, j += kDepth<T>;
    }
    static unsigned int count(unsigned int width) {
        return before((width - 1) / kDepth<T>) + width / 4;  // the last block's i end at the width
    }
    static __host__ __device__ unsigned int before(unsigned int block) {
        return kDepth<T> / 8 * block * (block + 1);
    }
};

/// Packs W[width * width, 512] for the features z_i z_j, i <= j, in that order: [features, 512] in
/// fp16; [512, features] in TF32, where wgmma wants features side by side. A block packs a step.
template <class T>
__global__ void fold(const T* W, T* packed, unsigned int width, size_t features) {
    using Some = demo::Vector<T>;
    const auto tile = FeatureTile<T>::at(blockIdx.x);
    constexpr unsigned int kThreadsOfRow = kHidden / Some::kSize;
    const unsigned int column = threadIdx.x % kThreadsOfRow * Some::kSize;
    for (unsigned int r = threadIdx.x / kThreadsOfRow; r < kFeatures<T>;
         r += blockDim.x / kThreadsOfRow) {
        const unsigned int i = tile.i + r / kDepth<T>, j = tile.j + r % kDepth<T>;
        Some sum{};
        if (i <= j && j < width) {
            sum = *reinterpret_cast<const Some*>(&W[(size_t(i) * width + j) * kHidden + column]);
            if (i < j) {
                const auto other =
                    *reinterpret_cast<const Some*>(&W[(size_t(j) * width + i) * kHidden + column]);
                for (int c = 0; c < Some::kSize; ++c)
                    sum.at[c] = T(float(sum.at[c]) + float(other.at[c]));
            }
        }
        const size_t f = size_t(blockIdx.x) * kFeatures<T> + r;
        if constexpr (std::is_same_v<T, half>)
            *reinterpret_cast<Some*>(&packed[f * kHidden + column]) = sum;
        else
            for (int c = 0; c < Some::kSize; ++c) packed[(column + c) * features + f] = sum.at[c];
    }
}

// --- library_best --------------------------------------------------------------------------------
// What the library can do with the same idea: half as many features, in the packed order, written
// and read once, and its gemm. In TF32 it gets all weights as wgmma wants them, [columns, K].

template <class T>
constexpr bool kTurned = std::is_same_v<T, float>;

/// f[n, kFeatures s + r]: a thread has 16 bytes, features of one i.
template <class T>
__global__ void half_outer(const T* z, size_t pitch, T* f, size_t features) {
    using Some = demo::Vector<T>;
    const unsigned int e = (blockIdx.y * blockDim.x + threadIdx.x) * Some::kSize;
    if (e >= features) return;
    z += blockIdx.x * pitch, f += blockIdx.x * features;
    const auto tile = FeatureTile<T>::at(e / kFeatures<T>);
    const T factor = z[tile.i + e % kFeatures<T> / kDepth<T>];
    Some product = *reinterpret_cast<const Some*>(&z[tile.j + e % kDepth<T>]);
    for (T& v : product.at) v = factor * v;
    *reinterpret_cast<Some*>(&f[e]) = product;
}

// --- folded --------------------------------------------------------------------------------------
// Adds    to lesson 13's fused_interaction: W folded, half of the work; features made in the
//         registers of wgmma; W by TMA, each tile for both blocks of a cluster. Lookups move 16
//         bytes a thread, and the host launches the model as one graph. In TF32 features are fp32
//         products, of which wgmma ignores the last 13 bits, as it does of W.
// Costs   packing W, once: a read of W and a write of half of it. Hopper alone.
// Limits  the tensor cores; from 4096 samples on nothing else takes time. With 128 samples W's
//         95 MiB, read once.
// Source  PTX ISA, "wgmma.mma_async" with A in registers; the symmetry is lesson 13's exercise.

constexpr int kTileM = 128, kTileN = 256;  // samples x columns of a block
constexpr int kHalves = kTileM / 64, kThreads = (kHalves + 1) * kWarpgroup;
constexpr int kStages = 6;
constexpr int kInFlight = 1;  // wgmma that still run while the next fragment is made

/// A step's weights in panels of 64 columns. A row is a feature's, or in TF32 a column's, where
/// wgmma wants a column's features side by side: 64 rows of 128 bytes, swizzled.
template <class T>
struct Weights {
    T panels[kTileN / kPanel][64][128 / sizeof(T)];

    /// wgmma descriptor of W's rows for features z[i+k] * z[j..].
    __device__ uint64_t descriptor(int k) const {
        if constexpr (std::is_same_v<T, half>)
            return hopper::matrix_descriptor(&panels[0][kDepth<T> * k], sizeof panels[0]);
        return hopper::matrix_descriptor(&panels[0][0][kDepth<T> * k]);
    }
    /// Where the panel from this feature and column on is in packed W: row and column.
    static __device__ int2 place(int feature, int column) {
        return std::is_same_v<T, half> ? int2{feature, column} : int2{column, feature};
    }
};
template <class T>
struct Memory {
    alignas(1024) Weights<T> W[kStages];
    hopper::Barrier full[kStages], empty[kStages];
};

__device__ half2 scaled(half2 pair, half factor) { return __hmul2(pair, __half2half2(factor)); }
__device__ float scaled(float number, float factor) { return number * factor; }

/// A thread's numbers of z for a step, in its two rows: its elements of a 16 x kDepth fragment of
/// columns from j on, and the factors i ... i + 3.
template <class T>
struct Numbers {
    using Word = std::conditional_t<std::is_same_v<T, half>, half2, float>;
    Word panel[4];
    dlrm::Four<T> factors[2];

    __device__ void load_panel(const T* const (&rows)[2], FeatureTile<T> tile) {
        const unsigned int column = tile.j + threadIdx.x % 4 * (sizeof(Word) / sizeof(T));
        for (int q = 0; q < 4; ++q)
            panel[q] = *reinterpret_cast<const Word*>(&rows[q % 2][column + q / 2 * kDepth<T> / 2]);
    }
    __device__ void load_factors(const T* const (&rows)[2], FeatureTile<T> tile) {
        for (int r = 0; r < 2; ++r) factors[r] = dlrm::four(&rows[r][tile.i]);
    }
    /// The features of number i + k with all kDepth: A of one wgmma.
    __device__ void multiply(int k, uint32_t (&a)[4]) const {
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const Word product = scaled(panel[q], factors[q % 2].at[k]);
            a[q] = reinterpret_cast<const uint32_t&>(product);
        }
    }
};

/// partials[blockIdx.z] = features W over this block's steps, for 128 samples and 256 columns.
template <class T, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    folded_interaction(const T* z,                             // [N, pitch], zeros behind the width
                       const __grid_constant__ CUtensorMap W,  // as fold() packs it
                       float* partials,                        // [gridDim.z, N, 512]
                       size_t N, size_t pitch, unsigned int width, unsigned int steps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Memory<T>& memory = *reinterpret_cast<Memory<T>*>(shared);
    const int rank = hopper::cluster_ctarank(), lane = threadIdx.x % 32;
    const unsigned int first = size_t(steps) * blockIdx.z / gridDim.z;
    const unsigned int last = size_t(steps) * (blockIdx.z + 1) / gridDim.z;
    const int block_col = blockIdx.y * kTileN;
    if (threadIdx.x == 0) {
        for (int s = 0; s < kStages; ++s) {
            hopper::mbarrier_init(&memory.full[s], 1);
            hopper::mbarrier_init(&memory.empty[s], 4 * kHalves * kCluster);
        }
        hopper::fence_mbarrier_init();
    }
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (matmul_hopper::warpgroup_index() == kHalves) {  // the producer, one thread
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kHalves * kWarpgroup) return;
        for (unsigned int s = first; s < last; ++s, at.advance()) {
            hopper::mbarrier_wait(&memory.empty[at.stage], at.parity ^ 1);
            hopper::Barrier* const full = &memory.full[at.stage];
            hopper::mbarrier_arrive_expect_tx(full, sizeof memory.W[0]);
            for (int p = rank; p < kTileN / kPanel; p += kCluster) {  // each block a share, for all
                T* const to = &memory.W[at.stage].panels[p][0][0];
                const int2 from = Weights<T>::place(kFeatures<T> * s, block_col + p * kPanel);
                if constexpr (kCluster == 1)
                    hopper::tma_load(to, W, from.x, from.y, full);
                else
                    hopper::tma_load_multicast(to, W, from.x, from.y, full, (1 << kCluster) - 1);
            }
        }
        // Others arrive at this block's barriers, so it must not leave before they have.
        for (int s = 0; s < kStages; ++s, at.advance())
            hopper::mbarrier_wait(&memory.empty[at.stage], at.parity ^ 1);
        return;
    }
    hopper::setmaxnreg_inc<232>();
    const size_t row = size_t(blockIdx.x) * kTileM + threadIdx.x / 32 * 16 + lane / 4;
    const T* const rows[2] = {&z[min(row, N - 1) * pitch], &z[min(row + 8, N - 1) * pitch]};
    auto release = [&](int stage) {  // each warp tells all blocks that copy into this one
        if (lane < kCluster) hopper::mbarrier_arrive_cluster(&memory.empty[stage], lane);
    };
    float sums[kTileN / 2];
    uint32_t a[kInFlight + 1][4];  // wgmma read one while the next is made
    auto tile = FeatureTile<T>::at(first);
    Numbers<T> now;
    now.load_panel(rows, tile), now.load_factors(rows, tile);
    Numbers<T> next = now;
    int previous = 0;
    for (unsigned int s = first; s < last; ++s, at.advance()) {
        tile.advance(width);
        if (s + 1 < last) {  // a step early
            next.load_factors(rows, tile);
            if (tile.i == 0) next.load_panel(rows, tile);
        }
        hopper::mbarrier_wait(&memory.full[at.stage], at.parity);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            uint32_t(&fragment)[4] = a[k % (kInFlight + 1)];
            now.multiply(k, fragment);
            hopper::wgmma_fence();
            hopper::wgmma_mma_async<T>(sums, fragment, memory.W[at.stage].descriptor(k),
                                       s > first || k > 0);
            hopper::wgmma_commit_group();
            hopper::wgmma_wait_group<kInFlight>();
            if (k == kInFlight - 1 && s > first) release(previous);
        }
        previous = at.stage, now = next;
    }
    hopper::wgmma_wait_group<0>();
    release(previous);
    partials += blockIdx.z * N * kHidden + block_col + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j)  // a thread has 2 columns of every 8, in 2 rows
        for (int r = 0; r < 2; ++r)
            if (row + 8 * r < N)
                *reinterpret_cast<float2*>(&partials[(row + 8 * r) * kHidden + j * 8]) = {
                    sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1]};
}

/// hidden = relu(b + all partial sums). A thread has 4 columns.
template <class T>
__global__ void add_partials(const float4* partials, int count, const T* b, T* hidden,
                             size_t quarter) {  // of the size of one
    const size_t e = dlrm::my_index();
    if (e >= quarter) return;
    const dlrm::Four<T> bias = dlrm::four(&b[e * 4 % kHidden]);
    float sums[4];
    for (int c = 0; c < 4; ++c) sums[c] = bias.at[c];
    for (int p = 0; p < count; ++p) {
        const float4 v = partials[p * quarter + e];
        sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
    }
    dlrm::Four<T> result;
    for (int c = 0; c < 4; ++c) result.at[c] = T(fmaxf(sums[c], 0.0f));
    dlrm::four(&hidden[e * 4]) = result;
}

/// For the outer product: the bottom MLP alone, into z; and the layers after `hidden`.
template <int kRows, class T>
__global__ void __launch_bounds__(kMlpThreads, 1)
    bottom_layers(const __grid_constant__ Model<T> m, T* z, size_t pitch) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Block<kRows, T> block(m, shared);
    const auto work = [&](size_t first) {
        block.bottom_mlp(first);
        block.for_each_four(first, int(m.E), pitch, [&](int from, size_t to) {
            dlrm::four(&z[to]) = dlrm::four(&block.narrow[from]);
        });
        meet();  // nobody needs `narrow` any more
    };
    block.run(0, m.bottom_tiles, work, [](size_t) {});
}
template <int kRows, class T>
__global__ void __launch_bounds__(kMlpThreads, 1) top_layers(const __grid_constant__ Model<T> m) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Block<kRows, T> block(m, shared);
    const auto work = [&](size_t first) {
        block.for_each_four(first, kHidden, kHidden, [&](int to, size_t from) {
            dlrm::four(&block.wide[to]) = dlrm::four(&m.hidden[from]);
        });
        meet();  // the first layer's results are there
        block.top_mlp(first);
    };
    block.run(m.bottom_tiles, m.tiles, work, [](size_t) {});
}

// --- fused_model: --dot in one kernel ------------------------------------------------------------
// Adds    to lesson 13's grouped: all the rest. A block takes 16 to 64 samples through the whole
//         model. Nothing is stored but the result (and the top MLP's first layer, to be verified).
//         Its threads multiply by wgmma, with weights out of a ring that one thread fills. Three
//         warps fetch the rows of the tables into L2, a group of samples ahead.
//         The 351 products of a sample are six tiles of mma, by one warp. The rows of the tables
//         come straight into its registers, and each tile of 8 vectors serves as both operands.
// Costs   each block reads all weights, 1 MB (in TF32 2), for each group of samples. Hopper alone.
// Limits  up to 2112 samples, 16 a block, the copies of weights: about 50 bytes a clock into each
//         multiprocessor. With more samples also lookups: a warp has one sample's on their way.
//         With very many samples, or long vectors, a kernel for lookups alone is faster.
// Source  Müller et al., "Real-time Neural Radiance Caching for Path Tracing", 2021, as lesson 12.

/// d[16, 8] += a[16, kDepth] b[kDepth, 8].
template <class T>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, half>)
        ptx::mma_m16n8k16(d, a, b0, b1);
    else
        ptx::mma_m16n8k8(d, a, b0, b1);
}

/// Lanes 1 to 26 have a table each; other lanes' ids and rows are any.
__device__ bool looks_up() {
    const int lane = threadIdx.x % 32;
    return lane > 0 && lane < dlrm::kVectors;
}
template <class T>
__device__ const T* row_at(const Model<T>& m, uint32_t row) {
    return &m.tables[((threadIdx.x % 32 - 1) * demo::DlrmShape::kRows + row) * m.E];
}
/// Where vector `lane` of sample n is.
template <class T>
__device__ const T* vector_of(const Model<T>& m, size_t n) {
    if (!looks_up()) return m.tables;  // its products are not used
    const size_t id = n * kTables + threadIdx.x % 32 - 1;
    return row_at(m, m.rows ? m.rows[id] : modulus_hash(m.ids[id]));
}

/// The dot products of a sample's vectors, by a warp.
template <class T>
struct Products {
    float sums[6][4] = {};  // 16 x 8 products: two tiles for vectors 0 to 15, four for the rest

    /// Adds the products of 32 bytes of each vector. A thread has word lane % 4 of both 16 bytes of
    /// vector 8 q + lane / 4: low[q] and high[q]. A tile of 8 vectors is rows and columns.
    __device__ void add(const uint32_t (&low)[4], const uint32_t (&high)[4]) {
#pragma unroll
        for (int tile = 0; tile < 6; ++tile) {
            const int i = tile < 2 ? 0 : 2, j = tile < 2 ? tile : tile - 2;
            const uint32_t a[4] = {low[i], low[i + 1], high[i], high[i + 1]};
            mma<T>(sums[tile], a, low[j], high[j]);
        }
    }
    /// Pair p = vectors i > j is stored at(p).
    template <class At>
    __device__ void store(At at) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int tile = 0; tile < 6; ++tile)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int i = (tile < 2 ? 0 : 16) + lane / 4 + e / 2 * 8;
                const int j = (tile < 2 ? tile : tile - 2) * 8 + lane % 4 * 2 + e % 2;
                if (i < dlrm::kVectors && j < i) *at(i * (i - 1) / 2 + j) = T(sums[tile][e]);
            }
    }
};

/// Features E ... `end` of a sample, zeros behind the products. The first vector is features 0 ...
/// E - 1. at(c) is where feature c is. A thread loads 8 bytes, as an mma needs, or 16.
template <class Piece, class T, class At>
__device__ void interact(const T* vector, int E, int end, At at) {
    constexpr int kMmas = sizeof(Piece) / 8;  // mma of a piece
    const int lane = threadIdx.x % 32;
    const T* vectors[4];  // that this thread loads from: one of each 8
#pragma unroll
    for (int q = 0; q < 4; ++q)
        vectors[q] = reinterpret_cast<const T*>(
            __shfl_sync(~0u, reinterpret_cast<unsigned long long>(vector), 8 * q + lane / 4));
    Products<T> products;
#pragma unroll(2 / kMmas)
    for (int k = 0; k < E; k += kMmas * kDepth<T>) {
        // mma wants thread t to have numbers 2t, 2t + 1, 2t + 8, 2t + 9 of 16. A sum's order is
        // free, so t has four neighbors; in TF32 2t and 2t + 1 of 8, in place of t and t + 4.
        const int c = k + lane % 4 * (kMmas * kDepth<T> / 4);
        uint32_t words[2 * kMmas][4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            Piece some{};
            if (c < E)
                some = *reinterpret_cast<const Piece*>(q == 0 && lane < 4 ? at(c) : &vectors[q][c]);
#pragma unroll
            for (int w = 0; w < 2 * kMmas; ++w)
                words[w][q] = reinterpret_cast<const uint32_t(&)[2 * kMmas]>(some)[w];
        }
#pragma unroll
        for (int s = 0; s < kMmas; ++s) products.add(words[2 * s], words[2 * s + 1]);
    }
    products.store([=](int p) { return at(E + p); });
    for (int c = E + dlrm::kPairs + lane; c < end; c += 32) *at(c) = T(0.0f);
}

template <int kRows, class T>
__global__ void __launch_bounds__(kMlpThreads, 1) fused_model(const __grid_constant__ Model<T> m) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Block<kRows, T> block(m, shared);
    auto lookup = [&](size_t first, int r) { return vector_of(m, min(first + r, m.N - 1)); };
    const auto ahead = [&](size_t first) {  // three warps fetch the rows of the tables into L2
#pragma unroll 1
        for (int r = threadIdx.x / 32 % 4 - 1; r < kRows; r += 3) {
            const T* const vector = lookup(first, r);
            for (unsigned int e = 0; e < m.E; e += 128 / sizeof(T)) ptx::prefetch_L2(&vector[e]);
        }
    };
    const auto work = [&](size_t first) {
        const int warp = threadIdx.x / 32;
        const T* vector = lookup(first, warp);
        block.bottom_mlp(first);
#pragma unroll 1
        for (int r = warp; r < kRows; r += kWarps) {
            const T* const now = vector;
            vector = lookup(first, r + kWarps);  // while this sample's products are computed
            // The shuffle keeps E's value here: else the compiler would compute all places of
            // features before the first layer, in registers that are needed.
            const int E = __shfl_sync(~0u, int(m.E), 0), end = int(m.features());
            auto at = [&](int c) { return &block.narrow[place<kRows, T>(r, c)]; };
            if (E * sizeof(T) % 64 == 0)  // four lanes load 16 bytes each
                interact<uint4>(now, E, end, at);
            else
                interact<uint2>(now, E, end, at);
        }
        meet();  // the features are complete
        block.apply(m.top[0], block.narrow, block.wide);
        block.for_each_four(first, kHidden, kHidden, [&](int from, size_t to) {
            dlrm::four(&m.hidden[to]) = dlrm::four(&block.wide[from]);
        });
        block.top_mlp(first);
    };
    block.run(0, m.tiles, work, ahead);
}

// --- all_products: lookups and products between the library's gemms ------------------------------
// Adds    to lesson 13's gather_dot: copies that never stop. A block is a warp, and does sample
//         after sample. While it multiplies, the next sample's vectors arrive in shared memory, and
//         the ids after that in registers. With E = 128 the 14 warps of a multiprocessor have 100
//         KB under way; 32 KB would be enough to keep memory busy.
// Costs   shared memory: two samples' vectors for each warp.
// Limits  memory: each lookup reads a row, 256 bytes with E = 128. See --lookups.
// Source  CUDA Programming Guide, "Asynchronous Data Copies"; Little's law.

/// Bytes from vector to vector in shared memory: a multiple of 32, as an mma step takes, plus 16,
/// so that ldmatrix finds 8 vectors in different banks.
template <class T>
__host__ __device__ int room(unsigned int E) {
    return (E * sizeof(T) + 31) / 32 * 32 + 16;
}
/// f[n] = [the first vector, which is there already | the products | zeros], in rows of `pitch`. A
/// Piece is 16 bytes, or 8 where a vector's size is no multiple of 16.
template <class Piece, class T>
__global__ void __launch_bounds__(32)
    all_products(const __grid_constant__ Model<T> m, T* f, int pitch) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x, E = int(m.E), between = room<T>(m.E);
    const int of_sample = dlrm::kVectors * between, count = pitch - E;
    T* const products = reinterpret_cast<T*>(shared + 2 * of_sample);
    if (sizeof(T) * m.E % 32 > 0)  // no copy reaches what fills up the last 32 bytes
        for (int c = lane * 16; c < 2 * of_sample; c += 512)
            *reinterpret_cast<uint4*>(shared + c) = {};
    for (int c = dlrm::kPairs + lane; c < count; c += 32) products[c] = T(0.0f);
    __syncwarp();  // all zeros are there

    auto id_of = [&](size_t n) {
        return looks_up() && n < m.N ? m.ids[n * kTables + lane - 1] : 0;
    };
    // 1 << shift neighboring lanes copy a vector: at least one for each of its pieces.
    const int size = E * int(sizeof(T)), pieces = size / int(sizeof(Piece)),
              shift = pieces > 1 ? 32 - __clz(pieces - 1) : 0;
    const int c = (lane & ((1 << shift) - 1)) * int(sizeof(Piece));
    auto fetch = [&](size_t n, uint32_t id, int stage) {
        if (n < m.N) {
            const T* const vector = looks_up() ? row_at(m, modulus_hash(id)) : &f[n * pitch];
            unsigned char* const to = shared + stage * of_sample + c;
#pragma unroll 4
            for (int first = 0; first < dlrm::kVectors; first += 32 >> shift) {
                const int v = first + (lane >> shift);
                const auto from = reinterpret_cast<const unsigned char*>(
                    __shfl_sync(~0u, reinterpret_cast<unsigned long long>(vector), v % 32));
                if (v >= dlrm::kVectors || c >= size) continue;
                if constexpr (sizeof(Piece) < 16)
                    *reinterpret_cast<Piece*>(&to[v * between]) =
                        *reinterpret_cast<const Piece*>(&from[c]);
                else if (size < 128)
                    ptx::cp_async_16(&to[v * between], &from[c]);
                else  // L2 fetches 128 bytes, most of which are this row's
                    ptx::cp_async_16(&to[v * between], &from[c], true);
            }
        }
        ptx::cp_async_commit_group();
    };

    size_t n = blockIdx.x, next = n + gridDim.x;
    fetch(n, id_of(n), 0);
    uint32_t id = id_of(next);
    const int mine = min(lane, dlrm::kVectors - 1) * between;  // others read the last one
    for (int stage = 0; n < m.N; n = next, next += gridDim.x, stage ^= 1) {
        fetch(next, id, stage ^ 1);
        id = id_of(next + gridDim.x);
        ptx::cp_async_wait_group<1>();
        __syncwarp();  // the other lanes' copies are there, too
        const unsigned char* const vector = shared + stage * of_sample + mine;
        Products<T> sums;
#pragma unroll 2
        for (int k = 0; k < between - 16; k += 32) {
            uint32_t low[4], high[4];
            ptx::ldmatrix_x4(low, &vector[k]);
            ptx::ldmatrix_x4(high, &vector[k + 16]);
            sums.add(low, high);
        }
        sums.store([=](int p) { return &products[p]; });
        __syncwarp();  // the products are there, and nobody needs the vectors any more
        for (int c = lane * 4; c < count; c += 128)
            dlrm::four(&f[n * pitch + E + c]) = dlrm::four(&products[c]);
        __syncwarp();  // nobody needs the products any more
    }
}

/// Numbers from row to row of f: a multiple of 16.
static size_t products_pitch(const demo::DlrmShape& shape) {
    return (shape.features + 15) / 16 * 16;
}
/// Launches it, with as many warps as are resident at a time.
template <class T>
static void launch_products(const Model<T>& model, T* f, size_t pitch, const demo::Gpu& gpu,
                            cudaStream_t stream) {
    auto launch = [&](auto kernel) {
        const size_t bytes = 2 * dlrm::kVectors * room<T>(model.E) + (pitch - model.E) * sizeof(T);
        demo::allow_shared_bytes(kernel, bytes);
        const size_t most =
            gpu.multiprocessors * demo::blocks_per_multiprocessor(kernel, 32, bytes);
        kernel<<<std::min(model.N, most), 32, bytes, stream>>>(model, f, int(pitch));
    };
    model.E * sizeof(T) % 16 == 0 ? launch(all_products<uint4, T>) : launch(all_products<uint2, T>);
}

// --- index_hash: what the talk began with --------------------------------------------------------
// A lookup that compares an id with all that are known; its row stands where it is found. So each
// id has a row of its own. But it is 100,000 comparisons, for what modulus_hash does by a few
// multiplications. (Here an id's row stands beside it, so that the model stays the same.)

/// known[t, p]: an id of table t, and its row. One of the samples' ids, so that all are found.
__global__ void learn_ids(const uint32_t* ids, uint2* known, size_t N) {
    const size_t e = dlrm::my_index(), t = e / demo::DlrmShape::kRows;
    if (t >= kTables) return;
    const uint32_t id = ids[e % demo::DlrmShape::kRows % N * kTables + t];
    known[e] = {id, modulus_hash(id)};
}

/// rows[n, t] = the row of ids[n, t]. A block has one table and 256 samples.
__global__ void index_hash(const uint32_t* ids, const uint2* known, uint32_t* rows, size_t N) {
    __shared__ uint2 some[dlrm::kElementThreads];
    const size_t n = dlrm::my_index(), e = min(n, N - 1) * kTables + blockIdx.y;
    known += blockIdx.y * demo::DlrmShape::kRows;
    const uint32_t id = ids[e];
    uint32_t row = 0;
    for (size_t first = 0; first < demo::DlrmShape::kRows; first += dlrm::kElementThreads) {
        const size_t count = min(demo::DlrmShape::kRows - first, size_t(dlrm::kElementThreads));
        if (threadIdx.x < count) some[threadIdx.x] = known[first + threadIdx.x];
        __syncthreads();  // these ids are there
        for (size_t k = 0; k < count; ++k)
            if (some[k].x == id) row = some[k].y;
        __syncthreads();  // nobody needs them any more
    }
    if (n < N) rows[e] = row;
}

// --- Launching -----------------------------------------------------------------------------------

/// The model with the outer product. Must not outlive `model` and `mlps`.
template <class T>
class Outer {
  public:
    Outer(const demo::Dlrm<T>& model, const demo::DlrmLayers<T>& mlps, const Packed<T>& packed,
          const demo::Session& session)
        : m(model), mlps(mlps), packed_(packed), session_(session) {}

    /// The size of W when it is folded: the least that a model must read.
    size_t packed_bytes() const { return W_.bytes(); }

    demo::Contender library_best() const {
        auto between = [this](cudaStream_t stream) {
            gather(stream);
            constexpr size_t kOfBlock = 256 * demo::Vector<T>::kSize;
            const dim3 blocks(N, (features + kOfBlock - 1) / kOfBlock);
            half_outer<<<blocks, 256, 0, stream>>>(z_.data(), pitch, f_.data(), features);
        };
        return mlps.graph({.kernel = "library_best",
                           .role = demo::Role::kLibrary,
                           .check = m.check(true),
                           .launches = 2,
                           .temporary_bytes = z_.bytes() + f_.bytes(),
                           .moved_bytes = m.lookup_bytes() + sizeof(T) * N * (width + features),
                           .renew =
                               [this] {
                                   pack();
                                   if (kTurned<T>) mlps.turn_W();
                               }},
                          {z_.data(), pitch, f_.data(), W_.data(), features, true, kTurned<T>},
                          between);
    }

    demo::Contender folded() const {
        const auto setup = [this](demo::Contender& self) {
            self.renew();
            const double ms = demo::quick_time([this] { fold_weights(); });
            if (!session_.options.once)
                session_.note("folding W took " + demo::time_text(ms) + ": once, and not counted");
            launch(nullptr);  // a kernel's first launch loads it
            const auto graph =
                std::make_shared<demo::Graph>([this](cudaStream_t stream) { launch(stream); });
            self.launch = [graph] { (*graph)(); };
        };
        const size_t moved = sizeof(T) * N * (E + width) + W_.bytes() + 2 * partials_.bytes() +
                             m.top[0].b.bytes() + 2 * m.hidden.bytes();
        return {.kernel = "folded",
                .setup = setup,
                .check = m.check(true),
                .launches = 5,
                .temporary_bytes = z_.bytes() + partials_.bytes() + m.hidden.bytes(),
                .moved_bytes = m.lookup_bytes() + packed_.bytes() + moved,
                .note = "one CUDA graph",
                .why_not = hopper::why_not(session_.gpu),
                .renew = [this] { pack(), packed_.pack(); }};
    }

  private:
    void pack() const {
        DEMO_CHECK(cudaMemset(z_.data(), 0, z_.bytes()));  // behind the width
        fold_weights();
    }
    void fold_weights() const { fold<T><<<steps, 256>>>(m.top[0].W, W_.data(), width, features); }
    void gather(cudaStream_t stream) const {
        using Most = demo::Vector<T>;  // 16 bytes
        E % Most::kSize == 0 ? gather<Most>(stream) : gather<dlrm::Four<T>>(stream);
    }
    template <class Piece>
    void gather(cudaStream_t stream) const {
        const unsigned int pieces = E * sizeof(T) / sizeof(Piece);
        const dim3 block(pieces, 256 / pieces);
        const size_t vectors = N * kTables, of_block = block.y * kLoads;
        gather_pieces<Piece><<<(vectors + of_block - 1) / of_block, block, 0, stream>>>(
            m.ids.data(), m.tables.data(), z_.data(), pitch, vectors, E);
    }
    void launch(cudaStream_t stream) const {
        const Model<T> model = packed_.model();
        gather(stream);
        packed_.with_rows([&](auto rows, int blocks, size_t bytes) {
            const auto kernel = bottom_layers<rows, T>;
            demo::allow_shared_bytes(kernel, bytes);
            kernel<<<blocks, kMlpThreads, bytes, stream>>>(model, z_.data(), pitch);
        });
        row_tiles > 1 ? multiply<2>(stream) : multiply<1>(stream);
        const size_t quarter = N * kHidden / 4;
        add_partials<T><<<dlrm::blocks(quarter), dlrm::kElementThreads, 0, stream>>>(
            reinterpret_cast<const float4*>(partials_.data()), int(splits), m.top[0].b,
            m.hidden.data(), quarter);
        packed_.with_rows([&](auto rows, int blocks, size_t bytes) {
            const auto kernel = top_layers<rows, T>;
            demo::allow_shared_bytes(kernel, bytes);
            kernel<<<blocks, kMlpThreads, bytes, stream>>>(model);
        });
    }
    template <int kCluster>
    void multiply(cudaStream_t stream) const {
        const auto kernel = folded_interaction<T, kCluster>;
        demo::allow_shared_bytes(kernel, sizeof(Memory<T>));
        const dim3 grid((row_tiles + kCluster - 1) / kCluster * kCluster, kHidden / kTileN, splits);
        const CUtensorMap map = hopper::tensor_map(W_.data(), kTurned<T> ? kHidden : features,
                                                   kTurned<T> ? features : kHidden, 64);
        kernel<<<grid, kThreads, sizeof(Memory<T>), stream>>>(z_.data(), map, partials_.data(), N,
                                                              pitch, width, steps);
    }

    const demo::Dlrm<T>& m;
    const demo::DlrmLayers<T>& mlps;
    const Packed<T>& packed_;
    const demo::Session& session_;
    const size_t N = m.shape.N;
    const unsigned int E = m.shape.E, width = m.shape.width, steps = FeatureTile<T>::count(width);
    const size_t pitch = (width + 15) / 16 * 16, features = size_t(steps) * kFeatures<T>;
    // Few samples make few tiles, so several blocks divide the steps of each: 132 blocks in all,
    // one for each multiprocessor of an H100 or H200, with 8 steps or more.
    const size_t row_tiles = (N + kTileM - 1) / kTileM, tiles = row_tiles * (kHidden / kTileN),
                 splits = std::max<size_t>(std::min(132 / tiles, size_t(steps / 8)), 1);
    const demo::Buffer<T> z_{N, pitch}, f_{N, features}, W_{features, kHidden};
    const demo::Buffer<float> partials_{splits * N, kHidden};
};

/// The model with dot products, in one kernel. Must not outlive `packed`.
template <class T>
class Dot {
  public:
    Dot(const demo::DlrmLayers<T>& mlps, const Packed<T>& packed, const demo::Session& session)
        : m(packed.m), mlps(mlps), packed_(packed), session_(session) {}

    demo::Contender library_best() const {
        auto between = [this](cudaStream_t stream) {
            launch_products(packed_.model(), f_.data(), pitch, session_.gpu, stream);
        };
        auto pad = [this] {  // the weights, with zeros for the features' padding
            const demo::Input<T>& W = m.top[0].W;
            DEMO_CHECK(cudaMemset(W_.data(), 0, W_.bytes()));
            if (kTurned<T>) {
                demo::turn<T><<<dlrm::blocks(W.size()), dlrm::kElementThreads>>>(
                    W, W_.data(), m.top[0].K, kHidden, pitch);
                mlps.turn_W();
            } else {
                DEMO_CHECK(cudaMemcpy(W_.data(), W, W.bytes(), cudaMemcpyDeviceToDevice));
            }
        };
        return mlps.graph(
            {.kernel = "library_best",
             .role = demo::Role::kLibrary,
             .launches = 1,
             .temporary_bytes = f_.bytes(),
             .moved_bytes = m.shape.N * (kTables * (4 + sizeof(T) * m.shape.E) + sizeof(T) * pitch),
             .renew = pad},
            {f_.data(), pitch, f_.data(), W_.data(), pitch, true, kTurned<T>}, between);
    }

    demo::Contender fused_model(const demo::Workload& work) const {
        const auto setup = [this](demo::Contender& self) {
            self.renew();
            self.launch = prepare(nullptr);
        };
        return {.kernel = "fused_model",
                .setup = setup,
                .moved_bytes = work.least_bytes,
                .why_not = hopper::why_not(session_.gpu),
                .renew = [this] { packed_.pack(); }};
    }
    demo::Contender index_hash(const demo::Workload& work) const {
        const size_t N = m.shape.N;
        auto learn = [=, this] {
            packed_.pack();
            learn_ids<<<dlrm::blocks(known_.size()), dlrm::kElementThreads>>>(m.ids, known_.data(),
                                                                              N);
        };
        const auto setup = [=, this](demo::Contender& self) {
            self.renew();
            self.launch = [=, this, model = prepare(rows_.data())] {
                dlrm_hopper::index_hash<<<dim3(dlrm::blocks(N), kTables), dlrm::kElementThreads>>>(
                    m.ids, known_.data(), rows_.data(), N);
                model();
            };
        };
        const std::string many = N > demo::DlrmShape::kRows ? "knows no more ids than rows" : "";
        return {.kernel = "index_hash",
                .role = demo::Role::kYardstick,
                .setup = setup,
                .launches = 2,
                .temporary_bytes = rows_.bytes(),
                .moved_bytes = work.least_bytes + known_.bytes() + 2 * rows_.bytes(),
                .note = "fused_model, after a search for each id",
                .why_not = many.empty() ? hopper::why_not(session_.gpu) : many,
                .renew = learn};
    }

  private:
    std::function<void()> prepare(const uint32_t* rows) const {
        std::function<void()> launch;
        packed_.with_rows([&](auto of_block, int blocks, size_t bytes) {
            const auto kernel = dlrm_hopper::fused_model<of_block, T>;
            demo::allow_shared_bytes(kernel, bytes);
            Model<T> model = packed_.model();
            model.rows = rows;
            launch = [=] { kernel<<<blocks, kMlpThreads, bytes>>>(model); };
        });
        return launch;
    }

    const demo::Dlrm<T>& m;
    const demo::DlrmLayers<T>& mlps;
    const Packed<T>& packed_;
    const demo::Session& session_;
    const size_t pitch = products_pitch(m.shape);
    const demo::Buffer<T> f_{m.shape.N, pitch}, W_{pitch, kHidden};
    const demo::Buffer<uint2> known_{kTables, demo::DlrmShape::kRows};
    const demo::Buffer<uint32_t> rows_{m.shape.N, kTables};
};

/// What all_products must leave of a feature: of the first vector, of a product, or zero.
template <class T>
struct ExpectProduct {
    const uint32_t* ids;
    const T *tables, *first;
    size_t E;

    __device__ demo::Expected operator()(size_t, size_t n, size_t column) const {
        auto vector = [=, this](size_t v) {
            if (v == 0) return &first[n * E];
            const size_t row = dlrm::row_of(ids[n * kTables + v - 1]);
            return &tables[((v - 1) * demo::DlrmShape::kRows + row) * E];
        };
        if (column < E) return {double(float(first[n * E + column])), 0};
        if (column >= E + dlrm::kPairs) return {0, 0};
        const int2 pair = dlrm::pair(int(column - E));
        const T *a = vector(pair.x), *b = vector(pair.y);
        demo::DlrmTerms<T> terms{0};
        for (size_t e = 0; e < E; ++e) terms.add(double(float(a[e])) * double(float(b[e])), 0);
        const demo::DlrmSum sum = terms.end(E);
        constexpr demo::Format format = demo::kFormat<T>;
        return {sum.value, sum.error() + format.roundoff * fabs(sum.value) + format.subnormal};
    }
};

/// --lookups: all_products beside a copy of as many bytes as it reads and writes.
template <class T>
static void run_lookups(demo::Session& session, const demo::DlrmShape& shape) {
    const size_t N = shape.N, E = shape.E, pitch = products_pitch(shape);
    const bool zipf = session.options.choice("--ids") == "zipf";
    const demo::Input<uint32_t> ids(session, "ids", {N, kTables},
                                    {.then = zipf ? demo::Then::kZipf : demo::Then::kNothing});
    const demo::Input<T> tables(session, "tables", {kTables, demo::DlrmShape::kRows, E});
    const demo::Input<T> first(session, "first", {N, E});
    const demo::Output<T> f(session, "features", {N, pitch});
    Model<T> model{};
    model.ids = ids, model.tables = tables, model.N = N, model.E = unsigned(E);
    const size_t rows = demo::saturating_product(N, kTables, E, sizeof(T));
    const demo::Workload work{
        .shape = "lookups" + (E == shape.kUsualE ? "" : "e" + std::to_string(E)),
        .size = N,
        .dtype = session.dtype(),
        .flops = 2.0 * double(dlrm::kPairs * N) * double(E),
        .least_bytes = demo::saturating_sum(ids.bytes(), std::min(rows, tables.bytes()), f.bytes()),
        .memory_bound = true,
        .text = std::to_string(N) + " samples, 27 vectors of " + std::to_string(E),
        .arithmetic = "fp32 sums"};
    const auto copy_first = [&] {
        DEMO_CHECK(cudaMemcpy2DAsync(f, pitch * sizeof(T), first, E * sizeof(T), E * sizeof(T), N,
                                     cudaMemcpyDeviceToDevice));
    };
    const demo::Contender all_products{
        .kernel = "all_products",
        .launch = [&] { launch_products(model, f.data(), pitch, session.gpu, nullptr); },
        .moved_bytes = work.least_bytes,
        .prepare = copy_first};
    session.run(work, f.check(ExpectProduct<T>{ids, tables, first, E}),
                {all_products, demo::copy_contender(session, work)});
}

template <class T>
static void run(demo::Session& session) {
    const demo::DlrmShape shape = demo::DlrmShape::of(session.options);
    if (session.options.flag("--lookups")) return run_lookups<T>(session, {shape.N, shape.E, true});
    const demo::Dlrm<T> m(session, shape, !shape.dot);
    const demo::DlrmLayers<T> mlps(m);
    const demo::DlrmChain<T> chain(m, mlps);
    const demo::Buffer<T> z(shape.N, shape.width), f(shape.N, shape.pitch);
    std::vector<demo::Contender> all{chain.contender(), dlrm::grouped(m, mlps, z.data(), f.data())};
    const Packed<T> packed(m, session.gpu);
    demo::Workload work = m.workload(session);
    auto run_all = [&](const auto&... more) {
        (all.push_back(more), ...);
        session.run(work, m.check(), all);
    };
    if (shape.dot) {
        work.least_bytes += m.hidden.bytes();  // an output, too
        const Dot<T> dot(mlps, packed, session);
        run_all(dot.library_best(), dot.fused_model(work), dot.index_hash(work));
    } else {
        const Outer<T> outer(m, mlps, packed, session);
        work.least_bytes -= m.top[0].W.bytes() - outer.packed_bytes();
        run_all(outer.library_best(), outer.folded());
    }
}

}  // namespace dlrm_hopper

int main(int argc, char** argv) {
    demo::Program program{
        .name = "bonus_dlrm",
        .summary = "the fastest DLRM on Hopper: half of the features, made in registers",
        .types = {{"fp16", dlrm_hopper::run<half>}, {"tf32", dlrm_hopper::run<float>}},
        .any_n = true,
        .n_means = "samples",
        .default_n = demo::kSimulator ? 8 : 2048,
        .options = demo::dlrm_options(),
        .sizes = {128, 2048, 16384},
        .variants = {"128 --dot", "2048 --dot", "16384 --dot", "65536 --dot --embedding 128",
                     "65536 --lookups --embedding 128"}};
    program.options.push_back(
        {.name = "--lookups", .help = "lookups and dot products alone, beside a copy"});
    return demo::main_of(program, argc, argv);
}
