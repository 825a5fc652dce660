// recomputed: LoRA in one launch. Pairs of blocks, which compute tiles beside each other, add up
// u = x A beside x W, each over half of k, and u never leaves the registers. It belongs to
// bonus_lora, which explains it.
#pragma once

#include "lora/lora_hopper.cuh"

namespace lora_hopper {

constexpr int kUpdate = 32;               // rows of B that the last steps take, one or two
constexpr int kPair = 2;                  // blocks of a cluster: they have the same rows of x
constexpr int kShareK = kBlockK / kPair;  // columns of x in a step that each block adds to u

/// kRank: columns of A and rows of B, 32 or 64: zeros beyond r.
template <int kRank, int kTileM, int kTileN, int kStages>
struct RecomputedMemory {
    Memory<half, kTileN, kStages, 1, kTileM> tiles;
    alignas(1024) half A[kStages][kShareK][kRank];  // of each stage; rows swizzled
};

struct Tile {
    int row, col;
    bool backward;  // from the last step to the first
    bool new_rows;  // not those of the block's tile before, so that it needs another u
};

/// Calls work(tile) for all that this block computes. A pair's tiles are beside each other and
/// count as one. They go down half as many rows as there are clusters, and then on to the next
/// column. So if the clusters are an even number, most of their next tiles have the same rows, and
/// u stays: on an H200 for seven tiles of nine at N = 5120.
template <int kTileM, int kTileN, class Work>
__device__ void for_each_tile(int rank, int M, int N, Work work) {
    const int rows = (M + kTileM - 1) / kTileM;
    const int columns = (N + kPair * kTileN - 1) / (kPair * kTileN);
    const int group = max(1, int(gridDim.x) / kPair / 2);
    int row_before = -1;
    bool backward = true;  // every second tile, from the first on
    for (int i = blockIdx.x / kPair; i < rows * columns; i += gridDim.x / kPair) {
        const auto [row, column] = rasterize(i, rows, columns, group);
        work(Tile{.row = row * kTileM,
                  .col = (column * kPair + rank) * kTileN,
                  .backward = backward,
                  .new_rows = row != row_before});
        row_before = row, backward = !backward;
    }
}

/// The producer's copies of step t: of x, W and A, or after the last of them of B. Each block
/// copies half of the tile's rows of x, into the shared memory of both. Beside B the other block's
/// sums of u arrive, where x would be.
template <int kRank, int kTileM, int kTileN, int kStages>
struct RecomputedLoad {
    RecomputedMemory<kRank, kTileM, kTileN, kStages>& memory;
    const CUtensorMap &x, &W, &A, &B;
    int rank, depth;  // of this block in its cluster; steps of x W

    __device__ void operator()(int s, const Tile& tile, int t) const {
        constexpr int kPanels = kTileN / kPanel, kShareM = kTileM / kPair;
        constexpr int kOfB = int(kPanels * kUpdate * kPanel * sizeof(half));
        auto& stage = memory.tiles.ring.stages[s];
        hopper::Barrier* const full = &memory.tiles.ring.full[s];
        const bool update = t >= depth;
        const int k =
            update ? (t - depth) * kUpdate : (tile.backward ? depth - 1 - t : t) * kBlockK;
        const int of_A = tile.new_rows ? sizeof memory.A[0] : 0;
        const int of_u = tile.new_rows ? kTileM * kUpdate * sizeof(float) : 0;
        hopper::mbarrier_arrive_expect_tx(full, update ? kOfB + of_u : sizeof stage + of_A);
        if (!update) {
            hopper::tma_load_multicast(stage.A[rank * kShareM], x, tile.row + rank * kShareM, k,
                                       full, (1 << kPair) - 1);
            if (tile.new_rows) hopper::tma_load(memory.A[s], A, k + rank * kShareK, 0, full);
        }
        for (int p = 0; p < kPanels; ++p)
            hopper::tma_load(stage.B[p], update ? B : W, k, tile.col + p * kPanel, full);
    }
};

/// u_sums += a block's share of x A in a step, for a warpgroup's 64 rows: starts a group of wgmma.
template <int kRank, int kTileM, int kTileN, int kStages>
__device__ void multiply_A(float (&u_sums)[kRank / 2],
                           const RecomputedMemory<kRank, kTileM, kTileN, kStages>& memory, int s,
                           int warpgroup, int rank) {
    const auto& rows = memory.tiles.ring.stages[s].A[64 * warpgroup];
    hopper::wgmma_fence();
#pragma unroll
    for (int c = 0; c < kShareK; c += 16)
        hopper::wgmma_mma_async<half>(u_sums, hopper::matrix_descriptor(&rows[rank * kShareK + c]),
                                      hopper::matrix_descriptor<kRank>(memory.A[s][c]), true);
    hopper::wgmma_commit_group();
}

/// u_sums += those of block `other`, which arrive in the stages of the steps to come: in the place
/// of x, which those steps do not need, and their barriers count them. Threads with the same number
/// hold the same elements, so each thread passes its own on.
template <int kSums, int kTileM, int kTileN, int kStages>
__device__ void exchange(float (&u_sums)[kSums], Ring<half, kTileN, kStages, kTileM>& ring,
                         const Position<kStages>& at, int other) {
    constexpr int kThreads = kTileM / 64 * kWarpgroup, kEach = kUpdate / 8;
    static_assert(sizeof ring.stages[0].A == kEach * kThreads * sizeof(float4));
    auto theirs = [&](int stage, int i) -> float4& {
        return ((float4*)&ring.stages[stage].A)[i % kEach * kThreads + threadIdx.x];
    };
    Position<kStages> to = at, from = at;
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
        if (i == kEach) to.advance();
        if (i % kEach == 0)  // the stage is free, in both blocks
            hopper::mbarrier_wait(&ring.empty[to.stage], to.parity ^ 1);
        const float* const u = &u_sums[4 * i];
        hopper::st_async(&theirs(to.stage, i), {u[0], u[1], u[2], u[3]}, &ring.full[to.stage],
                         other);
    }
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
        if (i == kEach) from.advance();
        if (i % kEach == 0) hopper::mbarrier_wait(&ring.full[from.stage], from.parity);
        const float4 v = theirs(from.stage, i);
        u_sums[4 * i] += v.x, u_sums[4 * i + 1] += v.y;
        u_sums[4 * i + 2] += v.z, u_sums[4 * i + 3] += v.w;
    }
    __syncwarp();  // all of the warp have read, before it frees the stages
    hopper::fence_release_cluster();
}

/// out = act([x | s (x A)] [W ; B] + b)
template <class Activation, int kRank, int kTileM, int kTileN, int kStages>
__global__ void HOPPER_CLUSTER(kPair) __launch_bounds__(threads(kTileM), 1)
    recomputed(const __grid_constant__ CUtensorMap x,    // [M, N] row-major
               const __grid_constant__ CUtensorMap W,    // [N, N] row-major
               const __grid_constant__ CUtensorMap A,    // [N, r] row-major, r <= kRank
               const __grid_constant__ CUtensorMap B,    // [r, N] row-major
               const half* b,                            // [N]
               const __grid_constant__ CUtensorMap out,  // [M, N] row-major
               float scale, int M, int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<RecomputedMemory<kRank, kTileM, kTileN, kStages>*>(shared);
    auto& ring = memory.tiles.ring;
    constexpr int kMultiply = kTileM / 64, kPanels = kTileN / kPanel;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const int depth = (N + kBlockK - 1) / kBlockK;
    if (threadIdx.x == 0) ring.init(4 * kMultiply * kPair);
    hopper::barrier_cluster_sync();  // both blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kMultiply) {
        if constexpr (kMultiply > 1) hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kMultiply * kWarpgroup) return;
        const RecomputedLoad<kRank, kTileM, kTileN, kStages> load{memory, x, W, A, B, rank, depth};
        for_each_tile<kTileM, kTileN>(rank, M, N, [&](const Tile& tile) {
            produce(ring, at, depth + kRank / kUpdate,
                    [&](auto&, auto*, int t) { load(at.stage, tile, t); });
        });
        wait_until_free(ring, at);
        return;
    }
    if constexpr (kMultiply > 1) hopper::setmaxnreg_inc<232>();
    auto& panels = memory.tiles.out[threadIdx.x / 32];
    Outgoing<half, kTileN> outgoing;
    auto release = [&](int stage) {  // each warp tells both blocks, which copy into this one
        if (lane < kPair) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
    };
    auto store = [&](int t) {  // the tile before leaves beside this one's first steps
        for (int p = t; p < kPanels && (p == t || t == depth - 1); ++p)
            outgoing.store(p, panels, out);
    };
    uint32_t u[kRank / 16][4];
    for_each_tile<kTileM, kTileN>(rank, M, N, [&](const Tile& tile) {
        float sums[kTileN / 2];
        auto multiply_W = [&](int s, int t) {
            multiply_stage<half, kTileN>(sums, ring.stages[s], warpgroup, t > 0);
        };
        int previous;
        if (tile.new_rows) {
            if constexpr (kRank > kUpdate) {  // its registers are needed
                outgoing.store_all(panels, out);
                outgoing.pending = false;
            }
            float u_sums[kRank / 2] = {};
            auto multiply = [&](int s, int t) {
                multiply_A(u_sums, memory, s, warpgroup, rank);
                multiply_W(s, t);
            };
            // Then u_sums are complete, while the last step of x W still runs.
            previous = consume_x_W(ring, at, depth, multiply, store, release);
            exchange(u_sums, ring, at, rank ^ 1);
#pragma unroll
            for (int i = 0; i < kRank / 4; ++i)
                u[i / 4][i % 4] =
                    ptx::cvt_rn_x2<half>(scale * u_sums[2 * i], scale * u_sums[2 * i + 1]);
        } else {
            previous = consume_x_W(ring, at, depth, multiply_W, store, release);
        }
#pragma unroll
        for (int q = 0; q < kRank; q += kUpdate) {
            hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
            const auto& of_B = ring.stages[at.stage].B;
            hopper::wgmma_fence();
#pragma unroll
            for (int k = 0; k < kUpdate; k += 16)
                hopper::wgmma_mma_async<half>(sums, u[(q + k) / 16],
                                              hopper::matrix_descriptor(of_B[0][k], sizeof of_B[0]),
                                              true);
            hopper::wgmma_commit_group();
            hopper::wgmma_wait_group<1>();
            release(previous);
            previous = at.stage, at.advance();
        }
        hopper::wgmma_wait_group<0>();
        release(previous);
        add_bias_and_activate<Activation>(sums, b, tile.col, N);
        outgoing.take(sums, tile.row + threadIdx.x / 32 * 16, tile.col);
    });
    outgoing.store_all(panels, out);
}

template <class Activation, int kRank, int kTileM, int kTileN, int kMostStages>
std::function<void()> prepare_recomputed(Tiles<kTileM, kTileN, kMostStages>, const demo::Lora& g) {
    const size_t M = g.shape.M, N = g.shape.N, r = g.shape.rank;
    constexpr int kStages = kMostStages - (kTileM == 64 && kRank == 64);  // A needs room, too
    const auto kernel = recomputed<Activation, kRank, kTileM, kTileN, kStages>;
    const size_t bytes = sizeof(RecomputedMemory<kRank, kTileM, kTileN, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    const size_t tiles = count_tiles(g.shape, kTileM, kPair * kTileN);
    const int blocks = count_blocks(kernel, tiles, kPair, threads(kTileM), bytes);
    const CUtensorMap x = hopper::tensor_map(g.x.data(), M, N, kTileM / kPair),
                      W = hopper::tensor_map(g.W.data(), N, N, kBlockK),
                      A = hopper::tensor_map<kRank>(g.A.data(), N, r, kShareK),
                      B = hopper::tensor_map(g.B.data(), r, N, kUpdate),
                      out = hopper::tensor_map(g.out.data(), M, N, 16);
    return [=, s = g.s, b = g.b.data()] {
        kernel<<<blocks, threads(kTileM), bytes>>>(x, W, A, B, b, out, s, int(M), int(N));
    };
}

template <class Activation>
demo::Contender recomputed_contender(const demo::Lora& g, const demo::Gpu& gpu) {
    return {.kernel = "recomputed",
            .setup =
                [&](demo::Contender& self) {
                    self.launch = with_tiles<kPair>(g.shape, gpu, [&](auto tiles) {
                        if (g.shape.rank > 32) return prepare_recomputed<Activation, 64>(tiles, g);
                        return prepare_recomputed<Activation, 32>(tiles, g);
                    });
                },
            .moved_bytes = g.shape.workload().least_bytes,
            .why_not = why_not(g.shape, gpu)};
}

/// The record for Session::run(); none where N does not fit.
template <class Activation>
std::vector<demo::Contender> records(const demo::Lora& g, const demo::Gpu& gpu) {
    if (g.shape.N % 8) return {};
    return {demo::record("bonus_lora", recomputed_contender<Activation>(g, gpu))};
}

}  // namespace lora_hopper
