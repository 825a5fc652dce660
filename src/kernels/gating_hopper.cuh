// fused_hopper: the suite's fastest fused gating of square matrices on Hopper. It belongs to
// bonus_gating_hopper, which explains it; lesson 6 and bonus_benchmark_fused run it too.
#pragma once

#include "kernels/gating_mma.cuh"
#include "kernels/matmul_hopper.cuh"

namespace gating_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are dealt out and stored

constexpr int kAlone = 2;  // steps at a tile's end for which one warpgroup has the tensor cores

template <int kTileN, int kStages>
struct GatingMemory : Memory<half, kTileN, kStages, kOutPanels> {
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

/// All tiles of a block, one after the other: 128 x kTileN sums each, of which one half is of x W1
/// and the other of x W2, for 128 x kTileN / 2 of out. kTurns: the two warpgroups take turns at a
/// tile's end, so that one multiplies while the other gates.
template <int kTileN, int kStages, int kCluster, bool kTurns>
__device__ void gate_tiles(const CUtensorMap& x,    // [N, N] row-major
                           const CUtensorMap& W1,   // [N, N] row-major
                           const half* b1,          // [N]
                           const CUtensorMap& W2,   // [N, N] row-major
                           const half* b2,          // [N]
                           const CUtensorMap& out,  // [N, N] row-major
                           int N) {
    constexpr int kCols = kTileN / 2, kPanels = kCols / kPanel;  // of out
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<GatingMemory<kTileN, kStages>*>(shared);
    auto& ring = memory.ring;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const Schedule<kCols, kCluster> schedule{N, 0};  // no tile is divided
    if (threadIdx.x == 0) {
        hopper::mbarrier_init(&memory.last_step, 1);
        ring.init(4 * kConsumers * kCluster);
    }
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup) {
            schedule.for_each_part(rank, [&](const Part& part) {
                produce(ring, at, schedule.steps, [&](auto& stage, auto* full, int t) {
                    const int k = (part.backward ? schedule.steps - 1 - t : t) * kBlockK;
                    hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
                    hopper::tma_load(stage.A, x, part.row, k, full);
                    // Half of the panels are of W1, half are the same columns of W2. Each block of
                    // a cluster copies its share, for all.
                    for (int p = rank; p < 2 * kPanels; p += kCluster) {
                        const CUtensorMap& W = p < kPanels ? W1 : W2;
                        const int col = part.col + p % kPanels * kPanel;
                        if constexpr (kCluster == 1)
                            hopper::tma_load(stage.B[p], W, k, col, full);
                        else
                            hopper::tma_load_multicast(stage.B[p], W, k, col, full,
                                                       (1 << kCluster) - 1);
                    }
                });
            });
            // Others arrive at this block's barriers: it stays until they have freed all stages.
            for (int s = 0; s < kStages; ++s, at.advance())
                hopper::mbarrier_wait(&ring.empty[at.stage], at.parity ^ 1);
        }
    } else {
        hopper::setmaxnreg_inc<232>();
        auto& panels = memory.out[threadIdx.x / 32];
        Outgoing<half, kCols> outgoing;
        // Warpgroup 0 is at most kStages steps ahead: the ring holds it back. With fewer steps in a
        // tile it could be two tiles ahead, and a barrier's parity cannot tell two phases apart.
        const bool turns = kTurns && schedule.steps >= kStages;
        uint32_t parity = 0;
        schedule.for_each_part(rank, [&](const Part& part) {
            float sums[kTileN / 2];
            half2 bias1[kCols / 8], bias2[kCols / 8];  // of the columns that the sums are of
            consume(
                sums, ring, at, schedule.steps, warpgroup,
                [&](int t) {  // the tile before leaves during this one's first steps ...
                    if (t < kPanels) outgoing.store(t, panels, out);
                    if (turns && warpgroup == 1 && t + 1 + kAlone == schedule.steps)
                        hopper::mbarrier_wait(&memory.last_step, parity), parity ^= 1;
                    const bool last = t + 1 == schedule.steps;
                    if (!last) return;
                    if (threadIdx.x == 0) hopper::mbarrier_arrive(&memory.last_step);
#pragma unroll
                    for (int j = 0; j < kCols / 8; ++j) {  // ... and the biases come at its last
                        const int col = part.col + j * 8 + lane % 4 * 2;
                        bias1[j] = bias2[j] = half2{};
                        if (col >= N) continue;
                        bias1[j] = *reinterpret_cast<const half2*>(&b1[col]);
                        bias2[j] = *reinterpret_cast<const half2*>(&b2[col]);
                    }
                },
                [&](int stage) {  // each warp tells every block that copies into this one
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = schedule.steps; p < kPanels; ++p) outgoing.store(p, panels, out);

            float gates[kTileN / 4];
            gate_sums(gates, sums, bias1, bias2);
            outgoing.take(gates, part.row + threadIdx.x / 32 * 16, part.col);
        });
        outgoing.store_all(panels, out);
    }
}

template <int kTileN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    fused_hopper(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                 const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int N) {
    gate_tiles<kTileN, kStages, kCluster, true>(x, W1, b1, W2, b2, out, N);
}

/// Prepares a launch of `kernel`, which runs gate_tiles with these template arguments.
template <int kTileN, int kStages, int kCluster, class Kernel>
std::function<void()> prepare(Kernel kernel, const demo::Gating& g) {
    const size_t bytes = sizeof(GatingMemory<kTileN, kStages>), N = g.shape.M;
    demo::allow_shared_bytes(kernel, bytes);
    const int rows = int(N + kCluster * kBlockM - 1) / (kCluster * kBlockM);
    const int tiles = rows * (int(N + kTileN / 2 - 1) / (kTileN / 2));
    // As few clusters as need no more rounds: they stay in step, and share what the cache holds.
    const int room = demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(kernel);
    const int rounds = (tiles + room - 1) / room, clusters = (tiles + rounds - 1) / rounds;
    const CUtensorMap x = hopper::tensor_map(g.x.data(), N, N, kBlockM),
                      W1 = hopper::tensor_map(g.W1.data(), N, N, kBlockK),
                      W2 = hopper::tensor_map(g.W2.data(), N, N, kBlockK),
                      out = hopper::tensor_map(g.out.data(), N, N, 16);  // what a warp stores
    return [=, b1 = g.b1.data(), b2 = g.b2.data()] {
        kernel<<<kCluster * clusters, kThreads, bytes>>>(x, W1, b1, W2, b2, out, int(N));
    };
}

/// A kernel of square matrices on Hopper. `prepare` returns what launches it.
inline demo::Contender contender_of(const std::string& name, const demo::Gating& g,
                                    const demo::Gpu& gpu,
                                    std::function<std::function<void()>()> prepare) {
    return g.fused_prepared(name, prepare, "square", hopper::why_not(gpu));
}

/// fused_hopper with tiles of half the width where there are SMs enough for all of them. A cluster
/// takes longer to start, which pays where there is more than one tile for each block.
inline demo::Contender contender(const demo::Gating& g, const demo::Gpu& gpu) {
    return contender_of("fused_hopper", g, gpu, [&] {
        const size_t N = g.shape.M, many = size_t(gpu.multiprocessors);
        auto tiles = [&](size_t width) {
            return (N + kBlockM - 1) / kBlockM * ((N + width - 1) / width);
        };
        if (tiles(64) <= many) return prepare<128, 6, 1>(fused_hopper<128, 6, 1>, g);
        if (tiles(128) <= many) return prepare<256, 4, 1>(fused_hopper<256, 4, 1>, g);
        return prepare<256, 4, 2>(fused_hopper<256, 4, 2>, g);
    });
}

}  // namespace gating_hopper
