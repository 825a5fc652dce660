// fused_hopper: the suite's fastest fused gating of square matrices on Hopper. It belongs to
// bonus_gating_hopper, which explains it; lesson 6 and bonus_benchmark_fused run it too.
#pragma once

#include <memory>

#include "gating/gating_mma.cuh"
#include "matmul/matmul_hopper_record.cuh"

namespace gating_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are dealt out and stored

constexpr int kCluster = 2;  // blocks: half of the reads of W1 and W2
constexpr int kAlone = 2;    // last steps of a tile in which one warpgroup multiplies alone

/// For tiles of kTileM x kTileN sums: one half is of x W1, the other of x W2.
template <int kTileM, int kTileN, int kStages>
struct GatingMemory {
    static constexpr int kColumns = kPanelColumns<kTileN / 2>;  // of a panel
    Ring<half, kTileN, kStages, kTileM, kColumns> ring;
    // One panel for each warp: it is stored by the time that the next is filled. Rows swizzled.
    alignas(1024) half out[kTileM > kBlockM ? kTileM / 16 : 4 * kConsumers][1][16][kColumns];
    hopper::Barrier last_step;  // warpgroup 0 has started a tile's last step
    static_assert(kAlone + 2 <= kStages,
                  "else a deadlock: warpgroup 0's last step needs a stage that warpgroup 1 holds");
};

/// The gates of a thread's elements of a tile: sums[i] is of x W1, sums[kGates + i] of x W2.
template <int kGates>
__device__ void gate_sums(float (&gates)[kGates], const float (&sums)[2 * kGates],
                          const half2 (&bias1)[kGates / 4], const half2 (&bias2)[kGates / 4]) {
#pragma unroll
    for (int i = 0; i < kGates; i += 2) {
        const float2 b1 = __half22float2(bias1[i / 4]), b2 = __half22float2(bias2[i / 4]);
        gates[i] = gating_mma::gate(sums[i] + b1.x, sums[kGates + i] + b2.x);
        gates[i + 1] = gating_mma::gate(sums[i + 1] + b1.y, sums[kGates + i + 1] + b2.y);
    }
}

/// Loads the biases for the columns of a thread's sums, in a tile from column `first` on.
template <int kCount>
__device__ void load_biases(half2 (&biases)[kCount], const half* from, int first, int N) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
        const int col = first + j * 8 + threadIdx.x % 4 * 2;
        biases[j] = col < N ? *reinterpret_cast<const half2*>(&from[col]) : half2{};
    }
}

enum class Gates {
    kTogether,  // both warpgroups gate at the same time
    kInTurn,    // at a tile's end one multiplies while the other gates
    kDivided,   // the same, and some tiles are divided among blocks
};

/// Computes all parts of a block. `Schedule` counts columns of out, and a tile has two sums for
/// each. Each warpgroup computes 64 of a tile's 128 rows.
template <int kStages, Gates kGates, class Schedule>
__device__ void gate_parts(const CUtensorMap& x,    // [M, K] row-major
                           const CUtensorMap& W1,   // [K, H] row-major
                           const half* b1,          // [H]
                           const CUtensorMap& W2,   // [K, H] row-major
                           const half* b2,          // [H]
                           const CUtensorMap& out,  // [M, H] row-major
                           int H, const Schedule& schedule, Exchange exchange) {
    constexpr int kTileM = Schedule::kRows, kCols = Schedule::kColumns, kTileN = 2 * kCols;
    constexpr int kBelow = Schedule::kBelow, kBeside = Schedule::kBeside;
    constexpr int kCluster = kBelow * kBeside;
    using Shared = GatingMemory<kTileM, kTileN, kStages>;
    constexpr int kPanels = kCols / Shared::kColumns;  // of out
    constexpr bool kTurns = kGates != Gates::kTogether, kDivide = kGates == Gates::kDivided;
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Shared*>(shared);
    auto& ring = memory.ring;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        hopper::mbarrier_init(&memory.last_step, 4);
        ring.init(kTileM / 16 * kCluster);
    }
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup) {
            schedule.for_each_part(rank, [&](const Part& part) {
                produce(ring, at, part.last - part.first, [&](auto& stage, auto* full, int t) {
                    const int k = (part.backward ? part.last - 1 - t : part.first + t) * kBlockK;
                    hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
                    load_rows<kBelow, kBeside>(stage, full, x, rank, part.row, k);
                    // Half of the panels are W1's, half are the same columns of W2. Blocks below
                    // each other copy a share each, for all of them.
                    for (int p = rank % kBelow; p < 2 * kPanels; p += kBelow) {
                        const CUtensorMap& W = p < kPanels ? W1 : W2;
                        const int col = part.col + p % kPanels * Shared::kColumns;
                        hopper::tma_load_multicast(stage.B[p], W, k, col, full,
                                                   column_mask<kBelow>(rank));
                    }
                });
            });
            wait_until_free(ring, at);
        }
    } else {
        hopper::setmaxnreg_inc<232>();
        auto& panel = memory.out[threadIdx.x / 32];
        Outgoing<half, kCols> outgoing;
        uint32_t parity = 0;
        schedule.for_each_part(rank, [&](const Part& part) {
            const int steps = part.last - part.first;
            // Parts of tiles and short tiles take no turns. Warpgroup 0 can be kStages steps ahead.
            // If that were two tiles, a barrier's parity could not tell them apart.
            const bool turns = kTurns && steps == schedule.steps && steps >= kStages;
            float sums[Schedule::kColumns];  // half of them of x W1
            half2 bias1[Schedule::kColumns / 8], bias2[Schedule::kColumns / 8];
            auto load_both = [&] {
                load_biases(bias1, b1, part.col, H);
                load_biases(bias2, b2, part.col, H);
            };
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // during this tile's first steps the previous one is stored
                    if (t < kPanels) outgoing.store(t, panel, out);
                    if (turns && warpgroup == 1 && t + 1 + kAlone == steps)
                        hopper::mbarrier_wait(&memory.last_step, parity), parity ^= 1;
                    if (t + 1 < steps) return;
                    if (turns && warpgroup == 0 && lane == 0)
                        hopper::mbarrier_arrive(&memory.last_step);
                    if (kDivide) return;  // no registers to spare before join_parts()
                    load_both();          // while the last step is multiplied
                },
                [&](int stage) {  // each warp tells every block that copies into this one
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, panel, out);
            if constexpr (kDivide) {
                if (!join_parts(sums, schedule, part, rank, exchange)) return;
                load_both();
            }

            float gates[Schedule::kColumns / 2];
            gate_sums(gates, sums, bias1, bias2);
            outgoing.take(gates, part.row + threadIdx.x / 32 * 16, part.col);
        });
        outgoing.store_all(panel, out);
    }
}

/// The same by clusters of two, with kTileM x kTileN sums for kTileM x kTileN / 2 of out.
template <int kTileM, int kTileN, int kStages, Gates kGates>
__device__ void gate_tiles(const CUtensorMap& x, const CUtensorMap& W1, const half* b1,
                           const CUtensorMap& W2, const half* b2, const CUtensorMap& out, int M,
                           int K, int H, int divided, Exchange exchange) {
    constexpr int kCols = kTileN / 2;
    const Schedule<kCols, kCluster, kTileM> schedule{
        .N = M,
        .divided = kGates == Gates::kDivided ? divided : 0,
        .steps = (K + kBlockK - 1) / kBlockK,
        .columns = (H - 1) / kCols + 1};
    gate_parts<kStages, kGates>(x, W1, b1, W2, b2, out, H, schedule, exchange);
}

template <int kTileM, int kTileN, int kStages, Gates kGates>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    fused_hopper(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                 const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int M, int K, int H, int divided,
                 Exchange exchange) {
    gate_tiles<kTileM, kTileN, kStages, kGates>(x, W1, b1, W2, b2, out, M, K, H, divided, exchange);
}

/// The same by clusters of eight and of two: see eights_and_twos of bonus_matmul_hopper.
template <class Patches>
__global__ void __launch_bounds__(kThreads, 1)
    fused_hopper(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                 const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int H, Patches patches) {
    gate_parts<4, Gates::kInTurn>(x, W1, b1, W2, b2, out, H, patches, {});
}

/// Whether the threads that multiply one tile need more registers than an even share.
template <int kRows, int kColumns>
constexpr bool kLarge = kRows > 128 || kColumns > 192;

/// Threads of such a block: a warpgroup for 64 rows, and a warp as the producer, or a warpgroup,
/// which can give registers away.
template <int kRows, int kColumns>
constexpr int kSingleThreads = kRows / 64 * kWarpgroup +
                               (kLarge<kRows, kColumns> ? kWarpgroup : 32);

/// Where the tile of block i begins, if each block has one: in the order of rasterize() ...
template <int kTileM, int kCols>
struct Every {
    int rows, columns;  // in tiles
    __device__ int2 corner(int i) const {
        const int2 tile = rasterize(i, rows, columns);
        return {tile.x * kTileM, tile.y * kCols};
    }
};

/// ... or in the last patches, which clusters of eight and two leave.
template <int kTileM, int kCols>
struct Last {
    using OfTwos = Patches<2, 1, kBlockN / 2>;
    static constexpr int kInRow = OfTwos::kWidth * OfTwos::kColumns / kCols,
                         kInPatch = OfTwos::kHeight * OfTwos::kRows / kTileM * kInRow;
    OfTwos patches;
    __device__ int2 corner(int i) const {
        const int2 at = patches.corner(patches.end + i / kInPatch);
        return {at.x + i % kInPatch / kInRow * kTileM, at.y + i % kInRow * kCols};
    }
};

using Rest = Last<64, 64>;

/// Computes a block's only tile. At small N a launch spends much of its time on fetching code, and
/// gate_tiles() has three times as much. See multiply_tile() in matmul_hopper_record.cuh.
template <int kTileM, int kTileN, int kStages, class Tiles>
__global__ void __launch_bounds__((kSingleThreads<kTileM, kTileN>), 1)
    fused_hopper(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                 const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int K, int H, Tiles tiles) {
    using Shared = GatingMemory<kTileM, kTileN, kStages>;
    constexpr int kCols = kTileN / 2, kPanels = kCols / Shared::kColumns;  // of out
    constexpr int kWarpgroups = kTileM / 64;                               // that multiply
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Shared*>(shared);
    auto& ring = memory.ring;
    const int warpgroup = warpgroup_index();
    const int2 corner = tiles.corner(blockIdx.x);
    const int row = corner.x, first = corner.y, steps = (K + kBlockK - 1) / kBlockK;
    Position<kStages> at;
    if (warpgroup == kWarpgroups) {
        if (threadIdx.x == kWarpgroups * kWarpgroup) {
            for (const CUtensorMap* map : {&x, &W1, &W2, &out}) hopper::prefetch_tensormap(*map);
            ring.init(4 * kWarpgroups);
        }
        hopper::barrier_arrive(kReady, blockDim.x);
        if constexpr (kLarge<kTileM, kTileN>) hopper::setmaxnreg_dec<32>();
        if (threadIdx.x > kWarpgroups * kWarpgroup) return;
        produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
            hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
            hopper::tma_load(stage.A, x, row, t * kBlockK, full);
#pragma unroll 1  // less code
            for (int p = 0; p < kPanels; ++p) {
                const int col = first + p * Shared::kColumns;
                hopper::tma_load(stage.B[p], W1, t * kBlockK, col, full);
                hopper::tma_load(stage.B[kPanels + p], W2, t * kBlockK, col, full);
            }
        });
    } else {
        hopper::barrier_sync(kReady, blockDim.x);
        if constexpr (kLarge<kTileM, kTileN>)
            hopper::setmaxnreg_inc<kWarpgroups == 3 ? 160 : 232>();
        half2 early1[kTileN / 16], early2[kTileN / 16];  // while the first copies are on their way
        load_biases(early1, b1, first, H);
        load_biases(early2, b2, first, H);
        float sums[kTileN / 2], gates[kTileN / 4];
        consume(
            sums, ring, at, steps, warpgroup, [](int) {},
            [&](int stage) {
                if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&ring.empty[stage]);
            });
        gate_sums(gates, sums, early1, early2);
        Outgoing<half, kCols> tile;
        tile.take(gates, row + threadIdx.x / 32 * 16, first);
        tile.store_all(memory.out[threadIdx.x / 32], out);
    }
}

/// Ping-pong: while one warpgroup gates its tile, the other multiplies. In multiply_pingpong() a
/// warpgroup has two panels of 64 columns: here one of x W1, and the same columns of x W2.
template <int kTileM, int kStages>
__global__ void __launch_bounds__(kThreads, 1)
    fused_hopper(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap last_x,
                 const __grid_constant__ CUtensorMap W1, const half* b1,
                 const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int M, int K, int H) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<PingpongMemory<half, kTileM, kStages>*>(shared);
    const Schedule<kPanel, 1, kTileM> schedule{.N = M,
                                               .divided = 0,
                                               .steps = (K + kBlockK - 1) / kBlockK,
                                               .columns = (H - 1) / kPanel + 1};
    if (threadIdx.x == 0)
        for (const CUtensorMap* map : {&x, &last_x, &W1, &W2, &out})
            hopper::prefetch_tensormap(*map);
    multiply_pingpong(
        memory, schedule, K,
        [&](auto& stage, auto* full, const Part& part, int k) {
            RowsInside<kTileM>(x, last_x, part.row, M).load(stage, full, part.row, k, 2);
            hopper::tma_load(stage.B[0], W1, k, part.col, full);
            hopper::tma_load(stage.B[1], W2, k, part.col, full);
        },
        [&](const auto& sums, const Part& part, int warpgroup) {
            // The sums are of the transpose: a thread has two of its rows, so two columns of out.
            const int col = part.col + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
            float bias1[2] = {}, bias2[2] = {};
            for (int c = 0; c < 2; ++c)
                if (col + 8 * c < H) bias1[c] = b1[col + 8 * c], bias2[c] = b2[col + 8 * c];
            auto gate = [&](int, int j) {
                return gating_mma::gate(sums[0][j] + bias1[j / 2 % 2],
                                        sums[1][j] + bias2[j / 2 % 2]);
            };
            store_transposed<kTileM, 1>(gate, memory.out[warpgroup], out, part.row, part.col,
                                        warpgroup);
        });
}

/// How many clusters of a kernel that runs gate_tiles() with these arguments run at once.
template <int kTileM, int kTileN, int kStages, class Kernel>
int clusters_at_once(Kernel kernel) {
    const size_t bytes = sizeof(GatingMemory<kTileM, kTileN, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    return demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(kernel);
}

/// Prepares a launch of such a kernel.
template <int kTileM, int kTileN, int kStages, class Kernel>
std::function<void()> prepare(Kernel kernel, const demo::GatingOperands& g, int clusters,
                              int divided = 0) {
    using Shared = GatingMemory<kTileM, kTileN, kStages>;
    const int M = int(g.M), K = int(g.K), H = int(g.H);
    demo::allow_shared_bytes(kernel, sizeof(Shared));
    const CUtensorMap x = hopper::tensor_map(g.x, M, K, kTileM),
                      W1 = hopper::tensor_map<Shared::kColumns>(g.W1, K, H, kBlockK),
                      W2 = hopper::tensor_map<Shared::kColumns>(g.W2, K, H, kBlockK),
                      out = hopper::tensor_map<Shared::kColumns>(g.out, M, H, 16);
    const auto sums = std::make_shared<ExchangeBuffers>(divided > 0 ? kCluster * clusters : 0);
    return [=, b1 = g.b1, b2 = g.b2] {
        kernel<<<kCluster * clusters, kThreads, sizeof(Shared)>>>(x, W1, b1, W2, b2, out, M, K, H,
                                                                  divided, *sums);
    };
}

/// The tile shapes of fused_hopper; their columns count both weights.
constexpr TileShape kShapes[] = {
    {128, 256, kCluster}, single(192, 192), single(128, 256), single(128, 192), single(128, 128),
    pingpong(208),        pingpong(192),    pingpong(176),    pingpong(160),    pingpong(144),
    pingpong(128),        pingpong(112),    kPatches};

/// x times both weights, side by side.
inline Product product(const demo::GatingOperands& g) {
    return {.rows = g.M,
            .columns = 2 * g.H,
            .tile_end = 5500,  // clocks for gating a tile of 128 rows, fitted
            .depth = g.K,
            .pingpong_ends = 6500,  // without the last tile's end
            .small_tiles = Rest::kInPatch};
}

/// What launches a kernel, and in how many launches.
struct Prepared {
    std::function<void()> launch;
    size_t launches = 1;
};

/// Prepares fused_hopper in one shape of tiles.
template <int kShape, int kStages>
Prepared prepare_shape(const demo::GatingOperands& g) {
    constexpr TileShape kTile = kShapes[kShape];
    constexpr int kTileM = kTile.rows, kTileN = kTile.columns;
    const auto kernel = fused_hopper<kTileM, kTileN, kStages, Gates::kInTurn>;
    const int room = clusters_at_once<kTileM, kTileN, kStages>(kernel);
    const auto [clusters, divided, _, __] = divide(kTile, product(g), room);
    if constexpr (kTile.divides)
        if (divided > 0)
            return {prepare<kTileM, kTileN, kStages>(
                fused_hopper<kTileM, kTileN, kStages, Gates::kDivided>, g, clusters, divided)};
    return {prepare<kTileM, kTileN, kStages>(kernel, g, clusters)};
}

/// Prepares `blocks` blocks with one tile each.
template <int kTileM, int kTileN, int kStages, class Tiles>
std::function<void()> prepare_blocks(const demo::GatingOperands& g, int blocks, const Tiles& tiles,
                                     cudaStream_t stream = nullptr) {
    using Shared = GatingMemory<kTileM, kTileN, kStages>;
    const auto kernel = fused_hopper<kTileM, kTileN, kStages, Tiles>;
    demo::allow_shared_bytes(kernel, sizeof(Shared));
    constexpr int kColumns = Shared::kColumns;
    const CUtensorMap x = hopper::tensor_map(g.x, g.M, g.K, kTileM),
                      W1 = hopper::tensor_map<kColumns>(g.W1, g.K, g.H, kBlockK),
                      W2 = hopper::tensor_map<kColumns>(g.W2, g.K, g.H, kBlockK),
                      out = hopper::tensor_map<kColumns>(g.out, g.M, g.H, 16);
    const demo::ClusterLaunch launch(blocks, 1, kSingleThreads<kTileM, kTileN>, sizeof(Shared),
                                     stream);
    return [=] { launch(kernel, x, W1, g.b1, W2, g.b2, out, int(g.K), int(g.H), tiles); };
}

/// Prepares fused_hopper by ping-pong, in one shape of tiles.
template <int kShape>
Prepared prepare_pingpong(const demo::GatingOperands& g) {
    constexpr TileShape kTile = kShapes[kShape];
    constexpr int kTileM = kTile.rows, kStages = count_stages<half, kTileM, 2 * kPanel, true>();
    const auto kernel = fused_hopper<kTileM, kStages>;
    const size_t bytes = sizeof(PingpongMemory<half, kTileM, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    const int M = int(g.M), K = int(g.K), H = int(g.H);
    const CUtensorMap x = hopper::tensor_map(g.x, M, K, kTileM),
                      last_x = hopper::tensor_map(g.x, M, K, last_rows(M, kTileM)),
                      W1 = hopper::tensor_map(g.W1, K, H, kBlockK),
                      W2 = hopper::tensor_map(g.W2, K, H, kBlockK),
                      out = hopper::tensor_map(g.out, M, H, strip_rows(kTileM, 2 * kPanel));
    const int at_once = demo::ClusterLaunch(1, 1, kThreads, bytes).at_once(kernel);
    const demo::ClusterLaunch launch(divide(kTile, product(g), at_once).clusters, 1, kThreads,
                                     bytes);
    return {[=, b1 = g.b1, b2 = g.b2] { launch(kernel, x, last_x, W1, b1, W2, b2, out, M, K, H); }};
}

/// The same where each block has one tile.
template <int kShape, int kStages>
Prepared prepare_single(const demo::GatingOperands& g) {
    constexpr TileShape kTile = kShapes[kShape];
    constexpr int kTileM = kTile.rows, kCols = kTile.columns / 2;
    const Every<kTileM, kCols> tiles{int(g.M - 1) / kTileM + 1, int(g.H - 1) / kCols + 1};
    return {prepare_blocks<kTileM, 2 * kCols, kStages>(g, tiles.rows * tiles.columns, tiles)};
}

/// The same by clusters of eight beside clusters of two. A few patches that are left for a last
/// round are computed in small tiles, by more blocks, when the clusters of two are done.
inline Prepared prepare_patches(const demo::GatingOperands& g) {
    constexpr int kCols = kBlockN / 2;
    using Eights = Patches<4, 2, kCols>;
    using Twos = Patches<2, 1, kCols>;
    const PatchLaunches launches(fused_hopper<Eights>, fused_hopper<Twos>,
                                 sizeof(GatingMemory<kBlockM, kBlockN, 4>));
    const int M = int(g.M), K = int(g.K), H = int(g.H), steps = (K + kBlockK - 1) / kBlockK;
    const int rows = (M - 1) / (Eights::kHeight * kBlockM) + 1;  // of patches
    const int columns = (H - 1) / (Eights::kWidth * kCols) + 1;
    const int eights = launches.eights, twos = launches.twos;
    const Machine machine{8 * eights + 2 * twos};
    const int rest =
        EightsAndTwos{eights, twos}.count_left(rows * columns, product(g).most_left(machine));
    const int end = rows * columns - rest;
    const Eights of_eights{M, eights, twos, steps, rows, columns, end};
    const Twos of_twos{M, eights, twos, steps, rows, columns, end};
    const CUtensorMap x = hopper::tensor_map(g.x, M, K, kBlockM),
                      half_x = hopper::tensor_map(g.x, M, K, kBlockM / Eights::kBeside),
                      W1 = hopper::tensor_map(g.W1, K, H, kBlockK),
                      W2 = hopper::tensor_map(g.W2, K, H, kBlockK),
                      out = hopper::tensor_map(g.out, M, H, 16);
    const auto launch_rest =
        prepare_blocks<64, 128, 8>(g, rest * Rest::kInPatch, Rest{of_twos}, launches.side_stream());
    const auto launch = [=, b1 = g.b1, b2 = g.b2] {
        launches(
            [&](const auto& launch) {
                launch(fused_hopper<Eights>, half_x, W1, b1, W2, b2, out, H, of_eights);
            },
            [&](const auto& launch) {
                launch(fused_hopper<Twos>, x, W1, b1, W2, b2, out, H, of_twos);
                if (rest > 0) launch_rest();
            });
    };
    return {launch, rest > 0 ? 3u : 2u};
}

/// Prepares fused_hopper in the tiles that the model finds the fastest. H: a multiple of 8.
/// `one_launch`: without clusters of eight.
inline Prepared prepare_fastest(const demo::GatingOperands& g, const demo::Gpu& gpu,
                                bool one_launch = false) {
    using Prepare = Prepared(const demo::GatingOperands&);
    // Of kShapes, each with as many stages as fit shared memory.
    static constexpr Prepare* kPrepare[] = {
        prepare_shape<0, 4>,  prepare_single<1, 4>, prepare_single<2, 4>, prepare_single<3, 5>,
        prepare_single<4, 6>, prepare_pingpong<5>,  prepare_pingpong<6>,  prepare_pingpong<7>,
        prepare_pingpong<8>,  prepare_pingpong<9>,  prepare_pingpong<10>, prepare_pingpong<11>,
        prepare_patches};
    const size_t shapes = std::size(kShapes) - (one_launch ? 1 : 0);
    return kPrepare[fastest_shape(kShapes, product(g), machine_of(gpu), shapes)](g);
}

/// A kernel of square matrices on Hopper. `prepare` returns what launches it.
inline demo::Contender contender_of(const std::string& name, const demo::Gating& g,
                                    const demo::Gpu& gpu,
                                    std::function<std::function<void()>()> prepare) {
    return g.fused_prepared(name, prepare, "square", hopper::why_not(gpu));
}

inline demo::Contender contender(const demo::Gating& g, const demo::Gpu& gpu) {
    demo::Contender fastest = contender_of("fused_hopper", g, gpu, {});
    fastest.setup = [&](demo::Contender& self) {
        const Prepared prepared = prepare_fastest(g, gpu);
        self.launch = prepared.launch, self.launches = prepared.launches;
    };
    return fastest;
}

}  // namespace gating_hopper
