// Belongs to bonus_gating_gpus, which explains it: a product whose terms are divided among GPUs.
// While they compute, they add up their partial sums, tile by tile, through each other's memory.
#pragma once

#include "gpus/gpus.cuh"
#include "matmul/matmul_hopper.cuh"

namespace exchange_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are stored

constexpr int kTileN = 256, kStages = 4, kCluster = 2;  // as the largest tiles of the record
constexpr int kMostGpus = 8;                            // what a kernel's parameters have room for
constexpr int kWarps = 4 * kConsumers;                  // of a block, that store

/// What a GPU knows of the others, by their numbers.
struct Peers {
    CUtensorMap out[kMostGpus];       // out[M, N] on each GPU
    CUtensorMap partials[kMostGpus];  // where this GPU leaves its partial sums of their tiles
    int* announced[kMostGpus];        // flags there: they have arrived; [tiles, kCluster, kWarps]
    CUtensorMap received[kMostGpus];  // their partial sums here, [M, N]
    const int* arrived[kMostGpus];    // and their flags here
    CUtensorMap identity;             // [kBlockM, kBlockM], see add_received()
    int rank, gpus;                   // this GPU's number, and how many there are
};

/// Where a finished tile goes: to its owner, or to all.
struct Destination {
    const CUtensorMap* maps;
    int count;
};
__device__ inline void store_box(const Destination& to, int row, int col, const void* box) {
    for (int i = 0; i < to.count; ++i) hopper::tma_store(to.maps[i], row, col, box);
}

constexpr int kReceivedSteps = kBlockM / kBlockK;  // for what one GPU has left here of a tile

/// The producer waits for a GPU's partial sums of the tile at [row, col]. The consumers add them as
/// more steps of the product, where A is the identity, and B the partial sums. So they are copied
/// ahead, like all stages. (Adding them in registers after the last step took 7 to 16 us more for
/// each tile, on an NVIDIA H100.)
template <class Ring>
__device__ void add_received(Ring& ring, Position<kStages>& at, const Peers& peers, int gpu,
                             int signal, int launch, int row, int col) {
    const volatile int* const arrived = &peers.arrived[gpu][signal];
    for (int warp = 0; warp < kWarps; ++warp)
        while (arrived[warp] != launch) {
        }
    __threadfence_system();              // acquires what was stored before the signals
    hopper::fence_proxy_async_global();  // for the copies below
    produce(ring, at, kReceivedSteps, [&](auto& stage, auto* full, int t) {
        hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
        hopper::tma_load(stage.A, peers.identity, 0, t * kBlockK, full);
        for (int p = 0; p < stage.kPanels; ++p)
            hopper::tma_load(stage.B[p], peers.received[gpu], row + t * kBlockK,
                             col + p * stage.kColumns, full);
    });
}

/// Each GPU owns a range of tiles. First it computes its partial sums of the others' tiles, and
/// leaves them in the owners' memory. Then it computes its own tiles, adds what the others have
/// left here, and stores the result in out of all GPUs. `first`, `last`: the tiles to compute, in
/// that order. `launch`: its number, from 1 on.
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    product_exchanged(const __grid_constant__ CUtensorMap A,  // [M, K] row-major
                      const __grid_constant__ CUtensorMap B,  // [K, N] row-major
                      const __grid_constant__ Peers peers, int M, int K, int N, int first, int last,
                      int launch) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<half, kTileN, kStages, kOutPanels>*>(shared);
    auto& ring = memory.ring;
    const int rank = hopper::cluster_ctarank(), warpgroup = warpgroup_index();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int steps = (K + kBlockK - 1) / kBlockK, columns = (N + kTileN - 1) / kTileN;
    const int rows = (M + kCluster * kBlockM - 1) / (kCluster * kBlockM), tiles = rows * columns;
    auto first_of = [&](int gpu) { return int(int64_t(tiles) * gpu / peers.gpus); };
    const int others = tiles - (first_of(peers.rank + 1) - first_of(peers.rank));
    auto signal_of = [&](int i) { return (i * kCluster + rank) * kWarps; };  // of the first warp
    if (threadIdx.x == 0) ring.init(4 * kConsumers * kCluster);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    /// Calls work(i, row, col, mine) for this block's tiles i.
    auto for_each_tile = [&](auto work) {
        const int clusters = gridDim.x / kCluster;
        for (int j = first + blockIdx.x / kCluster; j < last; j += clusters) {
            const int i = (first_of(peers.rank + 1) + j) % tiles;
            const int2 tile = rasterize(i, rows, columns);
            work(i, (tile.x * kCluster + rank) * kBlockM, tile.y * kTileN, j >= others);
        }
    };
    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup) {
            for_each_tile([&](int i, int row, int col, bool mine) {
                produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                    load_stage_multicast<kCluster>(stage, full, A, B, rank, row, col, t * kBlockK);
                });
                for (int gpu = 0; mine && gpu < peers.gpus; ++gpu)
                    if (gpu != peers.rank)
                        add_received(ring, at, peers, gpu, signal_of(i), launch, row, col);
            });
            wait_until_free(ring, at);
        }
        return;
    }
    hopper::setmaxnreg_inc<232>();
    auto& panels = memory.out[warp];
    Outgoing<half, kTileN> outgoing;
    // The outgoing tile's owner, or -1 if it goes to all; and the number of the signal to give when
    // it has arrived, or -1.
    int owner = -1, signal = -1;
    auto to = [&] {
        return owner < 0 ? Destination{peers.out, peers.gpus}
                         : Destination{&peers.partials[owner], 1};
    };
    auto announce = [&] {
        if (signal >= 0 && lane == 0) {
            hopper::cp_async_bulk_wait_group<0>();
            __threadfence_system();  // releases the tile with the signal
            *static_cast<volatile int*>(&peers.announced[owner][signal]) = launch;
        }
        signal = -1;
    };
    for_each_tile([&](int i, int row, int col, bool mine) {
        constexpr int kPanels = Outgoing<half, kTileN>::kPanels;
        const int received = mine ? kReceivedSteps * (peers.gpus - 1) : 0;
        // The tile before leaves beside this one's steps, a panel at a time. All multiprocessors
        // store to the other GPUs at once, so the panels are far apart: else warps, and their
        // tensor cores, wait for NVLink. The whole tile must leave before the steps that wait for
        // another GPU, since that GPU may be waiting for this tile.
        const int apart = max(1, steps / (kPanels + 1));
        int panel = 0;
        float sums[kTileN / 2];
        consume(
            sums, ring, at, steps + received, warpgroup,
            [&](int t) {
                for (; panel < kPanels && (t >= panel * apart || t + 1 == steps); ++panel)
                    outgoing.store(panel, panels, to());
                if (t == kPanels * apart || t + 1 == steps) announce();  // it has arrived by now
            },
            [&](int stage) {
                if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
            });
        owner = signal = -1;
        if (!mine)
            for (signal = signal_of(i) + warp, owner = 0; i >= first_of(owner + 1);) ++owner;
        outgoing.take(sums, row + warp * 16, col);
    });
    outgoing.store_all(panels, to());
    announce();
}

/// Fills [kBlockM, kBlockM].
__global__ void fill_identity(half* matrix) {
    matrix[blockIdx.x * kBlockM + threadIdx.x] = __float2half(blockIdx.x == threadIdx.x ? 1 : 0);
}

// --- Launching ----------------------------------------------------------------------------------

/// How many numbers Peers::announced has for a GPU.
inline size_t signals(size_t M, size_t N) {
    return kCluster * kWarps * ((M + kCluster * kBlockM - 1) / (kCluster * kBlockM)) *
           ((N + kTileN - 1) / kTileN);
}

/// Prepares a launch for out[M, N] = A[M, K] B[K, N] on the current GPU. Returns what launches a
/// phase: 0, the others' tiles; 1, this GPU's; or both, -1.
inline std::function<void(int, int)> prepare_exchanged(const half* A, const half* B,
                                                       const Peers& peers, size_t M, size_t K,
                                                       size_t N) {
    const size_t bytes = sizeof(Memory<half, kTileN, kStages, kOutPanels>);
    demo::allow_shared_bytes(product_exchanged, bytes);
    const int at_once =
        demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(product_exchanged);
    const int tiles = int(signals(M, N) / (kCluster * kWarps));
    const demo::Share own = demo::Share::of(tiles, peers.rank, peers.gpus);
    const CUtensorMap map_A = hopper::tensor_map(A, M, K, kBlockM),
                      map_B = hopper::tensor_map(B, K, N, kBlockK);
    return [=](int phase, int launch) {
        const int first = phase == 1 ? tiles - int(own.count) : 0;
        const int last = phase == 0 ? tiles - int(own.count) : tiles;
        if (first == last) return;
        // The fewest that need no more rounds, so that they stay in step.
        const int rounds = (last - first + at_once - 1) / at_once;
        const int clusters = (last - first + rounds - 1) / rounds;
        product_exchanged<<<kCluster * clusters, kThreads, bytes>>>(
            map_A, map_B, peers, int(M), int(K), int(N), first, last, launch);
    };
}

}  // namespace exchange_hopper
