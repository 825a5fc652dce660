// Bonus: the fastest DLRM on Hopper (compute capability 9.0), in fp16 and in TF32; see lesson 13.
//
// The outer product. Feature z_i z_j is feature z_j z_i, so W[i, j] and W[j, i], two rows of 512
// weights, may be added up beforehand, once. That leaves half of the work, 93,528 features with
// E = 16. The gemm makes them where wgmma can read them: in registers.
//
//      16 columns j of z each           a thread holds its numbers of 16 columns of z, as wgmma
//      i  +---+---+---+---+             wants A. For each i it multiplies them by z_i of their
//      |  |   |   |   |   |             rows, and that is the next A, of 16 features. Nothing of
//      v  +---+---+---+---+             it is stored; only W streams through shared memory.
//             |   |   |   |
//             +---+---+---+             W is packed in the order in which this walks through the
//                 |   |   |             features: for each 16 j, all i up to j + 15; with zeros
//     used:       +---+---+             where i > j. Those are 3.3% of it.
//     i <= j + 15     |   |
//                     +---+             (In TF32 all of these 16 are 8, and 3.3% are 1.6%.)
//
// What limits it: the tensor cores, and the GPU's power; with few samples reading W.
//
// --dot and --lookups run the kernels of another ladder, dot products: dlrm/dlrm_dot.cuh.
//
//     ./bonus_dlrm 2048        ./bonus_dlrm 65536 --dot        ./bonus_dlrm 65536 --lookups
#include "demo.cuh"
#include "dlrm/dlrm_dot.cuh"
#include "dlrm/dlrm_mlps.cuh"
#include "dlrm/grouped.cuh"
#include "dlrm/library.cuh"
#include "hopper.cuh"
#include "matmul/matmul_hopper.cuh"
#include "rows/rows.cuh"

namespace dlrm_hopper {

using matmul_hopper::kPanel, matmul_hopper::kWarpgroup;

// --- What both rungs share: lookups --------------------------------------------------------------

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

// --- ... and the order of the features -----------------------------------------------------------

/// A step of the gemm multiplies a tile of features, 128 bytes of a row: 4 numbers of z from i on,
/// each times kDepth numbers from j on.
template <class T>
constexpr int kFeatures = 4 * kDepth<T>;
template <class T>
struct FeatureTile {
    unsigned int i, j;

    /// The tile of step s. Block B of kDepth columns, each with i up to its last column, has
    /// kDepth / 4 (B + 1) steps. Where it begins, 32 / kDepth s + 1 is (2 B + 1)^2, and up to where
    /// the next one does the root is less than 2 B + 3. sqrtf rounds correctly, so of such small
    /// numbers, below 2^20, it is right at both ends.
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
// Adds    to lesson 13's grouped: W folded, half of the features, in the packed order.
// Costs   packing W, once: a read of W and a write of half of it.
// Limits  the features, written and read once, and the library's gemm.
// Source  lesson 13's exercise.

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
// Adds    features made in the registers of wgmma, and never stored; W by TMA, each tile for both
//         blocks of a cluster, which have different samples. (In TF32 wgmma ignores a feature's
//         last 13 bits, as it does W's.) Few samples make few tiles: then blocks divide a tile's
//         steps, and add_partials() adds their sums.
// Costs   two sets of registers for A, four multiplications before each wgmma. Hopper alone.
// Limits  the tensor cores, from 4096 samples on; with 128 W's 95 MiB (TF32: 186), read once.
// Source  PTX ISA, "wgmma.mma_async" with A in registers.

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
        const dim3 grid(row_tiles, kHidden / kTileN, splits);
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
    // One, or for clusters of two an even number.
    const size_t row_tiles = N <= kTileM ? 1 : (N + 2 * kTileM - 1) / (2 * kTileM) * 2;
    // Few samples make few tiles, so several blocks divide the steps of each: up to 132 blocks in
    // all, one for each multiprocessor of an H100 or H200, with 8 steps or more.
    const size_t tiles = row_tiles * (kHidden / kTileN),
                 splits = std::max<size_t>(std::min(132 / tiles, size_t(steps / 8)), 1);
    const demo::Buffer<T> z_{N, pitch}, f_{N, features}, W_{features, kHidden};
    const demo::Buffer<float> partials_{splits * N, kHidden};
};

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
        run_all(dot.library_best(), dot.fused_model(work));
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
