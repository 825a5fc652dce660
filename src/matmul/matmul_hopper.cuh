// Belongs to bonus_matmul_hopper, whose rungs explain what each part is for: what the rungs, the
// record (matmul_hopper_record.cuh) and other kernels for Hopper share.
//
//   Stage, multiply_stage       a step's tiles of A and B in shared memory, and wgmma
//   Ring, Position, load_stage  stages with their barriers; TMA fills them
//   produce, consume            the main loop: one warpgroup copies, the others multiply
//   rasterize                   an order of tiles in which those that are computed together are
//                               close to each other
//   Outgoing, Memory            a finished tile on its way to global memory
//   load_stage_multicast        TMA fills the stages of a cluster's blocks
//   Part, Schedule              which block computes which steps of which tiles
//   Exchange, join_parts        sums on their way from block to block, and how they meet
//   multiply_parts, stream_k    all of these: what each block of a cluster runs
#pragma once

#include "demo.cuh"
#include "hopper.cuh"
#include "ptx.cuh"

namespace matmul_hopper {

constexpr int kBlockM = 128, kBlockN = 256;  // a block's tile of C; the record has others too
constexpr int kBlockK = 64;                  // a step's columns of A, rows of B
constexpr int kPanel = 64;                   // columns: rows of 128 bytes, as wgmma wants them
constexpr int kConsumers = kBlockM / 64;     // warpgroups that multiply: 64 rows of the tile each
constexpr int kWarpgroup = 128;              // threads

/// The number of this thread's warpgroup. The shuffle tells the compiler that it is the same for
/// all threads of a warp.
__device__ int warpgroup_index() { return __shfl_sync(~0u, threadIdx.x / kWarpgroup, 0); }

// --- From rung 1 on: a stage, and wgmma ---------------------------------------------------------

/// Columns of a panel of B: 64, or 32 where only those divide the tile.
template <int kTileN>
constexpr int kPanelColumns = kTileN % kPanel != 0 && kTileN % 32 == 0 ? 32 : kPanel;

/// The tiles of A and B that one step of K needs, in shared memory.
template <class T, int kTileN, int kTileM = kBlockM, int kWidth = kPanelColumns<kTileN>>
struct alignas(1024) Stage {
    static constexpr int kColumns = kWidth, kPanels = (kTileN + kColumns - 1) / kColumns;
    T A[kTileM][kBlockK];             // rows swizzled
    T B[kPanels][kBlockK][kColumns];  // in panels, rows swizzled
};

/// Starts a warpgroup's 64 rows of  sums[kTileM, kTileN] (+)= stage.A stage.B.
template <class T, int kTileN, int kTileM, int kWidth>
__device__ void multiply_stage(float (&sums)[kTileN / 2],
                               const Stage<T, kTileN, kTileM, kWidth>& stage, int warpgroup,
                               bool keep) {
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlockK; k += 16)
        hopper::wgmma_mma_async<T>(
            sums, hopper::matrix_descriptor(&stage.A[64 * warpgroup][k]),
            hopper::matrix_descriptor<kWidth>(&stage.B[0][k][0], sizeof stage.B[0]), keep || k > 0);
    hopper::wgmma_commit_group();
}

// --- From rung 2 on: a ring of stages, and TMA --------------------------------------------------

/// Stages in a ring, with the barriers that say who may use them.
template <class T, int kTileN, int kStages, int kTileM = kBlockM,
          int kWidth = kPanelColumns<kTileN>>
struct Ring {
    Stage<T, kTileN, kTileM, kWidth> stages[kStages];
    hopper::Barrier full[kStages];   // the stage's bytes have arrived
    hopper::Barrier empty[kStages];  // nobody needs them any more

    /// One thread initializes the barriers; `readers` warps free each stage.
    __device__ void init(int readers) {
        for (int s = 0; s < kStages; ++s) {
            hopper::mbarrier_init(&full[s], 1);
            hopper::mbarrier_init(&empty[s], readers);
        }
        hopper::fence_mbarrier_init();
    }
};

/// A thread's place in the ring: the stage, and the parity of its barriers' phase.
template <int kStages>
struct Position {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void advance() {
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
    /// By any number of steps.
    __device__ void skip(int steps) {
        stage += steps;
        parity ^= stage / kStages & 1;
        stage %= kStages;
    }
};

/// One thread starts a stage's copies: columns k ... of A, rows k ... of B.
template <class T, int kTileN, int kTileM>
__device__ void load_stage(Stage<T, kTileN, kTileM>& stage, hopper::Barrier* full,
                           const CUtensorMap& A, const CUtensorMap& B, int row, int col, int k) {
    hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
    hopper::tma_load(stage.A, A, row, k, full);
    for (int p = 0; p < stage.kPanels; ++p)
        hopper::tma_load(stage.B[p], B, k, col + p * stage.kColumns, full);
}

// --- From rung 3 on: the main loop --------------------------------------------------------------

/// Threads of a block: its consumers, 64 of the tile's rows for each, and a producer.
constexpr int threads(int tile_rows) { return (tile_rows / 64 + 1) * kWarpgroup; }
constexpr int kThreads = threads(kBlockM);

/// The producer, one thread: fills stages as they become free, for all steps of a tile.
/// load(stage, full, t) starts the copies of step t.
template <class T, int kTileN, int kStages, int kTileM, int kWidth, class Load>
__device__ void produce(Ring<T, kTileN, kStages, kTileM, kWidth>& ring, Position<kStages>& at,
                        int steps, Load load) {
    for (int t = 0; t < steps; ++t, at.advance()) {
        // Parity 1 of a new barrier reads as complete, so the first round does not wait.
        hopper::mbarrier_wait(&ring.empty[at.stage], at.parity ^ 1);
        load(ring.stages[at.stage], &ring.full[at.stage], t);
    }
}

/// A consumer, one warpgroup: its 64 rows' sums over all steps of a tile. Each step's wgmma start
/// while the previous step's still run. meanwhile(t) runs beside step t; release(stage) frees a
/// stage.
template <class T, int kTileN, int kStages, int kTileM, int kWidth, class Meanwhile, class Release>
__device__ void consume(float (&sums)[kTileN / 2], Ring<T, kTileN, kStages, kTileM, kWidth>& ring,
                        Position<kStages>& at, int steps, int warpgroup, Meanwhile meanwhile,
                        Release release) {
    int previous = 0;
    for (int t = 0; t < steps; ++t, at.advance()) {
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        multiply_stage<T, kTileN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        meanwhile(t);
        hopper::wgmma_wait_group<1>();  // step t - 1 is done
        if (t > 0) release(previous);
        previous = at.stage;
    }
    hopper::wgmma_wait_group<0>();
    release(previous);
}

// --- From rung 4 on: tile after tile ------------------------------------------------------------

/// Where tile i of rows x columns is: down `group` rows, then on to the next column. So tiles that
/// are computed at the same time are close together, and find each other's A and B in L2.
template <int kGroup = 8>
__device__ int2 rasterize(int i, int rows, int columns, int group = kGroup) {
    int first = 0;
    for (; i >= group * columns; i -= group * columns) first += group;
    // On the critical path before the first copy, so avoid integer division by a variable.
    if (first + group <= rows) return {first + i % group, i / group};
    return {first + i % (rows - first), i / (rows - first)};
}

// --- From rung 5 on: tiles leave beside the next one's steps ------------------------------------

constexpr int kOutPanels = 2;  // of each warp, to be filled and stored in turn

/// A block's shared memory.
template <class T, int kTileN, int kStages, int kOutPanels, int kTileM = kBlockM>
struct Memory {
    Ring<T, kTileN, kStages, kTileM> ring;
    // Of each warp; rows swizzled.
    alignas(1024) T out[kTileM / 16][kOutPanels][16][kPanelColumns<kTileN>];
};

/// How Outgoing stores a box. Other headers overload it for destinations of their own.
__device__ inline void store_box(const CUtensorMap& C, int row, int col, const void* box) {
    hopper::tma_store(C, row, col, box);
}

/// A warp's 16 rows of a finished tile: rounded, which frees the sums' registers for the next tile.
template <class T, int kTileN>
struct Outgoing {
    static constexpr int kColumns = kPanelColumns<kTileN>, kPanels = kTileN / kColumns;
    uint32_t pairs[kTileN / 4];
    int row, col;
    bool pending = false;
    int next = 0;  // the panel of shared memory to fill

    __device__ void take(const float (&sums)[kTileN / 2], int new_row, int new_col) {
#pragma unroll
        for (int i = 0; i < kTileN / 4; ++i)
            pairs[i] = ptx::cvt_rn_x2<T>(sums[2 * i], sums[2 * i + 1]);
        row = new_row, col = new_col, pending = true;
    }

    /// Stores panel p of a tile that was taken; does nothing before the first one.
    template <int kOutPanels, class Map>
    __device__ void store(int p, T (&out)[kOutPanels][16][kColumns], const Map& C) {
        if (!pending) return;
#pragma unroll
        for (int q = 0; q < kPanels; ++q)  // registers cannot be indexed at run time
            if (p == q) store_panel(q, out, C);
        pending = p + 1 < kPanels;
    }

    /// Stores all panels of the last tile, and waits until TMA has read them: a block's shared
    /// memory must outlive its stores.
    template <int kOutPanels, class Map>
    __device__ void store_all(T (&out)[kOutPanels][16][kColumns], const Map& C) {
        if (pending) {
#pragma unroll
            for (int p = 0; p < kPanels; ++p) store_panel(p, out, C);
        }
        if (threadIdx.x % 32 == 0) hopper::cp_async_bulk_wait_group_read<0>();
    }

  private:
    /// Through shared memory, from where TMA stores it while the warp goes on.
    template <int kOutPanels, class Map>
    __device__ void store_panel(int p, T (&out)[kOutPanels][16][kColumns], const Map& C) {
        const int lane = threadIdx.x % 32;
        T(&panel)[16][kColumns] = out[next];
        next = (next + 1) % kOutPanels;
        if (lane == 0) hopper::cp_async_bulk_wait_group_read<kOutPanels - 1>();
        __syncwarp();  // the panel may be overwritten
#pragma unroll
        for (int c = 0; c < kColumns / 16; ++c) {
            const uint32_t* v = &pairs[(p * kColumns / 16 + c) * 4];  // 16 x 16 elements
            const int r = lane % 16, chunk = 2 * c + lane / 16;
            const int swizzle = r * kColumns / 64 % (kColumns / 8);
            hopper::stmatrix_x4(&panel[r][(chunk ^ swizzle) * 8], v[0], v[1], v[2], v[3]);
        }
        hopper::fence_proxy_async();  // makes what this thread wrote visible to TMA
        __syncwarp();
        if (lane == 0) {
            store_box(C, row, col + p * kColumns, panel);
            hopper::cp_async_bulk_commit_group();
        }
    }
};

// --- From rung 6 on: clusters -------------------------------------------------------------------

/// The mask of the blocks in block `rank`'s column of the cluster. Ranks count downwards.
template <int kBelow>
__device__ int column_mask(int rank) {
    return ((1 << kBelow) - 1) << rank / kBelow * kBelow;
}

/// Loads the tile of A in a cluster of kBelow x kBeside blocks. Blocks beside each other need the
/// same rows: each copies a share, into the shared memory of all of them.
template <int kBelow, int kBeside, class Stage>
__device__ void load_rows(Stage& stage, hopper::Barrier* full, const CUtensorMap& A, int rank,
                          int row, int k) {
    if constexpr (kBeside == 1) {
        hopper::tma_load(stage.A, A, row, k, full);
    } else {
        // Bits of the blocks in the cluster's first row.
        constexpr int kRow = ((1 << kBelow * kBeside) - 1) / ((1 << kBelow) - 1);
        constexpr int kEach = sizeof stage.A / sizeof stage.A[0] / kBeside;  // rows
        const int first = rank / kBelow * kEach;
        hopper::tma_load_multicast(&stage.A[first], A, row + first, k, full, kRow << rank % kBelow);
    }
}

/// load_stage() in such a cluster: blocks below each other share the tile of B in the same way. A
/// stage is complete when the bytes from all blocks have arrived. (Some may arrive before this
/// block expects them. They count: the phase cannot end before its arrival.)
template <int kBelow, int kBeside = 1, class T, int kTileN, int kTileM>
__device__ void load_stage_multicast(Stage<T, kTileN, kTileM>& stage, hopper::Barrier* full,
                                     const CUtensorMap& A, const CUtensorMap& B, int rank, int row,
                                     int col, int k) {
    hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
    load_rows<kBelow, kBeside>(stage, full, A, rank, row, k);
#pragma unroll 1  // the compiler would repeat it 16 times, and a launch fetches its code, too
    for (int p = rank % kBelow; p < stage.kPanels; p += kBelow)
        hopper::tma_load_multicast(stage.B[p], B, k, col + p * stage.kColumns, full,
                                   column_mask<kBelow>(rank));
}

/// The producer's last wait: until all readers have freed all stages. The readers of other blocks
/// arrive at this block's barriers, so it must not leave before.
template <class T, int kTileN, int kStages, int kTileM, int kWidth>
__device__ void wait_until_free(Ring<T, kTileN, kStages, kTileM, kWidth>& ring,
                                Position<kStages>& at) {
    for (int s = 0; s < kStages; ++s, at.advance())
        hopper::mbarrier_wait(&ring.empty[at.stage], at.parity ^ 1);
}

// --- Rung 7: tiles divided among blocks ---------------------------------------------------------

/// What a block computes without a break: steps first ... last - 1 of a tile.
struct Part {
    int tile;  // its number
    int row, col;
    int first, last;
    bool backward;  // from the last step to the first
};

/// Which parts each cluster computes. Its blocks' tiles are below each other and count as one tile
/// here. The steps of tiles 0 ... divided - 1 are put in a line, and every cluster gets an equal
/// share of it. Three tiles for two clusters:
///
///     tile      |     0     |     1     |     2     |
///     cluster   |        0        |        1        |
///     part      |     a     |  b  |  c  |     d     |
///
/// Cluster 0 computes a and then b, cluster 1 computes c and then d. The other tiles stay whole.
template <int kTileN, int kCluster, int kTileM = kBlockM>
struct Schedule {
    static constexpr int kBlocks = kCluster, kRows = kTileM, kColumns = kTileN;
    static constexpr int kBelow = kCluster, kBeside = 1;
    static constexpr bool kDivides = true;
    int N, divided;
    int steps = (N + kBlockK - 1) / kBlockK;
    int rows = (N + kCluster * kTileM - 1) / (kCluster * kTileM);
    int columns = (N + kTileN - 1) / kTileN, tiles = rows * columns;
    int clusters = gridDim.x / kCluster, cluster = blockIdx.x / kCluster;

    /// Where cluster c's share of the divided tiles' steps begins.
    __device__ int first_step(int c) const {
        return divided == 0 ? 0 : int(int64_t(c) * divided * steps / clusters);
    }

    /// What the block of this rank in its cluster computes of tile i.
    __device__ Part part(int i, int rank, int first, int last, bool backward = false) const {
        const int2 tile = rasterize(i, rows, columns);
        return {i, (tile.x * kCluster + rank) * kTileM, tile.y * kTileN, first, last, backward};
    }

    /// Calls work(part) for this block's parts: first those of the cluster's share, which is cut
    /// where a tile ends, then whole tiles. Every second of these is walked backward: the tile
    /// before it ended with its last columns of A, which are still in the L2 cache.
    template <class Work>
    __device__ void for_each_part(int rank, Work work) const {
        for (int s = first_step(cluster), end = first_step(cluster + 1); s < end;) {
            const int first = s % steps, last = min(steps, first + end - s);
            work(part(s / steps, rank, first, last));
            s += last - first;
        }
        bool backward = true;
        for (int i = divided + cluster; i < tiles; i += clusters, backward = !backward)
            work(part(i, rank, 0, steps, backward));
    }
};

/// Sums of divided tiles on their way from block to block. Threads with the same number hold the
/// same elements of a tile, so each thread passes its own on; each warp has a flag.
struct Exchange {
    float4* sums;  // [blocks, kBlockN / 8, kThreads]
    int* ready;    // [blocks, kWarps], 0 between launches

    static constexpr int kThreads = kConsumers * kWarpgroup, kWarps = kThreads / 32;

    /// Leaves this block's sums for another.
    template <int kSums>
    __device__ void give(const float (&mine)[kSums]) const {
        float4* const to = &sums[size_t(blockIdx.x) * (kSums / 4) * kThreads + threadIdx.x];
#pragma unroll
        for (int i = 0; i < kSums / 4; ++i)
            to[i * kThreads] = {mine[4 * i], mine[4 * i + 1], mine[4 * i + 2], mine[4 * i + 3]};
        __syncwarp();  // one fence releases what the whole warp has stored before this
        if (threadIdx.x % 32 == 0) {
            __threadfence();
            atomicExch(&ready[blockIdx.x * kWarps + threadIdx.x / 32], 1);
        }
    }

    /// Adds the sums that `block` gives, once they are there. The wait ends, since all blocks of
    /// the grid run at once, and each gives before it waits. Callers add blocks in a fixed order,
    /// so that every launch gives the same bits.
    template <int kSums>
    __device__ void add(float (&mine)[kSums], int block) const {
        int* const flag = &ready[block * kWarps + threadIdx.x / 32];
        if (threadIdx.x % 32 == 0) {
            while (atomicAdd(flag, 0) == 0) {
            }
            *flag = 0;
            __threadfence();  // acquires the sums, for the whole warp
        }
        __syncwarp();
        const float4* const from = &sums[size_t(block) * (kSums / 4) * kThreads + threadIdx.x];
#pragma unroll
        for (int i = 0; i < kSums / 4; ++i) {
            const float4 theirs = from[i * kThreads];
            mine[4 * i] += theirs.x, mine[4 * i + 1] += theirs.y;
            mine[4 * i + 2] += theirs.z, mine[4 * i + 3] += theirs.w;
        }
    }
};

/// The memory of an Exchange, for any N. One serves all launches that follow each other.
class ExchangeBuffers {
  public:
    explicit ExchangeBuffers(int multiprocessors)
        : sums_(size_t(multiprocessors) * kBlockM * kBlockN / 4),
          ready_(size_t(multiprocessors), Exchange::kWarps) {
        DEMO_CHECK(cudaMemset(ready_.data(), 0, ready_.bytes()));
    }

    operator Exchange() const { return {sums_.data(), ready_.data()}; }

  private:
    demo::Buffer<float4> sums_;
    demo::Buffer<int> ready_;
};

/// Joins the parts of a divided tile, in the block that has its first steps. In Schedule's picture
/// the block of c gives its sums away, and the block of b adds them to its own. (c is the first
/// part of its cluster and b the last, so b seldom waits.) Returns whether `sums` are now complete.
template <class Schedule, int kSums>
__device__ bool join_parts(float (&sums)[kSums], const Schedule& schedule, const Part& part,
                           int rank, const Exchange& exchange) {
    if (part.first > 0) {  // c
        exchange.give(sums);
        return false;
    }
    // b; and a, where nothing is missing. The share of cluster c goes on with the tile at `last`.
    for (int c = schedule.cluster + 1, last = part.last; last < schedule.steps; ++c) {
        exchange.add(sums, c * schedule.kBlocks + rank);
        last = min(schedule.steps, schedule.first_step(c + 1) - part.tile * schedule.steps);
    }
    return true;
}

/// Computes a block's parts, by Schedule or Patches: stream_k, eights_and_twos, and the record in
/// clusters.
template <class T, int kStages, class Schedule>
__device__ void multiply_parts(const CUtensorMap& A, const CUtensorMap& B, const CUtensorMap& C,
                               const Schedule& schedule, Exchange exchange) {
    constexpr int kTileM = Schedule::kRows, kTileN = Schedule::kColumns;
    constexpr int kConsumers = kTileM / 64, kCluster = Schedule::kBelow * Schedule::kBeside;
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<T, kTileN, kStages, kOutPanels, kTileM>*>(shared);
    auto& ring = memory.ring;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) ring.init(4 * kConsumers * kCluster);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        if constexpr (kConsumers > 1) hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup) {
            schedule.for_each_part(rank, [&](const Part& part) {
                produce(ring, at, part.last - part.first, [&](auto& stage, auto* full, int t) {
                    const int k = (part.backward ? part.last - 1 - t : part.first + t) * kBlockK;
                    if constexpr (kCluster == 1)
                        load_stage(stage, full, A, B, part.row, part.col, k);
                    else
                        load_stage_multicast<Schedule::kBelow, Schedule::kBeside>(
                            stage, full, A, B, rank, part.row, part.col, k);
                });
            });
            wait_until_free(ring, at);
        }
    } else {
        if constexpr (kConsumers > 1) hopper::setmaxnreg_inc<232>();
        constexpr int kPanels = Outgoing<T, kTileN>::kPanels;
        auto& out = memory.out[threadIdx.x / 32];
        Outgoing<T, kTileN> outgoing;
        schedule.for_each_part(rank, [&](const Part& part) {
            float sums[Schedule::kColumns / 2];
            const int steps = part.last - part.first;
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // the tile before leaves beside this one's first steps
                    if (t < kPanels) outgoing.store(t, out, C);
                },
                [&](int stage) {  // each warp tells all blocks of the cluster
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, out, C);

            if constexpr (Schedule::kDivides)
                if (!join_parts(sums, schedule, part, rank, exchange)) return;
            outgoing.take(sums, part.row + threadIdx.x / 32 * 16, part.col);
        });
        outgoing.store_all(out, C);
    }
}

template <class T>
__global__ void HOPPER_CLUSTER(2) __launch_bounds__(kThreads, 1)
    stream_k(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
             const __grid_constant__ CUtensorMap B,  // [N, N] row-major
             const __grid_constant__ CUtensorMap C,  // [N, N] row-major
             int N, int divided, Exchange exchange) {
    multiply_parts<T, 4>(A, B, C, Schedule<kBlockN, 2>{N, divided}, exchange);
}

}  // namespace matmul_hopper
