// Bonus: the fastest MLP on Hopper (compute capability 9.0), L layers of h = gelu(h W + b), in
// fp16; see lesson 12. Many rows and few rows are two problems:
//
//   by_warpgroup   64 rows pass all layers in one warpgroup's registers, as in lesson 12:
//
//       x --TMA--> tile --wgmma--> sums --gelu--> h --wgmma--> sums --> ... --TMA--> out
//                                          W, a panel of shared memory
//
//   by_cluster     16 rows in a cluster of D / 64 blocks. Each has 64 columns of every W, and sends
//                  what it makes of h to all of them:
//
//       block 0:  h W[.., 0..63]   \   / h  \   / h W[.., 0..63]   \   /
//       block 1:  h W[.., 64..127]  >-<  h   >-<  h W[.., 64..127]  >-<  ...
//
//     ./bonus_mlp 1048576        ./bonus_mlp 131072 --dim 256        ./bonus_mlp 256 --dim 256
//
// What limits it: how well gelu and products overlap; with few rows, latency (bonus_async shows
// launches that overlap).
#include "demo.cuh"
#include "demo/copy.cuh"
#include "hopper.cuh"
#include "mlp/unfused.cuh"

namespace mlp_hopper {

constexpr int kPanel = 64;  // columns: rows of 128 bytes, as TMA and wgmma want them

/// gelu(2 s), lesson 12's formula. Of a sum and half a bias, s is a single instruction.
__device__ float gelu_of_twice(float s) {
    const float t = ptx::tanh_approx(s * (2 * 0.79788456f + 8 * 0.035677408f * s * s));
    return s + s * t;
}

/// What both kernels must know. D, a multiple of 64, is `width` rounded up: TMA copies zeros in
/// place of columns that W does not have, and leaves them out of what it stores.
struct Layers {
    int count, width;
};

// --- by_warpgroup -------------------------------------------------------------------------------
// Adds: wgmma, with h in registers: rounded, a thread's sums are what it must hold of h for the
// next layer, as with mma. While one warpgroup waits for its product, others compute gelu. All of
// W stays in shared memory, or, where it does not fit, comes by in a ring of stages of 64 rows.
// Costs: Hopper alone, and all registers: D / 2 sums and D / 4 of h. So D ends at 256. Where W
// comes by, all of it passes for 64 rows of each warpgroup: the larger D, the less reuse.
// Limits: how well gelu and products overlap. At D = 128 tensor cores and tanh's unit are busy in
// 51% of the cycles each, and instructions are issued in 58%; at D = 64 28, 55 and 70% (by ncu).
// Beyond, two warpgroups are few: at D = 256 tensor cores are busy in 65%, and issue in 40%.
// Source: Shah et al., "FlashAttention-3", 2024, where a product's sums become the next one's
// operand; Müller et al., "Real-time Neural Radiance Caching for Path Tracing", 2021.

constexpr int kRows = 64, kWarpgroup = 128;  // of a tile; threads that multiply it
constexpr size_t kMostStages = 16;           // of W

/// 64 rows of a layer's W.
template <int D>
struct Stage {
    half W[D / kPanel][kPanel][kPanel];  // panels of 64 columns; rows swizzled
};

template <int D, int kWarpgroups, int kTiles>
struct alignas(1024) Memory {
    half x[kWarpgroups][kTiles][D / kPanel][kRows][kPanel];  // all rows here are swizzled
    half out[4 * kWarpgroups][16][kPanel];                   // of each warp
    hopper::Barrier arrived[kWarpgroups][kTiles];            // a tile of x has
    hopper::Barrier full[kMostStages], empty[kMostStages];   // of the stages of W
    hopper::Barrier turn[2];                                 // of a warpgroup, to multiply
};

/// W on its way through a ring of stages, and a thread's place in the ring. If all steps fit, each
/// has a stage of its own, and nothing is copied twice.
template <int D>
struct WeightStream {
    Stage<D>* stages;  // [ring_size]
    hopper::Barrier *full, *empty;
    int ring_size;
    bool streams;       // not all steps fit
    bool waits = true;  // for steps to arrive: if all fit, in the first tile alone
    int left = 0;       // steps that this thread has yet to copy a panel of
    int next = 0;       // step of a tile to copy
    int stage = 0;
    uint32_t parity = 0;  // of the phase of the stage's barriers

    /// Each warp copies another panel: one that copied all four would come late to its products.
    __device__ void copy(int to, const CUtensorMap& W, Layers layers) {
        constexpr int kSteps = D / kPanel;  // of a layer
        const int panel = threadIdx.x % kWarpgroup / 32;
        const int row = next / kSteps * layers.width + next % kSteps * kPanel;
        hopper::mbarrier_arrive_expect_tx(&full[to], sizeof stages[to].W[panel]);
        hopper::tma_load(stages[to].W[panel], W, row, panel * kPanel, &full[to]);
        if (++next == layers.count * kSteps) next = 0;
        --left;
    }

    /// sums = h W of the next layer. operand(k) is what wgmma takes as columns k to k + 15 of h.
    /// release(stage, parity) is called when the warpgroup no longer needs a stage, pass() when the
    /// last products are on their way.
    template <class Operand, class Release, class Pass>
    __device__ void multiply(float (&sums)[D / 2], Operand operand, Release release, Pass pass) {
        int used = 0;
        uint32_t used_parity = 0;
#pragma unroll
        for (int step = 0; step < D; step += kPanel) {
            if (waits) hopper::mbarrier_wait(&full[stage], parity);
            const uint64_t W = hopper::matrix_descriptor(stages[stage].W, sizeof stages[0].W[0]);
            const int one_row = sizeof(half[kPanel]) / 16;  // descriptors count 16 bytes
            hopper::wgmma_fence();
#pragma unroll
            for (int k = 0; k < kPanel; k += 16)
                hopper::wgmma_mma_async<half>(sums, operand(step + k), W + k * one_row,
                                              step + k > 0);
            hopper::wgmma_commit_group();
            if (step > 0) {
                hopper::wgmma_wait_group<1>();  // the step before is done
                release(used, used_parity);
            }
            used = stage, used_parity = parity;
            if (++stage == ring_size) stage = 0, parity ^= streams;
        }
        pass();
        hopper::wgmma_wait_group<0>();
        release(used, used_parity);
    }
};

/// A warp stores its 16 rows of a tile, by way of shared memory: a panel at a time.
template <int D>
__device__ void store_rows(const uint32_t (&h)[D / 16][4], half (&panel)[16][kPanel],
                           const CUtensorMap& to, int row) {
    const int lane = threadIdx.x % 32, own_row = row + threadIdx.x % kWarpgroup / 32 * 16;
#pragma unroll
    for (int p = 0; p < D / kPanel; ++p) {
        if (lane == 0) hopper::cp_async_bulk_wait_group_read<0>();
        __syncwarp();  // the panel may be overwritten
#pragma unroll
        for (int c = 0; c < kPanel / 16; ++c) {
            const uint32_t(&v)[4] = h[p * kPanel / 16 + c];  // 16 x 16 elements
            hopper::stmatrix_x4(&panel[lane % 16][((2 * c + lane / 16) ^ lane % 8) * 8], v[0], v[1],
                                v[2], v[3]);
        }
        hopper::fence_proxy_async();  // makes what this thread wrote visible to TMA
        __syncwarp();
        if (lane == 0) {
            hopper::tma_store(to, own_row, p * kPanel, panel);
            hopper::cp_async_bulk_commit_group();
        }
    }
}

/// A block has kWarpgroups tiles at a time, and blocks loop over these. kTiles of x are in shared
/// memory for each warpgroup, or on their way. Two warpgroups multiply in turn, or both would
/// multiply at the same time, and then both compute gelu.
template <int D, int kWarpgroups, int kTiles>
__global__ void __launch_bounds__(kWarpgroups* kWarpgroup, 1)
    by_warpgroup(const __grid_constant__ CUtensorMap x,    // [N, width] row-major
                 const __grid_constant__ CUtensorMap W,    // [layers * width, width]
                 const half* b,                            // [layers, width]
                 const __grid_constant__ CUtensorMap out,  // [N, width], in rows of 16
                 int tiles, Layers layers, int ring_size) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<D, kWarpgroups, kTiles>*>(shared);
    auto* const stages = reinterpret_cast<Stage<D>*>(&memory + 1);
    auto* const half_biases =
        reinterpret_cast<float*>(&stages[ring_size]);  // [layers][D], times 1/2
    constexpr bool kInTurn = kWarpgroups == 2;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroup, 0);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool leader = threadIdx.x % kWarpgroup == 0;
    const int all_steps = layers.count * (D / kPanel);
    WeightStream<D> weights{stages, memory.full, memory.empty, ring_size, ring_size < all_steps};
    // Neighboring tiles are different blocks', so that none has all of the last ones.
    const int first = warpgroup * gridDim.x + blockIdx.x, per_round = gridDim.x * kWarpgroups;

    auto load_tile = [&](int tile, int stage) {  // of x
        hopper::Barrier* const arrived = &memory.arrived[warpgroup][stage];
        hopper::mbarrier_arrive_expect_tx(arrived, sizeof memory.x[0][0]);
        for (int p = 0; p < D / kPanel; ++p)
            hopper::tma_load(memory.x[warpgroup][stage][p], x, tile * kRows, p * kPanel, arrived);
    };
    const bool copies =  // panels of W, for all
        lane == 0 && warpgroup == kWarpgroups - 1 && warp % 4 < D / kPanel;
    if (threadIdx.x == 0) {
        for (int w = 0; w < kWarpgroups; ++w)
            for (hopper::Barrier& arrived : memory.arrived[w]) hopper::mbarrier_init(&arrived, 1);
        for (int s = 0; s < ring_size; ++s) {
            hopper::mbarrier_init(&memory.full[s], D / kPanel);
            hopper::mbarrier_init(&memory.empty[s], 4 * kWarpgroups);
        }
        for (hopper::Barrier& turn : memory.turn) hopper::mbarrier_init(&turn, 4);
        hopper::fence_mbarrier_init();
    }
    __syncthreads();  // the barriers are ready
    if (copies) {
        weights.left = weights.streams ? tiles / per_round * all_steps : all_steps;
        for (int s = 0; s < ring_size; ++s) weights.copy(s, W, layers);
    }
    if (leader)
        for (int t = 0; t < kTiles; ++t)
            if (first + t * per_round < tiles) load_tile(first + t * per_round, t);
    for (int i = threadIdx.x; i < layers.count * D; i += kWarpgroups * kWarpgroup) {
        const int l = i / D, column = i % D;
        half_biases[i] = column < layers.width ? 0.5f * float(b[l * layers.width + column]) : 0;
    }
    __syncthreads();  // the biases are ready

    auto release = [&](int stage, uint32_t parity) {
        if (!weights.streams) return;
        if (lane == 0) hopper::mbarrier_arrive(&memory.empty[stage]);
        if (weights.left == 0) return;
        hopper::mbarrier_wait(&memory.empty[stage], parity);  // for the other warps
        weights.copy(stage, W, layers);
    };
    auto pass = [&] {  // the turn
        if (kInTurn && lane == 0) hopper::mbarrier_arrive(&memory.turn[1 - warpgroup]);
    };
    uint32_t turn = 0;  // the parity of this layer's
    int x_stage = 0;
    uint32_t x_parity = 0;
    for (int tile = first; tile < tiles; tile += per_round) {
        const auto& x_tile = memory.x[warpgroup][x_stage];
        uint32_t h[D / 16][4];  // 64 x 16 numbers each
        hopper::mbarrier_wait(&memory.arrived[warpgroup][x_stage], x_parity);
        for (int l = 0; l < layers.count; ++l, turn ^= 1) {
            float sums[D / 2];
            if (kInTurn) hopper::mbarrier_wait(&memory.turn[warpgroup], turn ^ (warpgroup == 0));
            if (l == 0) {
                weights.multiply(
                    sums,
                    [&](int k) {
                        return hopper::matrix_descriptor(&x_tile[k / kPanel][0][k % kPanel]);
                    },
                    release, pass);
                hopper::barrier_sync_warpgroup(warpgroup);  // nobody needs the tile any more
                const int later = tile + kTiles * per_round;
                if (leader && later < tiles) load_tile(later, x_stage);
                if (++x_stage == kTiles) x_stage = 0, x_parity ^= 1;
            } else {
                weights.multiply(
                    sums, [&](int k) -> const uint32_t(&)[4] { return h[k / 16]; }, release, pass);
            }
#pragma unroll
            for (int j = 0; j < D / 8; ++j) {  // a thread has 2 columns of every 8, in 2 rows
                const float2 bias =
                    *reinterpret_cast<const float2*>(&half_biases[l * D + j * 8 + lane % 4 * 2]);
                for (int i = 0; i < 2; ++i) {
                    const float* v = &sums[4 * j + 2 * i];
                    h[j / 2][j % 2 * 2 + i] = ptx::cvt_rn_x2<half>(
                        gelu_of_twice(0.5f * v[0] + bias.x), gelu_of_twice(0.5f * v[1] + bias.y));
                }
            }
        }
        store_rows<D>(h, memory.out[warp], out, tile * kRows);
        weights.waits = weights.streams;
    }
    if (lane == 0) hopper::cp_async_bulk_wait_group_read<0>();
}

// --- by_cluster ---------------------------------------------------------------------------------
// Adds: with 256 rows by_warpgroup has work for four tiles, and most of the GPU idles. Here 16
// rows occupy D / 64 multiprocessors. All of W, or as many layers as fit, is fetched at the start;
// then a layer is D / 16 mma long, and h goes to the cluster's blocks by st.async.
// Costs: W is read once for 16 rows: for many rows by_warpgroup is faster. Blocks wait for each
// other at each layer. Up to D = 512: a portable cluster ends at eight blocks.
// Limits: latency: of the launch, of the first bytes of W; then of a layer, a third of which is h
// on its way from block to block.
// Source: CUDA Programming Guide, "Distributed Shared Memory"; PTX ISA, "st.async".

constexpr int kClusterRows = 16, kClusterThreads = 256;  // a warp has 8 of the block's columns

template <int D>
struct ClusterMemory {
    half h[2][kClusterRows][D + 8];  // of every second layer; 8 against bank conflicts
    hopper::Barrier complete[2];     // all blocks' parts of h are there
    hopper::Barrier full[64];        // a layer's part of W is there
};

template <int D>
__global__ void HOPPER_CLUSTER(D / kPanel) __launch_bounds__(kClusterThreads)
    by_cluster(const half* x,                          // [N, width] row-major
               const __grid_constant__ CUtensorMap W,  // [layers * width, width]
               const half* b,                          // [layers, width]
               half* out,                              // [N, width]
               size_t N, Layers layers, int ring_size) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const auto stages = reinterpret_cast<half(*)[D][kPanel]>(shared);  // [ring_size]; rows swizzled
    auto& memory = *reinterpret_cast<ClusterMemory<D>*>(&stages[ring_size]);
    constexpr int kBlocks = D / kPanel, kBytes = kClusterRows * D * sizeof(half);
    const int rank = hopper::cluster_ctarank(), L = layers.count, width = layers.width;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t first = size_t(blockIdx.x / kBlocks) * kClusterRows;  // row of the cluster

    auto copy_layer = [&](int l, int stage) {
        hopper::mbarrier_arrive_expect_tx(&memory.full[stage], sizeof stages[0]);
        for (int k = 0; k < D; k += kPanel)
            hopper::tma_load(stages[stage][k], W, l * width + k, rank * kPanel,
                             &memory.full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < ring_size; ++s) hopper::mbarrier_init(&memory.full[s], 1);
        for (hopper::Barrier& complete : memory.complete) hopper::mbarrier_init(&complete, 1);
        hopper::fence_mbarrier_init();
        for (int l = 0; l < ring_size; ++l) copy_layer(l, l);
        for (int l = 1; l <= 2; ++l)
            hopper::mbarrier_arrive_expect_tx(&memory.complete[l % 2], kBytes);
    }
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready
    for (int i = threadIdx.x * 8; i < kClusterRows * D; i += kClusterThreads * 8) {
        const int row = i / D, column = i % D;
        const bool inside = first + row < N && column < width;
        ptx::cp_async_16(&memory.h[0][row][column], &x[inside ? (first + row) * width + column : 0],
                         inside);
    }
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // x is complete

    const int column = rank * kPanel + warp * 8 + lane % 4 * 2;  // of this thread's four sums
    const bool inside = column < width;
    int stage = 0, before = 0;  // this layer's and the last one's
    uint32_t parity = 0;        // of the stage's phase
    for (int l = 0; l < L; ++l) {
        const float2 bias =  // early, since it comes from afar
            inside ? __half22float2(*(const half2*)(&b[l * width + column])) : float2{};
        if (l > 0) {
            // Each warp of the cluster sends its part when it has multiplied. So when all parts
            // have come, nobody needs the h before, nor, in this block, the W before.
            if constexpr (kBlocks == 1)
                __syncthreads();
            else
                hopper::mbarrier_wait(&memory.complete[l % 2], (l - 1) / 2 % 2);
            if (threadIdx.x == 0) {
                if (kBlocks > 1) hopper::mbarrier_arrive_expect_tx(&memory.complete[l % 2], kBytes);
                hopper::fence_proxy_async();  // ldmatrix reads by another way than TMA writes
                if (l - 1 + ring_size < L) copy_layer(l - 1 + ring_size, before);
            }
        }
        hopper::mbarrier_wait(&memory.full[stage], parity);
        float sums[4][4] = {};  // four, since each mma waits for the one before of the same sums
#pragma unroll
        for (int k = 0; k < D; k += 32) {
            uint32_t w[4], h[4];
            ptx::ldmatrix_x4_trans(w, &stages[stage][k + lane][(warp ^ lane % 8) * 8]);
            for (int i = 0; i < 2; ++i) {
                ptx::ldmatrix_x4(h, &memory.h[l % 2][lane % 16][k + 16 * i + lane / 16 * 8]);
                ptx::mma_m16n8k16(sums[k / 32 % 2 * 2 + i], h, w[2 * i], w[2 * i + 1]);
            }
        }
        float v[4];
        for (int e = 0; e < 4; ++e) {
            const float sum = (sums[0][e] + sums[1][e]) + (sums[2][e] + sums[3][e]);
            v[e] = gelu_of_twice(0.5f * (sum + (e % 2 ? bias.y : bias.x)));
        }
        // A thread has two neighbors in two rows. It trades with the next lane for four in one row.
        const uint32_t upper = ptx::cvt_rn_x2<half>(v[0], v[1]);
        const uint32_t lower = ptx::cvt_rn_x2<half>(v[2], v[3]);
        const bool odd = lane % 2;
        const uint32_t other = __shfl_xor_sync(~0u, odd ? upper : lower, 1);
        const uint2 four = odd ? uint2{other, lower} : uint2{upper, other};
        const int row = lane / 4 + odd * 8, at = column - odd * 2;
        if (l + 1 < L) {
            half* const next = &memory.h[(l + 1) % 2][row][at];
            if constexpr (kBlocks == 1)
                *reinterpret_cast<uint2*>(next) = four;
            else
                for (int to = 0; to < kBlocks; ++to)
                    hopper::st_async(reinterpret_cast<float2*>(next),
                                     {__uint_as_float(four.x), __uint_as_float(four.y)},
                                     &memory.complete[(l + 1) % 2], to);
        }
        if (l + 1 == L && first + row < N && inside)
            *reinterpret_cast<uint2*>(&out[(first + row) * width + at]) = four;
        before = stage;
        if (++stage == ring_size) stage = 0, parity ^= 1;
    }
}

// --- Launching ----------------------------------------------------------------------------------

using Launch = std::function<void()>;

static size_t rounded_up(size_t D) { return D <= 64 ? 64 : D <= 128 ? 128 : D <= 256 ? 256 : 512; }

static Layers layers_of(const demo::Mlp& m) { return {int(m.shape.L), int(m.shape.D)}; }

static CUtensorMap map_of_weights(const demo::Mlp& m) {
    return hopper::tensor_map(m.W.data(), m.shape.L * m.shape.D, m.shape.D, kPanel);
}

/// by_warpgroup for one D: how it is launched.
template <int D, int kWarpgroups, int kTiles>
struct ByWarpgroup {
    static constexpr auto kernel = by_warpgroup<D, kWarpgroups, kTiles>;
    static constexpr size_t kSteps = D / kPanel, kThreads = kWarpgroups * kWarpgroup;
    const demo::Mlp& m;
    const demo::Gpu& gpu;
    const size_t N = m.shape.N, L = m.shape.L, width = m.shape.D;
    const size_t fixed = sizeof(Memory<D, kWarpgroups, kTiles>) + L * D * sizeof(float);
    const size_t room = gpu.shared_per_block < fixed ? 0 : gpu.shared_per_block - fixed;
    // At least a layer, or warpgroups that multiply in turn would wait for ever.
    const size_t ring_size =
        std::clamp(room / sizeof(Stage<D>), kSteps, std::min(L* kSteps, kMostStages));
    const size_t bytes = fixed + ring_size * sizeof(Stage<D>);

    std::string why_not() const { return demo::try_shared_bytes(kernel, bytes); }
    Launch prepare() const {
        const CUtensorMap x = hopper::tensor_map(m.x.data(), N, width, kRows),
                          out = hopper::tensor_map(m.out.data(), N, width, 16);
        size_t tiles = (N + kRows - 1) / kRows;
        const size_t blocks = std::min(tiles, size_t(gpu.multiprocessors));
        // Warpgroups that share what comes by, or take turns, compute as many tiles each. Those
        // behind the last row are of zeros, and are not stored.
        const size_t per_round = blocks * kWarpgroups;
        if (ring_size < L * kSteps || kWarpgroups == 2)
            tiles = (tiles + per_round - 1) / per_round * per_round;
        return [=, bytes = bytes, ring_size = ring_size, W = map_of_weights(m), b = m.b.data(),
                layers = layers_of(m)] {
            kernel<<<blocks, kThreads, bytes>>>(x, W, b, out, int(tiles), layers, int(ring_size));
        };
    }
};

/// Calls use() with the one for this width.
template <class Use>
auto with_by_warpgroup(const demo::Mlp& m, const demo::Gpu& gpu, Use use) {
    if (m.shape.D <= 64) return use(ByWarpgroup<64, 6, 2>{m, gpu});
    if (m.shape.D <= 128) return use(ByWarpgroup<128, 4, 1>{m, gpu});
    if (m.shape.D <= 192) return use(ByWarpgroup<192, 2, 1>{m, gpu});
    return use(ByWarpgroup<256, 2, 1>{m, gpu});
}

template <int D>
Launch prepare_by_cluster(const demo::Mlp& m, const demo::Gpu& gpu) {
    const auto kernel = by_cluster<D>;
    const size_t N = m.shape.N, bytes_each = D * kPanel * sizeof(half);
    const size_t room = (gpu.shared_per_block - sizeof(ClusterMemory<D>)) / bytes_each;
    const size_t ring_size = std::min(m.shape.L, room);
    const size_t bytes = ring_size * bytes_each + sizeof(ClusterMemory<D>);
    demo::allow_shared_bytes(kernel, bytes);
    const size_t blocks = (N + kClusterRows - 1) / kClusterRows * (D / kPanel);
    return [=, x = m.x.data(), W = map_of_weights(m), b = m.b.data(), out = m.out.data(),
            layers = layers_of(m)] {
        kernel<<<blocks, kClusterThreads, bytes>>>(x, W, b, out, N, layers, int(ring_size));
    };
}

static Launch prepare_by_cluster(const demo::Mlp& m, const demo::Gpu& gpu) {
    const size_t D = rounded_up(m.shape.D);
    if (D == 64) return prepare_by_cluster<64>(m, gpu);
    if (D == 128) return prepare_by_cluster<128>(m, gpu);
    if (D == 256) return prepare_by_cluster<256>(m, gpu);
    return prepare_by_cluster<512>(m, gpu);
}

static void run(demo::Session& session) {
    const demo::Mlp m(session);  // x, W, b, out, and the reference
    const demo::UnfusedMlp unfused(m);
    const demo::Gpu& gpu = session.gpu;
    const demo::Workload work = m.shape.workload();
    auto ours = [&](const std::string& name, size_t most, const std::function<Launch()>& prepare) {
        std::string why_not = hopper::why_not(gpu);
        if (m.shape.D > most) why_not = "takes D up to " + std::to_string(most);
        return demo::Contender{.kernel = name,
                               .setup = [=](auto& self) { self.launch = prepare(); },
                               .moved_bytes = work.least_bytes,
                               .why_not = why_not};
    };
    demo::Contender warpgroups = ours("by_warpgroup", 256, [&] {
        return with_by_warpgroup(m, gpu, [](auto w) { return w.prepare(); });
    });
    if (warpgroups.why_not.empty())
        warpgroups.why_not = with_by_warpgroup(m, gpu, [](auto w) { return w.why_not(); });
    std::vector<demo::Contender> contenders{
        unfused.chain(), unfused.library_best(), unfused.graph(session.options), warpgroups,
        ours("by_cluster", 512, [&] { return prepare_by_cluster(m, gpu); })};
    if (work.memory_bound) contenders.push_back(demo::copy_contender(session, work));
    session.run(work, m.check(false), contenders);
}

}  // namespace mlp_hopper

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_mlp",
        .summary = "the fastest MLP on Hopper: rows by the million, and few of them",
        .types = {{"fp16", mlp_hopper::run}},
        .any_n = true,
        .n_means = "rows of x",
        .default_n = demo::kSimulator ? 128 : 1048576,
        .options = demo::mlp_options(),
        .sizes = {131072, 1048576},
        .variants = {"1048576 --dim 128", "1048576 --dim 192", "1048576 --dim 256",
                     "131072 --dim 256", "256 --dim 256", "256 --layers 64"}};
    return demo::main_of(program, argc, argv);
}
