// Belongs to bonus_matmul_hopper, whose rungs explain what each part is for: the record, and what
// the rungs, the record and other kernels for Hopper share.
//
//   Stage, multiply_stage               a step's tiles of A and B in shared memory, and wgmma
//   Ring, Position, load_stage          stages with their barriers; TMA fills them
//   produce, consume                    the main loop: one warpgroup copies, the others multiply
//   rasterize, Part, Schedule, Patches  which block computes what, and in which order
//   Outgoing, Memory                    a finished tile on its way to global memory
//   Exchange                            sums on their way from block to block
//   matmul_hopper, Operands, prepare()  the record, and how a program runs it
#pragma once

#include <functional>

#include "demo.cuh"
#include "hopper.cuh"
#include "matmul/hopper_tiles.cuh"
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

/// Where tile i of rows x columns is: down kGroup rows, then on to the next column. So tiles that
/// are computed at the same time are close together, and find each other's A and B in L2.
template <int kGroup = 8>
__device__ int2 rasterize(int i, int rows, int columns) {
    int first = 0;
    for (; i >= kGroup * columns; i -= kGroup * columns) first += kGroup;
    // On the critical path before the first copy, so avoid integer division by a variable.
    if (first + kGroup <= rows) return {first + i % kGroup, i / kGroup};
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
/// stage is complete when the bytes from all blocks have arrived.
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

// --- From rung 8 on: tiles divided among blocks -------------------------------------------------

/// What a block computes without a break: steps first ... last - 1 of a tile.
struct Part {
    int tile;  // its number
    int row, col;
    int first, last;
    bool backward;  // from the last step to the first
};

/// Which parts each cluster computes. The tiles of its blocks are below each other and count as one
/// tile here. The steps of tiles 0 ... divided - 1 are lined up and dealt out evenly to all
/// clusters. The other tiles stay whole.
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

    /// Calls work(part) for all that this block computes.
    template <class Work>
    __device__ void for_each_part(int rank, Work work) const {
        for (int s = first_step(cluster), end = first_step(cluster + 1); s < end;) {
            const int first = s % steps, last = min(steps, first + end - s);
            work(part(s / steps, rank, first, last));
            s += last - first;
        }
        bool backward = true;  // every second whole tile, from the first on
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

/// The block with a tile's first steps adds the sums of the other blocks, which give it theirs.
/// Returns whether `sums` are now those of the whole tile.
template <class Schedule, int kSums>
__device__ bool join_parts(float (&sums)[kSums], const Schedule& schedule, const Part& part,
                           int rank, const Exchange& exchange) {
    if (part.first > 0) {
        exchange.give(sums);
        return false;
    }
    for (int c = schedule.cluster + 1, last = part.last; last < schedule.steps; ++c) {
        exchange.add(sums, c * schedule.kBlocks + rank);
        last = min(schedule.steps, schedule.first_step(c + 1) - part.tile * schedule.steps);
    }
    return true;
}

/// Computes a block's parts, by `Schedule`, in stream_k, eights_and_twos and the record in
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
                [&](int stage) {  // each warp tells all blocks that copy into this one
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

// --- From rung 9 on: clusters of eight beside clusters of two -----------------------------------

/// Which tiles a block computes where clusters of eight and of two run side by side, each in a
/// launch of its own. C is cut into patches of 4 x 2 tiles: each is for one cluster of eight, or
/// for four of two. Blocks 0 to 3 of eight are below each other, 4 to 7 beside them.
template <int kClusterBelow, int kClusterBeside, int kTileN = kBlockN>
struct Patches {
    static constexpr int kRows = kBlockM, kColumns = kTileN;
    static constexpr int kBelow = kClusterBelow, kBeside = kClusterBeside;
    static constexpr bool kDivides = false;
    static constexpr int kHeight = 4, kWidth = 2;  // of a patch, in tiles
    int N;
    int eights, twos;  // clusters; of two an even number
    int steps = (N + kBlockK - 1) / kBlockK;
    int rows = (N + kHeight * kBlockM - 1) / (kHeight * kBlockM);
    int columns = (N + kWidth * kTileN - 1) / (kWidth * kTileN);
    int end = rows * columns;  // patches from here on are left to another launch

    /// Where patch i begins.
    __device__ int2 corner(int i) const {
        const int2 patch = rasterize<4>(i, rows, columns);  // 4 x 4 of them lie close together
        return {patch.x * kHeight * kBlockM, patch.y * kWidth * kTileN};
    }

    /// Calls work(part) for all tiles of this block, every second one from the last step on.
    template <class Work>
    __device__ void for_each_part(int rank, Work work) const {
        constexpr int kBlocks = kBelow * kBeside;
        const int cluster = blockIdx.x / kBlocks;
        bool backward = true;
        for (int round = 0;; ++round, backward = !backward) {
            // Two rounds take 2 * eights + twos / 2 patches. Each cluster of eight computes one a
            // round. Four clusters of two share each of the other patches: two tiles each.
            int i = round / 2 * (2 * eights + twos / 2), place = rank;
            if (kBlocks == 2) {
                const int pair = round % 2 * twos + cluster;
                i += 2 * eights + pair / 4, place += pair % 4 * 2;
            } else {
                i += round % 2 * eights + cluster;
            }
            if (i >= end) return;
            const int2 at = corner(i);
            work(Part{i, at.x + place % kHeight * kBlockM, at.y + place / kHeight * kTileN, 0,
                      steps, backward});
        }
    }
};
using Eights = Patches<4, 2>;
using Twos = Patches<2, 1>;

// --- Rung 10: the record ------------------------------------------------------------------------

/// A block's warpgroups that multiply tiles of so many columns: one for each 64.
__host__ __device__ constexpr int tile_consumers(int tile_columns) { return tile_columns / 64; }

/// Threads of such a block. One warp would do as the producer. But two consumers may need more
/// registers than an even share (tiles of 256 x 128): a warpgroup can give its own.
constexpr int tile_threads(int tile_columns) {
    const int consumers = tile_consumers(tile_columns);
    return consumers * kWarpgroup + (consumers == 2 ? kWarpgroup : 32);
}

/// Rows of a tile that are stored at once: all, if one warpgroup has the whole tile.
constexpr int strip_rows(int tile_rows, int tile_columns) {
    return tile_columns == 64 ? tile_rows : tile_rows % 32 == 0 ? 32 : 16;
}

/// The numbered barrier at which consumers wait until the ring's are ready. The producer does not
/// wait: its first copies are on their way meanwhile.
constexpr int kReady = 15;

/// The shared memory of such a block.
template <class T, int kTileM, int kTileN, int kStages>
struct TileMemory {
    Ring<T, kTileN, kStages, kTileM> ring;
    // Of each warpgroup; rows swizzled.
    static constexpr int kStrips = kTileN == 64 ? 1 : 2;
    alignas(1024) T out[tile_consumers(kTileN)][kStrips][strip_rows(kTileM, kTileN)][kPanel];
};

/// The rows of a tile that are inside A: fewer than kTileM at its lower edge. TMA takes time to
/// fill the others with zeros, so there a second map, `last`, copies a box of `count` rows. (The
/// others keep numbers of an older stage, which only reach rows that C does not have.)
template <int kTileM>
struct TileRows {
    int count;
    const CUtensorMap* map;

    __device__ TileRows(const CUtensorMap& A, const CUtensorMap& last, int row, int rows_of_A)
        : count(min(kTileM, rows_of_A - row)), map(count == kTileM ? &A : &last) {}

    /// Starts the copy of A's rows. The barrier expects them and `panels` panels of B, which
    /// load_panels() copies.
    template <class T, int kTileN>
    __device__ void load(Stage<T, kTileN, kTileM>& stage, hopper::Barrier* full, int row, int k,
                         int panels) const {
        const int bytes = count * sizeof stage.A[0] + panels * sizeof stage.B[0];
        hopper::mbarrier_arrive_expect_tx(full, bytes);
        hopper::tma_load(stage.A, *map, row, k, full);
    }
};

/// How many of a tile's panels begin inside B[N, N].
template <int kTileN>
__device__ int count_panels(int col, int N) {
    return min(kTileN / kPanel, (N - col + kPanel - 1) / kPanel);
}

/// Starts the copies of the first `panels` panels of B's tile.
template <class T, int kTileN, int kTileM>
__device__ void load_panels(Stage<T, kTileN, kTileM>& stage, hopper::Barrier* full,
                            const CUtensorMap& B, int col, int k, int panels) {
#pragma unroll 1  // less code
    for (int p = 0; p < panels; ++p)
        hopper::tma_load(stage.B[p], B, k, col + p * stage.kColumns, full);
}

/// Starts 64 columns of the tile, from B's panel: the transpose of  stage.A stage.B[panel], over
/// kDepth columns of stage.A.
template <int kDepth, class T, int kTileN, int kTileM>
__device__ void multiply_panel(float (&sums)[kTileM / 2], const Stage<T, kTileN, kTileM>& stage,
                               int panel, bool keep) {
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16)
        hopper::wgmma_mma_async_transposed<T>(
            sums, hopper::matrix_descriptor(&stage.B[panel][k][0]),
            hopper::matrix_descriptor(&stage.A[0][k]), keep || k > 0);
    hopper::wgmma_commit_group();
}

/// consume() for a warpgroup with kEach panels of 64 columns, from B's panel `first` on. `depth`:
/// columns of A. before_last() runs when the last step's bytes have arrived, before its wgmma.
template <class T, int kTileN, int kTileM, int kStages, int kEach, class BeforeLast>
__device__ void consume_panels(float (&sums)[kEach][kTileM / 2],
                               Ring<T, kTileN, kStages, kTileM>& ring, Position<kStages>& at,
                               int depth, int first, BeforeLast before_last) {
    const bool tells = threadIdx.x % 32 == 0;
    int k = 0, previous = 0;
    auto step = [&]<int kDepth>(std::integral_constant<int, kDepth>) {
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        if (k + kBlockK >= depth) before_last();
#pragma unroll
        for (int i = 0; i < kEach; ++i)
            multiply_panel<kDepth>(sums[i], ring.stages[at.stage], first + i, k > 0);
        hopper::wgmma_wait_group<kEach>();  // the step before is done
        if (k > 0 && tells) hopper::mbarrier_arrive(&ring.empty[previous]);
        previous = at.stage;
        at.advance();
    };
    constexpr int kHalf = kBlockK / 2;
    for (; k + kHalf < depth; k += kBlockK) step(std::integral_constant<int, kBlockK>());
    if (k < depth) step(std::integral_constant<int, kHalf>());  // A has no more columns
    hopper::wgmma_wait_group<0>();
    if (tells) hopper::mbarrier_arrive(&ring.empty[previous]);
}

/// Stores a warpgroup's panels, each 64 columns of C, from `col` on. value(i, j): a thread's j-th
/// number of panel i. A warp has 16 rows of the transpose: columns of C. stmatrix turns them back.
template <int kRows, int kPanels, class Value, class T, int kOut, int kStrip>
__device__ void store_columns(Value value, T (&out)[kOut][kStrip][kPanel], const CUtensorMap& C,
                              int row, int col, int warpgroup) {
    constexpr int kStrips = kRows / kStrip, kLeaving = kOut - 1;
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool first = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int s = 0; s < kPanels * kStrips; ++s) {
        const int i = s / kStrips, below = s % kStrips * kStrip;
        T(&strip)[kStrip][kPanel] = out[s % kOut];
        if (kOut > 1) {
            if (first) hopper::cp_async_bulk_wait_group_read<kLeaving>();
            hopper::barrier_sync_warpgroup(warpgroup);  // the strip may be overwritten
        }
#pragma unroll
        for (int j = 0; j < kStrip; j += 16) {  // 16 x 16 elements
            uint32_t pairs[4];
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const int at = (below + j) / 2 + 2 * v;
                pairs[v] = ptx::cvt_rn_x2<T>(value(i, at), value(i, at + 1));
            }
            const int r = j + lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
            hopper::stmatrix_x4_trans(&strip[r][(chunk ^ r % 8) * 8], pairs[0], pairs[1], pairs[2],
                                      pairs[3]);
        }
        hopper::fence_proxy_async();  // makes what this thread wrote visible to TMA
        hopper::barrier_sync_warpgroup(warpgroup);
        if (first) {
            hopper::tma_store(C, row + below, col + i * kPanel, strip);
            hopper::cp_async_bulk_commit_group();
        }
    }
    // Shared memory must outlive its stores, and the next tile begins with the first strip again.
    if (first) hopper::cp_async_bulk_wait_group_read<0>();
}

/// Computes a block's only tile. A launch finds no code in the caches, and at small N much of its
/// time goes into fetching it: 5 KB here, 40 KB in a kernel that divides tiles. No earlier tile
/// waits in registers to be stored, so more are left for sums.
///
/// wgmma computes the transpose, B^T A^T. Its product always has 64 rows, but any multiple of 8
/// columns. Here these are C's rows, so a tile can have as many as it likes: each is 128 bytes of A
/// to copy, while B's columns come in panels of 64. (store_columns() wants multiples of 16.)
template <class T, int kTileM, int kTileN, int kStages>
__device__ void multiply_tile(const CUtensorMap& A, const CUtensorMap& last_A, const CUtensorMap& B,
                              const CUtensorMap& C, int N, int row, int col) {
    constexpr int kConsumers = tile_consumers(kTileN), kProducer = kConsumers * kWarpgroup;
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<TileMemory<T, kTileM, kTileN, kStages>*>(shared);
    auto& ring = memory.ring;
    const int warpgroup = warpgroup_index();
    Position<kStages> at;
    if (warpgroup == kConsumers) {
        if (threadIdx.x == kProducer) {
            // A launch finds no tensor maps in the caches either.
            for (const CUtensorMap* map : {&A, &last_A, &B, &C}) hopper::prefetch_tensormap(*map);
            ring.init(4 * kConsumers);
        }
        hopper::barrier_arrive(kReady, blockDim.x);
        if constexpr (kConsumers == 2) hopper::setmaxnreg_dec<24>();
        if (threadIdx.x > kProducer) return;
        const TileRows<kTileM> rows(A, last_A, row, N);
        const int panels = count_panels<kTileN>(col, N);
        produce(ring, at, (N + kBlockK - 1) / kBlockK, [&](auto& stage, auto* full, int t) {
            rows.load(stage, full, row, t * kBlockK, panels);
            load_panels(stage, full, B, col, t * kBlockK, panels);
        });
    } else {
        hopper::barrier_sync(kReady, blockDim.x);
        if constexpr (kConsumers == 2) hopper::setmaxnreg_inc<240>();
        float sums[1][kTileM / 2];
        consume_panels(sums, ring, at, N, warpgroup, [] {});
        store_columns<kTileM, 1>([&](int i, int j) { return sums[i][j]; }, memory.out[warpgroup], C,
                                 row, col + warpgroup * kPanel, warpgroup);
    }
}

/// The shared memory of a block that computes tile after tile, of 128 columns.
template <class T, int kTileM, int kStages>
struct PingpongMemory : TileMemory<T, kTileM, 128, kStages> {
    hopper::Barrier turn[2];  // of each warpgroup: all steps before its tile's have arrived
};

/// Ping-pong: two warpgroups compute tile after tile in turn, and while one multiplies, the other
/// one's tile leaves. Only the block's last epilogue is exposed; the others overlap the other
/// warpgroup's main loop. A warpgroup has a whole tile: two panels of the transpose, twice as many
/// sums as in multiply_tile(). load(stage, full, part, k) starts the copies of a step, finish(sums,
/// part, warpgroup) stores a tile.
template <class T, int kTileM, int kStages, class Schedule, class Load, class Finish>
__device__ void multiply_pingpong(PingpongMemory<T, kTileM, kStages>& memory,
                                  const Schedule& schedule, int depth, Load load, Finish finish) {
    constexpr int kWarpgroups = 2, kProducer = kWarpgroups * kWarpgroup;  // a tile each, in turn
    auto& ring = memory.ring;
    const int warpgroup = warpgroup_index();
    const int steps = schedule.steps, blocks = gridDim.x;
    Position<kStages> at;
    if (warpgroup == kWarpgroups) {
        if (threadIdx.x == kProducer) {
            for (hopper::Barrier& turn : memory.turn) hopper::mbarrier_init(&turn, 4);
            ring.init(4);
        }
        hopper::barrier_arrive(kReady, blockDim.x);
        hopper::setmaxnreg_dec<24>();
        if (threadIdx.x > kProducer) return;
        for (int i = blockIdx.x; i < schedule.tiles; i += blocks) {
            const Part part = schedule.part(i, 0, 0, steps);
            produce(ring, at, steps,
                    [&](auto& stage, auto* full, int t) { load(stage, full, part, t * kBlockK); });
        }
    } else {
        hopper::barrier_sync(kReady, blockDim.x);
        hopper::setmaxnreg_inc<240>();
        if (warpgroup == 1) at.skip(steps);  // the first tile is warpgroup 0's
        // Warpgroup 0 passes its first wait at once: parity 1 of a new barrier reads as complete.
        uint32_t parity = warpgroup == 0;
        for (int i = blockIdx.x + warpgroup * blocks; i < schedule.tiles; i += 2 * blocks) {
            const Part part = schedule.part(i, 0, 0, steps);
            // A stage's parity only tells two neighboring phases apart. So wait until the other
            // warpgroup has seen its whole tile arrive. It may still multiply the last step.
            hopper::mbarrier_wait(&memory.turn[warpgroup], parity), parity ^= 1;
            float sums[2][kTileM / 2];
            consume_panels(sums, ring, at, depth, 0, [&] {
                if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&memory.turn[1 - warpgroup]);
            });
            finish(sums, part, warpgroup);
            at.skip(steps);  // the other's tile
        }
    }
}

/// The shared memory of either kind of block.
template <class T, int kTileM, int kTileN, bool kPingpong, int kStages>
using MemoryOf = std::conditional_t<kPingpong, PingpongMemory<T, kTileM, kStages>,
                                    TileMemory<T, kTileM, kTileN, kStages>>;

/// As many stages as fit shared memory, but no more than 8.
template <class T, int kTileM, int kTileN, bool kPingpong, int kStages = 8>
__host__ __device__ constexpr int count_stages() {
    if constexpr (sizeof(MemoryOf<T, kTileM, kTileN, kPingpong, kStages>) <= 227 * 1024)
        return kStages;
    else
        return count_stages<T, kTileM, kTileN, kPingpong, kStages - 1>();
}

/// The record in tiles of shape kShape, without clusters.
template <class T, int kShape>
__global__ void __launch_bounds__(tile_threads(kShapes[kShape].columns), 1)
    matmul_hopper(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                  const __grid_constant__ CUtensorMap last_A,
                  const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                  const __grid_constant__ CUtensorMap C,  // [N, N] row-major
                  int N) {
    constexpr TileShape kTile = kShapes[kShape];
    constexpr int kTileM = kTile.rows, kTileN = kTile.columns;
    constexpr int kStages = count_stages<T, kTileM, kTileN, kTile.pingpong>();
    if constexpr (kTile.pingpong) {
        extern __shared__ __align__(1024) unsigned char shared[];
        auto& memory = *reinterpret_cast<PingpongMemory<T, kTileM, kStages>*>(shared);
        if (threadIdx.x == 0)
            for (const CUtensorMap* map : {&A, &last_A, &B, &C}) hopper::prefetch_tensormap(*map);
        multiply_pingpong(
            memory, Schedule<kTileN, 1, kTileM>{N, 0}, N,
            [&](auto& stage, auto* full, const Part& part, int k) {
                const int panels = count_panels<kTileN>(part.col, N);
                TileRows<kTileM>(A, last_A, part.row, N).load(stage, full, part.row, k, panels);
                load_panels(stage, full, B, part.col, k, panels);
            },
            [&](const auto& sums, const Part& part, int warpgroup) {
                store_columns<kTileM, 2>([&](int i, int j) { return sums[i][j]; },
                                         memory.out[warpgroup], C, part.row, part.col, warpgroup);
            });
    } else {
        const Part part = Schedule<kTileN, 1, kTileM>{N, 0}.part(blockIdx.x, 0, 0, 0);
        multiply_tile<T, kTileM, kTileN, kStages>(A, last_A, B, C, N, part.row, part.col);
    }
}

/// The record's tiles at C's edges, beside patches.
template <class T>
__global__ void __launch_bounds__(tile_threads(kEdge), 1)
    matmul_hopper_edges(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                        const __grid_constant__ CUtensorMap last_A,
                        const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                        const __grid_constant__ CUtensorMap C,  // [N, N] row-major
                        int N, Edges edges) {
    const int i = blockIdx.x, beside = i - edges.tiles_below;
    const bool below = beside < 0;
    multiply_tile<T, kEdge, kEdge, 8>(A, last_A, B, C, N, below ? edges.rows : beside * kEdge,
                                      below ? i * kEdge : edges.columns);
}

/// The record in clusters of two, which divide tiles.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    matmul_hopper(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                  const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                  const __grid_constant__ CUtensorMap C,  // [N, N] row-major
                  int N, int divided, Exchange exchange) {
    multiply_parts<T, 4>(A, B, C, Schedule<kBlockN, 2>{N, divided}, exchange);
}

/// The record in clusters of eight and of two: one launch of each.
template <class T, class Patches>
__global__ void __launch_bounds__(kThreads, 1)
    matmul_hopper(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                  const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                  const __grid_constant__ CUtensorMap C,  // [N, N] row-major
                  Patches patches) {
    multiply_parts<T, 4>(A, B, C, patches, {});
}

// --- Launching ----------------------------------------------------------------------------------

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

/// A, B and C, as the kernels take them.
template <class T>
struct Operands {
    const T *A, *B;  // [N, N] row-major
    T* C;            // [N, N] row-major
    size_t N;
    Exchange exchange;
    // One TMA copy moves 64 columns of this many rows:
    CUtensorMap map_A = hopper::tensor_map(A, N, N, kBlockM);
    CUtensorMap map_B = hopper::tensor_map(B, N, N, kBlockK);
    CUtensorMap map_C = hopper::tensor_map(C, N, N, 16);  // what a warp stores
};

/// How many of N rows are in the last tile, if tiles have `tile_rows` rows.
inline int last_rows(size_t N, int tile_rows) { return int((N - 1) % tile_rows) + 1; }

/// How many tiles of `rows` x `columns` cover C.
inline size_t count_tiles(size_t N, size_t rows, size_t columns) {
    return (N + rows - 1) / rows * ((N + columns - 1) / columns);
}

/// Prepares a kernel that runs multiply_parts() in clusters of two. Returns what launches it.
template <class T, class Kernel>
std::function<void()> prepare_parts(Kernel kernel, const Operands<T>& o) {
    const size_t bytes = sizeof(Memory<T, kBlockN, 4, kOutPanels>);
    demo::allow_shared_bytes(kernel, bytes);
    const int at_once = demo::ClusterLaunch(1, 2, kThreads, bytes).at_once(kernel);
    const Division division = divide({kBlockM, kBlockN, 2}, {o.N, o.N}, at_once);
    const demo::ClusterLaunch launch(division.clusters, 2, kThreads, bytes);
    return [=, A = o.map_A, B = o.map_B, C = o.map_C] {
        launch(kernel, A, B, C, int(o.N), division.divided, o.exchange);
    };
}

/// The same in tiles of shape kShape, without clusters.
template <int kShape, class T>
std::function<void()> prepare_tiles(const Operands<T>& o) {
    constexpr TileShape kTile = kShapes[kShape];
    constexpr int kTileM = kTile.rows, kTileN = kTile.columns, kThreads = tile_threads(kTileN);
    const auto kernel = matmul_hopper<T, kShape>;
    constexpr int kStages = count_stages<T, kTileM, kTileN, kTile.pingpong>();
    const size_t bytes = sizeof(MemoryOf<T, kTileM, kTileN, kTile.pingpong, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    const CUtensorMap A = hopper::tensor_map(o.A, o.N, o.N, kTileM),
                      last_A = hopper::tensor_map(o.A, o.N, o.N, last_rows(o.N, kTileM)),
                      C = hopper::tensor_map(o.C, o.N, o.N, strip_rows(kTileM, kTileN));
    const int at_once = demo::ClusterLaunch(1, 1, kThreads, bytes).at_once(kernel);
    const demo::ClusterLaunch launch(divide(kTile, {o.N, o.N}, at_once).clusters, 1, kThreads,
                                     bytes);
    return [=, B = o.map_B] { launch(kernel, A, last_A, B, C, int(o.N)); };
}

/// A stream beside the default one, and what forks and joins them.
struct SideStream {
    cudaStream_t stream;
    cudaEvent_t fork, join;
    SideStream() {
        DEMO_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        DEMO_CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        DEMO_CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    }
    ~SideStream() {
        cudaEventDestroy(fork), cudaEventDestroy(join);
        cudaStreamDestroy(stream);
    }
    SideStream(const SideStream&) = delete;
};

/// Two launches side by side: as many clusters of eight as leave some multiprocessors free, and
/// clusters of two on the free ones. If `patches` says how many C has, up to three clusters of two
/// are left out if they save no round.
class PatchLaunches {
  public:
    template <class EightsKernel, class TwosKernel>
    PatchLaunches(EightsKernel of_eights, TwosKernel of_twos, size_t shared_bytes,
                  int patches = 0) {
        demo::allow_shared_bytes(of_eights, shared_bytes);
        demo::allow_shared_bytes(of_twos, shared_bytes);
        const int room = demo::ClusterLaunch(1, 8, kThreads, shared_bytes).at_once(of_eights);
        const int pairs = demo::ClusterLaunch(1, 2, kThreads, shared_bytes).at_once(of_twos);
        EightsAndTwos clusters = EightsAndTwos::of(pairs, room);
        // Four clusters of two share a patch. One to three more help only if they save a round;
        // otherwise all clusters stay in step better without them.
        const EightsAndTwos fewer{clusters.eights, clusters.twos / 4 * 4};
        if (patches > 0 && fewer.twos > 0 &&
            fewer.count_rounds(patches) == clusters.count_rounds(patches))
            clusters = fewer;
        eights = clusters.eights, twos = clusters.twos;
        launch_eights_ = {size_t(eights), 8, kThreads, shared_bytes};
        launch_twos_ = {size_t(twos), 2, kThreads, shared_bytes, side_->stream};
    }

    int eights, twos;  // clusters
    cudaStream_t side_stream() const { return side_->stream; }

    /// Each argument gets a ClusterLaunch, with which it launches its kernel.
    template <class StartEights, class StartTwos>
    void operator()(StartEights start_eights, StartTwos start_twos) const {
        // Eights first, since they find less room. The side stream waits for earlier launches, and
        // the default stream goes on when both are done.
        DEMO_CHECK(cudaEventRecord(side_->fork));
        start_eights(launch_eights_);
        DEMO_CHECK(cudaStreamWaitEvent(side_->stream, side_->fork));
        start_twos(launch_twos_);
        DEMO_CHECK(cudaEventRecord(side_->join, side_->stream));
        DEMO_CHECK(cudaStreamWaitEvent(nullptr, side_->join));
    }

  private:
    std::shared_ptr<const SideStream> side_ = std::make_shared<const SideStream>();
    demo::ClusterLaunch launch_eights_{1, 8, kThreads, 0}, launch_twos_{1, 2, kThreads, 0};
};

/// Prepares such launches. Both kernels run multiply_parts(), of Eights and of Twos. If there are
/// edges, patches cover the rest alone, and `launch_edges` follows the clusters of two.
template <class T>
std::function<void()> prepare_patches(void (*eights)(CUtensorMap, CUtensorMap, CUtensorMap, Eights),
                                      void (*twos)(CUtensorMap, CUtensorMap, CUtensorMap, Twos),
                                      const Operands<T>& o, const Edges& edges = {},
                                      const std::function<void(cudaStream_t)>& launch_edges = {}) {
    constexpr size_t kHeight = Eights::kHeight * kBlockM, kWidth = Eights::kWidth * kBlockN;
    const size_t covered = edges.tiles > 0 ? edges.rows : o.N;
    const int rows = int((covered + kHeight - 1) / kHeight),
              columns = int((covered + kWidth - 1) / kWidth);
    const PatchLaunches launches(eights, twos, sizeof(Memory<T, kBlockN, 4, kOutPanels>),
                                 rows * columns);
    const int N = int(o.N), of_eight = launches.eights, of_two = launches.twos;
    const Eights of_eights{
        .N = N, .eights = of_eight, .twos = of_two, .rows = rows, .columns = columns};
    const Twos of_twos{
        .N = N, .eights = of_eight, .twos = of_two, .rows = rows, .columns = columns};
    // A cluster of eight copies a tile of A in two halves.
    const CUtensorMap half_A = hopper::tensor_map(o.A, o.N, o.N, kBlockM / Eights::kBeside);
    return [=, A = o.map_A, B = o.map_B, C = o.map_C] {
        launches([&](const auto& launch) { launch(eights, half_A, B, C, of_eights); },
                 [&](const auto& launch) {
                     launch(twos, A, B, C, of_twos);
                     if (launch_edges) launch_edges(launches.side_stream());
                 });
    };
}

/// Prepares the launch of the tiles at C's edges, on a stream.
template <class T>
std::function<void(cudaStream_t)> prepare_edges(const Operands<T>& o, const Edges& edges) {
    const auto kernel = matmul_hopper_edges<T>;
    const size_t bytes = sizeof(TileMemory<T, kEdge, kEdge, 8>);
    demo::allow_shared_bytes(kernel, bytes);
    const CUtensorMap A = hopper::tensor_map(o.A, o.N, o.N, kEdge),
                      last_A = hopper::tensor_map(o.A, o.N, o.N, last_rows(o.N, kEdge)),
                      C = hopper::tensor_map(o.C, o.N, o.N, strip_rows(kEdge, kEdge));
    return [=, B = o.map_B, N = int(o.N)](cudaStream_t stream) {
        const demo::ClusterLaunch launch(edges.tiles, 1, tile_threads(kEdge), bytes, stream);
        launch(kernel, A, last_A, B, C, N, edges);
    };
}

/// Prepares the record in one shape of tiles.
template <int kShape, class T>
std::function<void()> prepare(const Operands<T>& o) {
    constexpr TileShape kTile = kShapes[kShape];
    if constexpr (kTile.two_launches()) {
        const Edges edges = Edges::of(kTile, square_product(o.N));
        return prepare_patches<T>(matmul_hopper<T, Eights>, matmul_hopper<T, Twos>, o, edges,
                                  edges.tiles > 0 ? prepare_edges(o, edges) : nullptr);
    } else if constexpr (kTile.divides)
        return prepare_parts(matmul_hopper<T>, o);
    else
        return prepare_tiles<kShape>(o);
}

/// This GPU, as the choice of tiles sees it.
inline Machine machine_of(const demo::Gpu& gpu) {
    return {.multiprocessors = gpu.multiprocessors, .l2_mib = double(gpu.l2_bytes >> 20)};
}

/// How many launches the record makes of C[N, N].
inline size_t count_launches(size_t N, const Machine& machine) {
    const Product product = square_product(N);
    const TileShape& tile = kShapes[fastest_shape(kShapes, product, machine)];
    return !tile.two_launches() ? 1 : Edges::of(tile, product).tiles == 0 ? 2 : 3;
}

/// prepare<shape>() of a shape that is known at run time.
template <class T, size_t... kShape>
std::function<void()> prepare_nth(const Operands<T>& o, int shape, std::index_sequence<kShape...>) {
    using Prepare = std::function<void()>(const Operands<T>&);
    static constexpr Prepare* kPrepare[] = {prepare<kShape>...};
    return kPrepare[shape](o);
}

/// Prepares the record for these operands, and returns what launches it.
template <class T>
std::function<void()> prepare(const Operands<T>& o, const Machine& machine) {
    const int shape = fastest_shape(kShapes, square_product(o.N), machine);
    return prepare_nth(o, shape, std::make_index_sequence<std::size(kShapes)>());
}

}  // namespace matmul_hopper
