// recomputed: LoRA in one launch. Each block computes u = x A for its own rows, beside x W, and u
// never leaves the registers. It belongs to bonus_lora, which explains it.
#pragma once

#include "kernels/lora_hopper.cuh"

namespace lora_hopper {

constexpr size_t kRank = 16;  // columns of A and rows of B: zeros beyond r

template <int kTileM, int kTileN, int kStages>
struct RecomputedMemory {
    Memory<half, kTileN, kStages, 1, kTileM> tiles;
    alignas(1024) half A[kStages][kBlockK][kRank];  // of each stage; rows swizzled
};

/// The producer's copies of step t: of x, W and A, or after the last of them of B.
template <int kTileM, int kTileN, int kStages, int kCluster>
struct RecomputedLoad {
    RecomputedMemory<kTileM, kTileN, kStages>& memory;
    const CUtensorMap &x, &W, &A, &B;
    int rank, depth;  // of this block in its cluster; steps of x W

    __device__ void operator()(int s, const Part& part, int t) const {
        constexpr int kPanels = kTileN / kPanel;
        auto& stage = memory.tiles.ring.stages[s];
        hopper::Barrier* const full = &memory.tiles.ring.full[s];
        const bool last = t == depth;
        const int k = last ? 0 : (part.backward ? depth - 1 - t : t) * kBlockK;
        constexpr int kOfB = int(kPanels * kRank * kPanel * sizeof(half));
        hopper::mbarrier_arrive_expect_tx(full, last ? kOfB : sizeof stage + sizeof memory.A[0]);
        if (!last) {
            hopper::tma_load(stage.A, x, part.row, k, full);
            hopper::tma_load(memory.A[s], A, k, 0, full);
        }
        const CUtensorMap& from = last ? B : W;
        for (int p = rank; p < kPanels; p += kCluster) {
            const int col = part.col + p * kPanel;
            if constexpr (kCluster == 1)
                hopper::tma_load(stage.B[p], from, k, col, full);
            else
                hopper::tma_load_multicast(stage.B[p], from, k, col, full, (1 << kCluster) - 1);
        }
    }
};

/// out = act([x | s (x A)] [W ; B] + b)
template <class Activation, int kTileM, int kTileN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(threads(kTileM), 1)
    recomputed(const __grid_constant__ CUtensorMap x,    // [M, N] row-major
               const __grid_constant__ CUtensorMap W,    // [N, N] row-major
               const __grid_constant__ CUtensorMap A,    // [N, r] row-major, r <= kRank
               const __grid_constant__ CUtensorMap B,    // [r, N] row-major
               const half* b,                            // [N]
               const __grid_constant__ CUtensorMap out,  // [M, N] row-major
               float scale, int M, int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<RecomputedMemory<kTileM, kTileN, kStages>*>(shared);
    auto& ring = memory.tiles.ring;
    constexpr int kMultiply = kTileM / 64, kPanels = kTileN / kPanel;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const int depth = (N + kBlockK - 1) / kBlockK;
    const auto schedule = whole_tiles<kTileM, kTileN, kCluster>(M, N, depth + 1);
    if (threadIdx.x == 0) ring.init(4 * kMultiply * kCluster);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kMultiply) {
        if constexpr (kMultiply > 1) hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kMultiply * kWarpgroup) return;
        const RecomputedLoad<kTileM, kTileN, kStages, kCluster> load{memory, x,    W,    A,
                                                                     B,      rank, depth};
        schedule.for_each_part(rank, [&](const Part& part) {
            produce(ring, at, depth + 1, [&](auto&, auto*, int t) { load(at.stage, part, t); });
        });
        if (kCluster > 1) wait_until_free(ring, at);
        return;
    }
    if constexpr (kMultiply > 1) hopper::setmaxnreg_inc<232>();
    auto& panels = memory.tiles.out[threadIdx.x / 32];
    Outgoing<half, kTileN> outgoing;
    auto release = [&](int stage) {  // each warp tells all blocks that copy into this one
        if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
    };
    schedule.for_each_part(rank, [&](const Part& part) {
        float sums[kTileN / 2], u_sums[kRank / 2];
        int previous = 0;
        for (int t = 0; t < depth; ++t, at.advance()) {
            const auto& stage = ring.stages[at.stage];
            hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
            hopper::wgmma_fence();
#pragma unroll
            for (int c = 0; c < kBlockK; c += 16) {
                const uint64_t rows = hopper::matrix_descriptor(&stage.A[64 * warpgroup][c]);
                const uint64_t of_W = hopper::matrix_descriptor(stage.B[0][c], sizeof stage.B[0]);
                const uint64_t of_A = hopper::matrix_descriptor<kRank>(memory.A[at.stage][c]);
                hopper::wgmma_mma_async<half>(sums, rows, of_W, t > 0 || c > 0);
                hopper::wgmma_mma_async<half>(u_sums, rows, of_A, t > 0 || c > 0);
            }
            hopper::wgmma_commit_group();
            if (t < kPanels) outgoing.store(t, panels, out);  // the tile before leaves meanwhile
            hopper::wgmma_wait_group<1>();                    // step t - 1 is done
            if (t > 0) release(previous);
            previous = at.stage;
        }
        hopper::wgmma_wait_group<0>();
        release(previous);
        uint32_t u[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            u[i] = ptx::cvt_rn_x2<half>(scale * u_sums[2 * i], scale * u_sums[2 * i + 1]);
        const auto& of_B = ring.stages[at.stage].B;
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        hopper::wgmma_fence();
        hopper::wgmma_mma_async<half>(sums, u, hopper::matrix_descriptor(of_B, sizeof of_B[0]),
                                      true);
        hopper::wgmma_commit_group();
        for (int p = depth; p < kPanels; ++p) outgoing.store(p, panels, out);
        hopper::wgmma_wait_group<0>();
        release(at.stage), at.advance();
        add_bias_and_activate<Activation>(sums, b, part.col, N);
        outgoing.take(sums, part.row + threadIdx.x / 32 * 16, part.col);
    });
    outgoing.store_all(panels, out);
}

template <class Activation, int kTileM, int kTileN, int kStages, int kCluster>
std::function<void()> prepare_recomputed(Tiles<kTileM, kTileN, kStages, kCluster> tiles,
                                         const demo::Lora& g) {
    const size_t M = g.shape.M, N = g.shape.N, r = g.shape.rank;
    const auto kernel = recomputed<Activation, kTileM, kTileN, kStages, kCluster>;
    const size_t bytes = sizeof(RecomputedMemory<kTileM, kTileN, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    const int blocks = tiles.blocks(kernel, g.shape, bytes);
    const CUtensorMap x = hopper::tensor_map(g.x.data(), M, N, kTileM),
                      W = hopper::tensor_map(g.W.data(), N, N, kBlockK),
                      A = hopper::tensor_map<kRank>(g.A.data(), N, r, kBlockK),
                      B = hopper::tensor_map(g.B.data(), r, N, kRank),
                      out = hopper::tensor_map(g.out.data(), M, N, 16);
    return [=, b = g.b.data()] {
        kernel<<<blocks, tiles.kThreads, bytes>>>(x, W, A, B, b, out, demo::Lora::kScale, int(M),
                                                  int(N));
    };
}

template <class Activation>
demo::Contender recomputed_contender(const demo::Lora& g, const demo::Gpu& gpu) {
    const std::string why = why_not(g.shape, gpu);
    return {.kernel = "recomputed",
            .setup =
                [&](demo::Contender& self) {
                    self.launch = with_tiles(g.shape, gpu, [&](auto tiles) {
                        return prepare_recomputed<Activation>(tiles, g);
                    });
                },
            .moved_bytes = g.shape.workload().least_bytes,
            .why_not = why.empty() && g.shape.rank > kRank ? "takes ranks up to 16" : why};
}

}  // namespace lora_hopper
