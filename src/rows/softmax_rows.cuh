// The rungs of bonus_softmax_rows. The choice between them belongs to 8_softmax as well. How pairs
// of maximum and sum merge: max_sum.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "demo/contender.cuh"
#include "hopper.cuh"
#include "ptx.cuh"
#include "rows/max_sum.cuh"
#include "rows/row_pieces.cuh"

namespace softmax {

using namespace row_pieces;

// --- Rows in pieces of 16 bytes: what most rungs share ------------------------------------------

/// The greatest number of some pieces. fp16 in pairs, which are one instruction from 8.0 on.
template <class T, int kPieces>
__device__ float max_of(const Piece<T> (&pieces)[kPieces]) {
    if constexpr (std::is_same_v<T, half>) {
        half2 max = __half2half2(T(kNothing));
#pragma unroll
        for (int i = 0; i < 4 * kPieces; ++i)
            max = __hmax2(max, reinterpret_cast<const half2*>(pieces[i / 4].at)[i % 4]);
        return fmaxf(float(max.x), float(max.y));
    } else {
        float max = kNothing;
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
            for (T value : pieces[i].at) max = fmaxf(max, float(value));
        return max;
    }
}

/// A thread's numbers of a share, kept in registers while its block, or several, merge.
template <class T, int kPieces, bool kAligned>
struct Kept {
    Piece<T> pieces[kPieces];
    T edge;

    /// Loads the pieces from number p on, and the edge.
    __device__ void load(const T* x, const Share<T, kAligned>& share, unsigned int p = 0) {
        row_pieces::load(pieces, x + share.begin, p + threadIdx.x, blockDim.x, share.pieces,
                         T(kNothing));
        edge = share.has_edge ? x[share.edge_at] : T(kNothing);
    }

    __device__ MaxSum max_sum_of_pieces() {
        const float max = max_of(pieces);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
            for (T value : pieces[i].at) sum += power(float(value), shift(max));
        return {max, sum};
    }
    __device__ MaxSum max_sum() {
        const MaxSum own = max_sum_of_pieces();
        return kAligned ? own : merge(own, {float(edge), 1});
    }

    /// Stores the softmax of the pieces, given maximum and sum of the whole row.
    __device__ void store_pieces(MaxSum whole, T* out, const Share<T, kAligned>& share,
                                 unsigned int p = 0) {
        const float factor = 1 / whole.sum, max = shift(whole.max);
        auto* const to = reinterpret_cast<Piece<T>*>(out + share.begin);
        forget_unpacked(pieces);
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            const unsigned int at = p + threadIdx.x + i * blockDim.x;
            if (at >= share.pieces) continue;
            Piece<T> result;
            for (int j = 0; j < Piece<T>::kSize; ++j)
                result.at[j] = T(power(float(pieces[i].at[j]), max) * factor);
            to[at] = result;
        }
    }
    __device__ void store(MaxSum whole, T* out, const Share<T, kAligned>& share,
                          unsigned int p = 0) {
        store_pieces(whole, out, share, p);
        if (share.has_edge)
            out[share.edge_at] = T(power(float(edge), shift(whole.max)) / whole.sum);
    }
};

// --- What the rungs for short rows share --------------------------------------------------------

/// The softmax of a row that a team of kTeam threads keeps as fp32, kCount numbers each. Missing
/// numbers are -infinity.
template <int kTeam, int kCount>
__device__ void softmax_in_team(float (&values)[kCount]) {
    float max = kNothing, sum = 0;
#pragma unroll
    for (float value : values) max = fmaxf(max, value);
    max = shift(reduce_team<kTeam>(max, [](float a, float b) { return fmaxf(a, b); }));
#pragma unroll
    for (float& value : values) value = power(value, max), sum += value;
    const float factor =
        ptx::rcp_approx(reduce_team<kTeam>(sum, [](float a, float b) { return a + b; }));
#pragma unroll
    for (float& value : values) value *= factor;
}

// --- by_tile ------------------------------------------------------------------------------------
// Adds: short rows that begin anywhere, many at a time. They are neighbors in memory, so a block
// copies a tile of them to shared memory and back in pieces of 16 bytes, wherever rows begin. There
// a thread takes a row, or neighbors share one, a stretch of columns each. A stretch's length is
// known to the compiler, and odd in longer rows, which avoids most bank conflicts.
// Costs: shared memory twice on the way. Limits: 16 stretches of 17 columns; the instructions for
// each number, of which fp16 has twice as many per byte; bank conflicts in rows that are multiples
// of 32 bytes.
// Source: CUDA Programming Guide, "Asynchronous Data Copies", "Shared Memory" (on banks).

constexpr unsigned int kTileThreads = 256;
constexpr size_t kTileBytes = 12 << 10;   // at least: all teams have equally many rows
constexpr size_t kMostPerThread = 16;     // columns that a thread takes by itself
constexpr size_t kMostPerTile = 16 * 17;  // columns
constexpr size_t kBestPerTile = 240;  // columns: at 250 by_warp wastes few lanes, and is 5% faster

template <class T, int kTeam, int kStretch>
__global__ void __launch_bounds__(kTileThreads)
    by_tile(const T* x,  // [rows, cols] row-major, like out
            T* out, size_t rows, unsigned int cols, unsigned int tile_rows) {
    constexpr unsigned int kElements = Piece<T>::kSize, kTeams = kTileThreads / kTeam;
    extern __shared__ __align__(16) unsigned char shared[];
    T* const tile = reinterpret_cast<T*>(shared);         // [tile_rows, cols]
    const size_t first = size_t(blockIdx.x) * tile_rows;  // its tile begins at a multiple of 16
    const unsigned int here = min(size_t(tile_rows), rows - first);  // rows of this tile
    x += first * cols, out += first * cols;
    const unsigned int in_pieces = here * cols / kElements * kElements;
    for (unsigned int i = threadIdx.x * kElements; i < in_pieces; i += kTileThreads * kElements)
        ptx::cp_async_16(&tile[i], &x[i], true);
    const unsigned int last = in_pieces + threadIdx.x;  // the matrix may end within a piece
    if (last < here * cols) tile[last] = x[last];
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile is there

    const unsigned int begin = threadIdx.x % kTeam * kStretch;  // of the thread's columns
    for (unsigned int r = threadIdx.x / kTeam; r < tile_rows; r += kTeams) {
        // Teams go on past the last row: a shuffle needs all threads of the warp.
        if (kTeam == 1 && r >= here) break;
        T* const row = &tile[kTeam == 1 ? r * kStretch : r * cols + begin];
        const int left = r < here ? int(cols) - int(begin) : 0;  // columns from there on
        auto is_own = [&](int i) { return kTeam == 1 || i < left; };
        float values[kStretch];
#pragma unroll
        for (int i = 0; i < kStretch; ++i) values[i] = is_own(i) ? float(row[i]) : kNothing;
        softmax_in_team<kTeam>(values);
#pragma unroll
        for (int i = 0; i < kStretch; ++i)
            if (is_own(i)) row[i] = T(values[i]);
    }
    __syncthreads();  // the results are there
    for (unsigned int i = threadIdx.x * kElements; i < in_pieces; i += kTileThreads * kElements)
        reinterpret_cast<uint4&>(out[i]) = reinterpret_cast<const uint4&>(tile[i]);
    if (last < here * cols) out[last] = tile[last];
}

template <class T>
using ByTile = void (*)(const T*, T*, size_t, unsigned int, unsigned int);

/// The kernel where one thread takes a row, for each number of columns from 1 on.
template <class T, int... kBefore>
ByTile<T> by_tile_of_one(size_t cols, std::integer_sequence<int, kBefore...>) {
    constexpr ByTile<T> kernels[] = {by_tile<T, 1, kBefore + 1>...};
    return kernels[cols - 1];
}
template <class T, int kTeam>
ByTile<T> by_tile_of_team(size_t cols) {
    return cols <= kTeam * 9    ? by_tile<T, kTeam, 9>
           : cols <= kTeam * 11 ? by_tile<T, kTeam, 11>
           : cols <= kTeam * 13 ? by_tile<T, kTeam, 13>
           : cols <= kTeam * 15 ? by_tile<T, kTeam, 15>
                                : by_tile<T, kTeam, 17>;
}

/// Prepares the launch for rows of up to kMostPerTile columns.
template <class T>
std::function<void()> prepare_by_tile(Rows<T> r) {
    const size_t cols = r.cols;
    const auto alone = std::make_integer_sequence<int, kMostPerThread>();
    const std::pair<ByTile<T>, int> chosen =
        cols <= kMostPerThread ? std::pair{by_tile_of_one<T>(cols, alone), 1}
        : cols <= 2 * 17       ? std::pair{by_tile_of_team<T, 2>(cols), 2}
        : cols <= 4 * 17       ? std::pair{by_tile_of_team<T, 4>(cols), 4}
        : cols <= 8 * 17       ? std::pair{by_tile_of_team<T, 8>(cols), 8}
                               : std::pair{by_tile_of_team<T, 16>(cols), 16};
    const ByTile<T> kernel = chosen.first;
    const size_t together = kTileThreads / chosen.second;  // rows: a multiple of 16
    const size_t tile_rows = (kTileBytes / r.row_bytes() / together + 1) * together;
    const size_t tiles = (r.rows + tile_rows - 1) / tile_rows;
    return [=] {
        kernel<<<tiles, kTileThreads, tile_rows * r.row_bytes()>>>(r.x, r.out, r.rows, r.cols,
                                                                   tile_rows);
    };
}

// --- by_warp ------------------------------------------------------------------------------------
// Adds: a row stays in the registers of one warp, which loads it 16 bytes at a time, or of 1 to 16
// threads where 16 bytes each suffice. They merge by shuffles: no barrier, no shared memory.
// Costs: registers, and code for unaligned rows. Limits: 32 numbers a thread, so 1024 columns.
// Source: CUDA Programming Guide, "Warp Shuffle Functions"; PTX ISA, "Cache Eviction Priority
// Hints", for the loads.

constexpr int kNumbers = 32;                    // that a thread keeps
constexpr size_t kMostPerWarp = 32 * kNumbers;  // columns
constexpr unsigned int kWarpThreads = 256;      // of a block

/// For rows of up to kTeam * kPieces pieces. kAligned: all rows begin and end at multiples of 16
/// bytes. Others take a whole warp.
template <class T, bool kAligned, int kTeam, int kPieces>
__global__ void __launch_bounds__(kWarpThreads)
    by_warp(const T* x,  // [rows, cols] row-major, like out
            T* out, size_t rows, size_t cols) {
    constexpr int kElements = Piece<T>::kSize, kNumbers = kPieces * kElements;
    const unsigned int lane = threadIdx.x % kTeam;
    const size_t row = size_t(blockIdx.x) * (kWarpThreads / kTeam) + threadIdx.x / kTeam;
    Share<T, kAligned> share(row, cols, lane);
    if (row >= rows) share.pieces = 0, share.has_edge = false;

    Piece<T> pieces[kPieces];
    load(pieces, x + share.begin, lane, kTeam, share.pieces, T(kNothing));
    float values[kNumbers + (kAligned ? 0 : 1)];
    if constexpr (!kAligned) values[kNumbers] = share.has_edge ? float(x[share.edge_at]) : kNothing;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) values[i] = float(pieces[i / kElements].at[i % kElements]);
    softmax_in_team<kTeam>(values);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) pieces[i / kElements].at[i % kElements] = T(values[i]);
    auto* const to = reinterpret_cast<Piece<T>*>(out + share.begin);
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
        if (lane + i * kTeam < share.pieces) to[lane + i * kTeam] = pieces[i];
    if (share.has_edge) out[share.edge_at] = T(values[kNumbers - (kAligned ? 1 : 0)]);
}

/// Prepares the launch for rows of up to kMostPerWarp columns.
template <class T>
std::function<void()> prepare_by_warp(Rows<T> r) {
    const size_t pieces = r.whole_pieces();
    auto whole_warp = [&]<bool kAligned>() {
        return pieces <= 32    ? by_warp<T, kAligned, 32, 1>
               : pieces <= 64  ? by_warp<T, kAligned, 32, 2>
               : pieces <= 128 ? by_warp<T, kAligned, 32, 4>
                               : by_warp<T, kAligned, 32, kNumbers * sizeof(T) / 16>;
    };
    const size_t team = r.aligned() ? std::min<size_t>(std::bit_ceil(pieces), 32) : 32;
    const auto kernel = team == 1     ? by_warp<T, true, 1, 1>
                        : team == 2   ? by_warp<T, true, 2, 1>
                        : team == 4   ? by_warp<T, true, 4, 1>
                        : team == 8   ? by_warp<T, true, 8, 1>
                        : team == 16  ? by_warp<T, true, 16, 1>
                        : r.aligned() ? whole_warp.template operator()<true>()
                                      : whole_warp.template operator()<false>();
    const size_t together = kWarpThreads / team;  // rows of a block
    return [=] {
        kernel<<<(r.rows + together - 1) / together, kWarpThreads>>>(r.x, r.out, r.rows, r.cols);
    };
}

// --- by_block -----------------------------------------------------------------------------------
// Adds: up to 16 warps keep a row together, and merge through shared memory.
// Costs: a barrier, at which memory idles. To fill the gap, a block has the L2 cache fetch the row
// of a block that starts later. Limits: the registers of 512 threads, 64 KiB.
// Source: PTX ISA, "cp.async.bulk.prefetch".

constexpr size_t kLongestUnfetched = 8192;  // columns: fetching slows such rows
constexpr size_t kBytesAhead = 3 << 20;     // how far ahead to fetch: 8 MiB is 13% slower in fp32

/// Also has the L2 cache fetch the row that comes `ahead` rows later, from row `first_fetched` on:
/// the blocks of rows before that start at once, and load them themselves.
template <class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kMostThreads, 2)
    by_block(const T* x,  // [rows, cols] row-major, like out
             T* out, size_t cols, size_t ahead, size_t first_fetched) {
    const Share<T, kAligned> share(blockIdx.x, cols, threadIdx.x);
    Kept<T, kPieces, kAligned> kept;
    kept.load(x, share);
    const size_t later = blockIdx.x + ahead;
    if (threadIdx.x == 0 && later >= first_fetched && later < gridDim.x)
        Share<T, kAligned>(later, cols, 0).fetch(x);
    kept.store(merge_block(kept.max_sum()), out, share);
}

/// Prepares the launch for rows of up to kMostBlockBytes.
template <class T>
std::function<void()> prepare_by_block(Rows<T> r, const demo::Gpu& gpu) {
    const bool four = sizeof(T) == 2 && r.whole_pieces() <= 4 * kMostThreads;
    const auto kernel = four          ? r.aligned() ? by_block<T, true, 4> : by_block<T, false, 4>
                                 : r.aligned() ? by_block<T, true, kKept>
                                      : by_block<T, false, kKept>;
    const unsigned int threads = threads_for(r.whole_pieces(), four ? 4 : kKept);
    size_t first_fetched = r.rows;  // none
    if (r.cols > kLongestUnfetched) {
        const int blocks_per_sm = demo::blocks_per_multiprocessor(kernel, threads, 0);
        first_fetched = size_t(blocks_per_sm * gpu.multiprocessors);
    }
    const size_t ahead = kBytesAhead / r.row_bytes();
    return [=] { kernel<<<r.rows, threads>>>(r.x, r.out, r.cols, ahead, first_fetched); };
}

// --- by_cluster ---------------------------------------------------------------------------------
// Adds: up to 8 blocks keep a row together, a cluster, whose blocks reach each other's shared
// memory. Each warp sends its pair straight to every block.
// Costs: starting clusters, and the way between multiprocessors. Limits: the registers of 8 blocks,
// so rows of 512 KiB. Before 9.0 there are no clusters.
// Source: CUDA Programming Guide, "Thread Block Clusters" and "Distributed Shared Memory"; PTX ISA,
// "st.async".

/// Fetches ahead as by_block does.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 2)
    by_cluster(const T* x,  // [rows, cols] row-major, like out
               T* out, size_t rows, size_t cols, size_t ahead, size_t first_fetched) {
    __shared__ float2 pairs[kMostBlocks * kMostThreads / 32];  // from each warp of the cluster
    __shared__ hopper::Barrier full;
    const unsigned int blocks = Cluster().size(), rank = Cluster().rank();
    const unsigned int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t row = blockIdx.x / blocks, later = row + ahead;
    const Share<T, kAligned> share(row, cols, threadIdx.x, rank, blocks);
    Kept<T, kKept, kAligned> kept;
    kept.load(x, share);
    if (threadIdx.x == 0) {
        hopper::mbarrier_init(&full, 1);
        hopper::fence_mbarrier_init();
        hopper::mbarrier_arrive_expect_tx(&full, blocks * warps * sizeof pairs[0]);
        if (later >= first_fetched && later < rows)
            Share<T, kAligned>(later, cols, 0, rank, blocks).fetch(x);
    }
    hopper::barrier_cluster_sync();  // every block's barrier is ready; the loads are on their way

    const MaxSum own = merge_warp(kept.max_sum());
    if (lane < blocks)  // each lane sends to another block
        hopper::st_async(&pairs[rank * warps + warp], {own.max, own.sum}, &full, lane);
    // Once all pairs are here no other block needs this one, so it may end.
    hopper::mbarrier_wait(&full, 0);
    MaxSum whole{kNothing, 0};
    for (unsigned int k = lane; k < blocks * warps; k += 32)
        whole = merge(whole, {pairs[k].x, pairs[k].y});
    kept.store(merge_warp(whole), out, share);
}

/// Prepares the launch for rows of up to kMostClusterBytes, on a GPU that has clusters.
template <class T>
std::function<void()> prepare_by_cluster(Rows<T> r) {
    const auto kernel = r.aligned() ? by_cluster<T, true> : by_cluster<T, false>;
    const size_t needed = (16 * r.whole_pieces() + kMostBlockBytes - 1) / kMostBlockBytes;
    const size_t blocks = std::max<size_t>(needed, 2);
    const size_t share = (r.whole_pieces() + blocks - 1) / blocks;
    const unsigned int threads = threads_for(share, kKept);
    const demo::ClusterLaunch launch(r.rows, blocks, threads, 0);
    const size_t at_once = launch.at_once(kernel), ahead = kBytesAhead / r.row_bytes();
    return [=] { launch(kernel, r.x, r.out, r.rows, r.cols, ahead, at_once); };
}

// --- by_cluster_twice ---------------------------------------------------------------------------
// Adds: rows of any length. Of a long row a block keeps only the last step's pieces. Costs: the
// others are loaded twice, so up to 3 MN numbers move instead of 2 MN, unless the L2 cache still
// has them. Limits: that traffic. Without clusters: one block a row, as in rows of up to 32 KiB.
// Source: CUDA Programming Guide, "Thread Block Clusters" and "Distributed Shared Memory".

/// The softmax of a row of which this block has a share. merge_all(pair): the pair of all blocks.
template <int kPieces, class T, bool kAligned, class MergeAll>
__device__ void softmax_of_any_length(const T* x, T* out, const Share<T, kAligned>& share,
                                      MergeAll merge_all) {
    const unsigned int step = kPieces * blockDim.x;
    Kept<T, kPieces, kAligned> kept;
    kept.load(x, share);
    MaxSum own = kept.max_sum();
    unsigned int p = 0;
    for (; p + step < share.pieces;) {
        kept.load(x, share, p += step);
        own = merge(own, kept.max_sum_of_pieces());
    }
    const MaxSum whole = merge_all(merge_block(own));
    kept.store(whole, out, share, p);
    for (; p > 0;) {  // backward: the latest pieces are the likeliest to be in the cache
        kept.load(x, share, p -= step);
        kept.store_pieces(whole, out, share, p);
    }
}

template <class T>
__global__ void __launch_bounds__(kTwiceThreads)
    by_cluster_twice(const T* x,  // [rows, cols] row-major, like out
                     T* out, size_t cols) {
    const Cluster cluster;
    const Share<T, false> share(blockIdx.x / cluster.size(), cols, threadIdx.x, cluster.rank(),
                                cluster.size());
    softmax_of_any_length<kTwicePieces>(x, out, share, [&](MaxSum own) {
        return cluster.merge_all(own, MaxSum{kNothing, 0});
    });
}

/// Prepares the launch, for rows of any length.
template <class T>
std::function<void()> prepare_by_cluster_twice(Rows<T> r, const demo::Gpu& gpu) {
    return [=, launch = launch_by_cluster_twice(r, gpu)] {
        launch(by_cluster_twice<T>, r.x, r.out, r.cols);
    };
}

// --- by_grid ------------------------------------------------------------------------------------
// Adds: all multiprocessors share a row, or a few rows, and keep them in registers.
// Costs: blocks meet by way of global memory, once a row. Limits: that meeting, and 128 KiB a
// multiprocessor: the rest of a longer row is loaded twice.
// Source: Xiao and Feng, "Inter-block GPU communication via fast barrier synchronization", 2010.

constexpr unsigned int kGridThreads = 1024;               // at most
constexpr size_t kGridBytes = kGridThreads * kKept * 16;  // that a block keeps

/// Where the blocks of a row, a team, leave each other their pairs: each block has a letterbox for
/// every member of its team, in two sets, which rows use in turn. A sum is never negative, so its
/// sign bit is free: it flips with each pair that is sent to a box, and so tells the reader that a
/// new one has come. Nothing is ever set back, and a launch begins where the one before ended.
/// Pair and sign travel in one atomic operation and hand over nothing else, so no fence is needed.
///
/// Two sets suffice. A block writes to a box again two rows later, after it has received the
/// owner's pair of the row in between, which the owner sent after reading this box.
struct Letterboxes {
    unsigned long long* pairs;  // [2, blocks of the grid, blocks of a team]: maximum and sum
    unsigned int team;          // blocks

    static constexpr unsigned long long kSign = 1ull << 63;

    __device__ unsigned long long* box(unsigned int set, unsigned int to, unsigned int rank) const {
        return &pairs[(set * gridDim.x + to) * team + rank];
    }
    /// The sign of the next pair: not the last one's, which this block's box to itself holds.
    __device__ unsigned long long sign(unsigned int set) const {
        return ~*box(set, blockIdx.x, blockIdx.x % team) & kSign;
    }
    /// Sends a pair to the whole team, and merges all pairs. All threads get the result.
    __device__ MaxSum merge_all(MaxSum own, unsigned int set, unsigned long long sign) const {
        const unsigned int rank = blockIdx.x % team, first = blockIdx.x - rank;
        const unsigned long long sum = __float_as_uint(own.sum), max = __float_as_uint(own.max);
        const unsigned long long pair = (sum << 32 & ~kSign) | max | sign;
        MaxSum whole{kNothing, 0};
        for (unsigned int k = threadIdx.x; k < team; k += blockDim.x)
            atomicExch(box(set, first + k, rank), pair);
        for (unsigned int k = threadIdx.x; k < team; k += blockDim.x) {
            unsigned long long theirs;
            do theirs = atomicAdd(box(set, blockIdx.x, k), 0ull);
            while ((theirs & kSign) != sign);
            whole =
                merge(whole, {__uint_as_float(theirs), __uint_as_float((theirs & ~kSign) >> 32)});
        }
        return merge_block(whole, 1);
    }
};

/// Each team of blocks takes row after row.
template <class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kGridThreads, 1)
    by_grid(const T* x,  // [rows, cols] row-major, like out
            T* out, size_t rows, size_t cols, Letterboxes boxes) {
    const unsigned int rank = blockIdx.x % boxes.team, teams = gridDim.x / boxes.team;
    unsigned long long sign = boxes.sign(0), next = boxes.sign(1);  // of the sets, in turn
    unsigned int set = 0;
    for (size_t row = blockIdx.x / boxes.team; row < rows; row += teams, set ^= 1) {
        const Share<T, kAligned> share(row, cols, threadIdx.x, rank, boxes.team);
        softmax_of_any_length<kPieces>(x, out, share, [&](MaxSum own) {
            if (threadIdx.x == 0 && row + teams < rows)
                Share<T, kAligned>(row + teams, cols, 0, rank, boxes.team).fetch(x);
            return boxes.merge_all(own, set, sign);
        });
        const unsigned long long used = sign;
        sign = next, next = used ^ Letterboxes::kSign;
    }
}

/// Prepares the launch, for rows of any length.
template <class T>
std::function<void()> prepare_by_grid(Rows<T> r, const demo::Gpu& gpu) {
    constexpr int kFew = 2;  // pieces a thread: a short share is spread over more threads
    const size_t pieces = r.whole_pieces();
    const size_t all = std::max(gpu.multiprocessors, 1);  // a block on each, so all run at once
    const size_t keepers = (r.row_bytes() + kGridBytes - 1) / kGridBytes;  // blocks for a row
    const size_t needed = std::min(keepers, all);
    const size_t teams = std::min(all / needed, r.rows);
    const size_t team = std::min(all / teams, (pieces + 511) / 512);
    const size_t share = (pieces + team - 1) / team, grid = teams * team;
    const bool few = share <= kFew * kGridThreads;
    const auto kernel = few ? r.aligned() ? by_grid<T, true, kFew> : by_grid<T, false, kFew>
                        : r.aligned() ? by_grid<T, true, kKept>
                                      : by_grid<T, false, kKept>;
    const unsigned int threads = std::min(threads_for(share, few ? kFew : kKept), kGridThreads);
    const auto pairs = std::make_shared<demo::Buffer<unsigned long long>>(2 * grid * team);
    DEMO_CHECK(cudaMemset(pairs->data(), 0, pairs->bytes()));
    return [=] {
        kernel<<<grid, threads>>>(r.x, r.out, r.rows, r.cols,
                                  Letterboxes{pairs->data(), unsigned(team)});
    };
}

// --- The choice ---------------------------------------------------------------------------------

/// Whether all multiprocessors together keep a row of so many bytes. (A dry run knows of none.)
inline bool grid_keeps(size_t bytes, const demo::Gpu& gpu) {
    return demo::dry_run || bytes <= kGridBytes * gpu.multiprocessors;
}

/// The best rung for such rows on this GPU, for other programs: it keeps a row as near to the
/// arithmetic as possible, and all multiprocessors busy.
template <class T>
std::vector<demo::Contender> records(const T* x, T* out, size_t rows, size_t cols,
                                     const demo::Gpu& gpu) {
    const Rows<T> r{x, out, rows, cols};
    auto setup = [r, &gpu](demo::Contender& self) {
        const size_t bytes = r.row_bytes();
        const bool in_cluster = has_clusters(gpu) && bytes <= kMostClusterBytes;
        const bool in_registers = in_cluster || grid_keeps(bytes, gpu);
        // With so few rows, clusters would leave many multiprocessors idle.
        const bool few = r.rows * kMostBlocks <= size_t(gpu.multiprocessors);
        self.moved_bytes = (in_registers ? 2 : 3) * r.rows * bytes;
        self.launch = !r.aligned() && r.cols <= kBestPerTile ? prepare_by_tile(r)
                      : r.cols <= kMostPerWarp               ? prepare_by_warp(r)
                      : bytes <= kMostBlockBytes             ? prepare_by_block(r, gpu)
                      : in_cluster && !few                   ? prepare_by_cluster(r)
                      : in_registers || few                  ? prepare_by_grid(r, gpu)
                                                             : prepare_by_cluster_twice(r, gpu);
    };
    return {demo::record("bonus_softmax_rows", {.kernel = "softmax_rows", .setup = setup})};
}

}  // namespace softmax
