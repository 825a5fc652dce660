// Belongs to bonus_matmul_hopper: its last two rungs, in clusters of eight and in tiles of many
// shapes. What they share with the other rungs is in matmul_hopper.cuh. Programs run the record by
// Operands and prepare(), at the end.
//
// Patches: C is cut into patches of 4 x 2 tiles, of 128 x 256 each. One cluster of eight blocks
// computes a patch, or four clusters of two do. What is left below and beside whole patches, if it
// is narrow, is computed in tiles of 64 x 64 (e):
//
//     +-------+-------+-+               a patch: block `rank` of eight
//     |patch 0|patch 4|e|               computes the tile of that number,
//     +-------+-------+-+    +---+---+  clusters of two have pairs of them:
//     |patch 1|patch 5|e|    | 0 | 4 |
//     +-------+-------+-+    | 1 | 5 |      0, 1      4, 5
//     |  ...  |  ...  |e|    | 2 | 6 |      2, 3      6, 7
//     +-------+-------+-+    | 3 | 7 |
//     | e e e   e e e  e|    +---+---+
//     +-----------------+
//
// Transposed tiles: wgmma multiplies 64 rows by any multiple of 8 columns. The record computes
// C^T = B^T A^T. So the 64 rows are a panel of B, 64 columns of C, and the columns are the tile's
// rows: of these there can be 80 or 208.
//
//                     B: 64 deep                 multiply_tile: a block has one tile, and each of
//                    +---------+---------+       its consumers multiplies one panel.
//                    | panel 0 | panel 1 |
//     A: kTileM x 64 +---------+---------+       multiply_pingpong: warpgroups 0 and 1 have whole
//         +---+      |  strip  |         |       tiles in turn, and multiply both panels.
//         |   |      +- - - - -+- - - - -+
//         |   |      |  strip  |         |       A strip is 16 or 32 rows of a panel (in tiles of
//         +---+      +---------+---------+       64 columns all), which are stored together.
//
// For such tiles ..._transposed does what the function of that name does in the other rungs.
#pragma once

#include <functional>

#include "matmul/hopper_tiles.cuh"
#include "matmul/matmul_hopper.cuh"

namespace matmul_hopper {

// --- From rung 8 on: clusters of eight beside clusters of two -----------------------------------

/// Which tiles a block computes where clusters of eight and of two run side by side, each in a
/// launch of its own. They share the patches anew every two rounds. By 15 clusters of eight (e0 to
/// e14) and 6 of two:
///
///     clusters        e0   e1  ...  e14   six of two, two tiles each
///     first round     0    1   ...  14    30, and half of 31
///     second round    15   16  ...  29    the other half of 31, and 32
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

    /// Calls work(part) for all tiles of this block, every second one backward.
    template <class Work>
    __device__ void for_each_part(int rank, Work work) const {
        constexpr int kBlocks = kBelow * kBeside;
        const int cluster = blockIdx.x / kBlocks;
        bool backward = true;
        for (int round = 0;; ++round, backward = !backward) {
            int i = round / 2 * (2 * eights + twos / 2), place = rank;  // patch, and tile of it
            if (kBlocks == 2) {
                const int pair = round % 2 * twos + cluster;  // of tiles, four in a patch
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

template <class T, class Patches>
__global__ void __launch_bounds__(kThreads, 1)
    eights_and_twos(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                    const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                    const __grid_constant__ CUtensorMap C,  // [N, N] row-major
                    Patches patches) {
    multiply_parts<T, 4>(A, B, C, patches, {});
}

// --- Rung 9: transposed tiles -------------------------------------------------------------------

/// A block's warpgroups that multiply tiles of so many columns: one for each 64.
__host__ __device__ constexpr int tile_consumers(int tile_columns) { return tile_columns / 64; }

/// Threads of such a block. One warp would do as the producer. But two consumers may need more
/// registers than an even share (tiles of 256 x 128): a warpgroup can give its own.
constexpr int tile_threads(int tile_columns) {
    const int consumers = tile_consumers(tile_columns);
    return consumers * kWarpgroup + (consumers == 2 ? kWarpgroup : 32);
}

/// Rows of a panel that are stored at once: all, if the tile is one panel.
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
struct RowsInside {
    int count;
    const CUtensorMap* map;

    __device__ RowsInside(const CUtensorMap& A, const CUtensorMap& last, int row, int rows_of_A)
        : count(min(kTileM, rows_of_A - row)), map(count == kTileM ? &A : &last) {}

    /// Starts the copy of A's rows. The barrier expects them and `panels` panels of B, which
    /// the caller copies.
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
__device__ int panels_inside(int col, int N) {
    return min(kTileN / kPanel, (N - col + kPanel - 1) / kPanel);
}

/// load_stage() of what is inside the matrices alone: A's rows, and `panels` panels of B.
template <class T, int kTileN, int kTileM>
__device__ void load_stage(Stage<T, kTileN, kTileM>& stage, hopper::Barrier* full,
                           const RowsInside<kTileM>& A, const CUtensorMap& B, int row, int col,
                           int k, int panels) {
    A.load(stage, full, row, k, panels);
#pragma unroll 1  // less code
    for (int p = 0; p < panels; ++p)
        hopper::tma_load(stage.B[p], B, k, col + p * stage.kColumns, full);
}

/// multiply_stage() of 64 columns of the tile: starts the transpose of  stage.A stage.B[panel],
/// over kDepth columns of stage.A.
template <int kDepth, class T, int kTileN, int kTileM>
__device__ void multiply_stage_transposed(float (&sums)[kTileM / 2],
                                          const Stage<T, kTileN, kTileM>& stage, int panel,
                                          bool keep) {
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16)
        hopper::wgmma_mma_async_transposed<T>(
            sums, hopper::matrix_descriptor(&stage.B[panel][k][0]),
            hopper::matrix_descriptor(&stage.A[0][k]), keep || k > 0);
    hopper::wgmma_commit_group();
}

/// consume() for a warpgroup with kEach panels, from `first` on. `depth`: columns of A.
/// before_last() runs when the last step's bytes have arrived, before its wgmma.
template <class T, int kTileN, int kTileM, int kStages, int kEach, class BeforeLast>
__device__ void consume_transposed(float (&sums)[kEach][kTileM / 2],
                                   Ring<T, kTileN, kStages, kTileM>& ring, Position<kStages>& at,
                                   int depth, int first, BeforeLast before_last) {
    const bool tells = threadIdx.x % 32 == 0;
    int k = 0, previous = 0;
    auto step = [&]<int kDepth>(std::integral_constant<int, kDepth>) {
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        if (k + kBlockK >= depth) before_last();
#pragma unroll
        for (int i = 0; i < kEach; ++i)
            multiply_stage_transposed<kDepth>(sums[i], ring.stages[at.stage], first + i, k > 0);
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
__device__ void store_transposed(Value value, T (&out)[kOut][kStrip][kPanel], const CUtensorMap& C,
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
/// A tile can have any multiple of 16 rows, as store_transposed() wants them: each is 128 bytes of
/// A to copy, while B's columns come in panels of 64.
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
        const RowsInside<kTileM> rows(A, last_A, row, N);
        const int panels = panels_inside<kTileN>(col, N);
        produce(ring, at, (N + kBlockK - 1) / kBlockK, [&](auto& stage, auto* full, int t) {
            load_stage(stage, full, rows, B, row, col, t * kBlockK, panels);
        });
    } else {
        hopper::barrier_sync(kReady, blockDim.x);
        if constexpr (kConsumers == 2) hopper::setmaxnreg_inc<240>();
        float sums[1][kTileM / 2];
        consume_transposed(sums, ring, at, N, warpgroup, [] {});
        store_transposed<kTileM, 1>([&](int i, int j) { return sums[i][j]; }, memory.out[warpgroup],
                                    C, row, col + warpgroup * kPanel, warpgroup);
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
            consume_transposed(sums, ring, at, depth, 0, [&] {
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
                const int panels = panels_inside<kTileN>(part.col, N);
                const RowsInside<kTileM> rows(A, last_A, part.row, N);
                load_stage(stage, full, rows, B, part.row, part.col, k, panels);
            },
            [&](const auto& sums, const Part& part, int warpgroup) {
                store_transposed<kTileM, 2>([&](int i, int j) { return sums[i][j]; },
                                            memory.out[warpgroup], C, part.row, part.col,
                                            warpgroup);
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

// --- Launching ----------------------------------------------------------------------------------

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

/// Prepares stream_k.
template <class T>
std::function<void()> prepare_stream_k(const Operands<T>& o) {
    const auto kernel = stream_k<T>;
    const size_t bytes = sizeof(Memory<T, kBlockN, 4, kOutPanels>);
    demo::allow_shared_bytes(kernel, bytes);
    const int at_once = demo::ClusterLaunch(1, 2, kThreads, bytes).at_once(kernel);
    const Division division = divide({kBlockM, kBlockN, 2}, {o.N, o.N}, at_once);
    const demo::ClusterLaunch launch(division.clusters, 2, kThreads, bytes);
    return [=, A = o.map_A, B = o.map_B, C = o.map_C] {
        launch(kernel, A, B, C, int(o.N), division.divided, o.exchange);
    };
}

/// Prepares matmul_hopper in tiles of shape kShape.
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

/// Prepares eights_and_twos. If there are edges, patches cover the rest alone, and `launch_edges`
/// follows the clusters of two.
template <class T>
std::function<void()> prepare_patches(const Operands<T>& o, const Edges& edges = {},
                                      const std::function<void(cudaStream_t)>& launch_edges = {}) {
    const auto eights = eights_and_twos<T, Eights>;
    const auto twos = eights_and_twos<T, Twos>;
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
        return prepare_patches(o, edges, edges.tiles > 0 ? prepare_edges(o, edges) : nullptr);
    } else if constexpr (kTile.divides)
        return prepare_stream_k(o);
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
