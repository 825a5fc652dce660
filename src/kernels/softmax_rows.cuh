// The rungs of bonus_softmax_rows, and the choice between them, which 8_softmax runs as well. How
// pairs of maximum and sum merge: max_sum.cuh.
#pragma once

#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "demo/device.cuh"
#include "demo/measure.cuh"
#include "hopper.cuh"
#include "kernels/max_sum.cuh"
#include "ptx.cuh"

namespace softmax {

// --- Rows in pieces of 16 bytes: what all rungs share -------------------------------------------

/// Elements that a thread moves at a time: 16 bytes, or a single one at the edges of a row.
template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Piece {
    T at[kElements];
};

/// How threads divide a row: into pieces of 16 bytes. Rows of 50257 columns, say, begin and end
/// anywhere, and a load of 16 bytes must be aligned to 16. So up to 14 single elements are left at
/// the edges of a row, fewer than a warp has threads. (The matrix itself is aligned.)
template <class T>
struct RowLayout {
    static constexpr unsigned int kElements = 16 / sizeof(T);  // of a piece
    size_t head, count;  // how many elements come before the pieces, and how many pieces

    __device__ RowLayout(size_t row, size_t cols)
        : head(min((kElements - row * cols % kElements) % kElements, cols)),
          count((cols - head) / kElements) {}

    /// The element at the edges that belongs to a thread, or a number beyond the row.
    __device__ size_t edge_of(size_t thread) const {
        return thread < head ? thread : count * kElements + thread;
    }
};

/// Maximum and sum of kPieces pieces.
template <class T, int kElements, int kPieces>
__device__ MaxSum max_sum_of(const Piece<T, kElements> (&pieces)[kPieces]) {
    float max = kNothing, sum = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
        for (T value : pieces[i].at) max = fmaxf(max, float(value));
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
        for (T value : pieces[i].at) sum += power(float(value), shift(max));
    return {max, sum};
}

enum class From { kGlobal, kShared };

/// Loads a thread's pieces of a row of `count`: every `stride`-th from `first`. Beyond the row is
/// -infinity. (Index: 32 bits where they suffice; they need half the registers.)
template <From kFrom = From::kGlobal, class T, int kElements, int kPieces, class Index>
__device__ void load(Piece<T, kElements> (&pieces)[kPieces], const T* row, Index first,
                     Index stride, Index count) {
    const auto* const from = reinterpret_cast<const Piece<T, kElements>*>(row);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        if (first + i * stride < count) {
            // Most rungs load x once, yet on an H200 evict_last is 3 to 4% faster in fp32 than no
            // hint, and evict_first 4% slower.
            if constexpr (kFrom == From::kGlobal && sizeof pieces[i] == 16)
                ptx::ld_global_evict_last(pieces[i], &from[first + i * stride]);
            else
                pieces[i] = from[first + i * stride];
        } else {
            for (T& value : pieces[i].at) value = T(kNothing);
        }
    }
}

/// Stores the softmax of the same pieces, given maximum and sum of the whole row.
template <class T, int kElements, int kPieces, class Index>
__device__ void store(const Piece<T, kElements> (&pieces)[kPieces], MaxSum whole, T* row,
                      Index first, Index stride, Index count) {
    const float factor = 1 / whole.sum, max = shift(whole.max);
    auto* const to = reinterpret_cast<Piece<T, kElements>*>(row);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        if (first + i * stride >= count) continue;
        Piece<T, kElements> result;
        for (int j = 0; j < kElements; ++j)
            result.at[j] = T(power(float(pieces[i].at[j]), max) * factor);
        to[first + i * stride] = result;
    }
}

/// What a rung computes: out is the softmax of x's rows.
template <class T>
struct Rows {
    const T* x;  // [rows, cols] row-major, like out
    T* out;
    size_t rows, cols;

    size_t row_bytes() const { return cols * sizeof(T); }
    bool aligned() const { return row_bytes() % 16 == 0; }  // all rows are, so none has edges
};

// --- by_warp ------------------------------------------------------------------------------------
// Adds: a row stays in the registers of one warp, which loads it 16 bytes at a time. Its threads
// merge by shuffles: no barrier, no shared memory. Costs: registers, and code for unaligned rows.
// Limits: 32 numbers a thread, so 1024 columns. Source: CUDA Programming Guide, "Warp Shuffle
// Functions"; PTX ISA, "Cache Eviction Priority Hints", for the loads.

constexpr int kPerThread = 32;  // numbers that a thread keeps: with more, fewer threads fit
template <class T>
constexpr int kMostPieces = kPerThread * sizeof(T) / 16;
constexpr size_t kMostPerWarp = 32 * kPerThread;  // columns

/// The softmax of one row by `threads` threads, which keep it: up to kPieces pieces each.
/// merge_team(pair) returns the pair of all of them. kAligned: all rows begin and end at multiples
/// of 16 bytes (no edges: this saves registers).
template <int kPieces, bool kAligned, class T, class MergeTeam>
__device__ void softmax_row(const T* x,  // [rows, cols] row-major, like out
                            T* out, size_t row, size_t cols, unsigned int thread,
                            unsigned int threads, MergeTeam merge_team) {
    const RowLayout<T> layout(kAligned ? 0 : row, cols);
    const unsigned int count = layout.count, at_edge = layout.edge_of(thread);
    const size_t begin = row * cols, pieces_begin = begin + layout.head;

    Piece<T, RowLayout<T>::kElements> pieces[kPieces];
    Piece<T, 1> edge[1];
    load(pieces, x + pieces_begin, thread, threads, count);
    if (!kAligned) load(edge, x + begin, at_edge, 1u, unsigned(cols));
    MaxSum own = max_sum_of(pieces);
    if (!kAligned) own = merge(own, max_sum_of(edge));
    const MaxSum whole = merge_team(own);
    store(pieces, whole, out + pieces_begin, thread, threads, count);
    if (!kAligned) store(edge, whole, out + begin, at_edge, 1u, unsigned(cols));
}

/// For rows of up to 32 * kPieces pieces.
template <class T, bool kAligned, int kPieces>
__global__ void by_warp(const T* x,  // [rows, cols] row-major, like out
                        T* out, size_t rows, size_t cols) {
    const size_t row = size_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    softmax_row<kPieces, kAligned>(x, out, row, cols, threadIdx.x % 32, 32, merge_warp);
}

/// Prepares the launch for rows of up to kMostPerWarp columns.
template <class T>
std::function<void()> prepare_by_warp(Rows<T> r) {
    auto choose = [&]<bool kAligned>() {
        return r.row_bytes() <= 32 * 16       ? by_warp<T, kAligned, 1>
               : r.row_bytes() <= 4 * 32 * 16 ? by_warp<T, kAligned, 4>
                                              : by_warp<T, kAligned, kMostPieces<T>>;
    };
    const auto kernel =
        r.aligned() ? choose.template operator()<true>() : choose.template operator()<false>();
    return [=] { kernel<<<(r.rows + 7) / 8, 8 * 32>>>(r.x, r.out, r.rows, r.cols); };
}

// --- by_block -----------------------------------------------------------------------------------
// Adds: up to 16 warps keep a row together, and merge through shared memory.
// Costs: a barrier, at which memory idles. To fill the gap, a block has the L2 cache fetch the row
// of a block that starts later. Limits: the registers of 512 threads, 16384 columns.
// Source: PTX ISA, "cp.async.bulk.prefetch".

constexpr int kMostThreads = 512;                            // of a block
constexpr size_t kMostPerBlock = kMostThreads * kPerThread;  // columns
constexpr size_t kShortestFetched = kMostPerBlock / 2;       // columns: fetching slows shorter rows
constexpr size_t kBytesAhead = 3 << 20;  // how far ahead to fetch: 8 MiB is 13% slower in fp32

/// Also has the L2 cache fetch the row that comes `ahead` rows later, from row `first_fetched` on:
/// the blocks of rows before that start at once, and load them themselves.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 2)
    by_block(const T* x,  // [rows, cols] row-major, like out
             T* out, size_t cols, size_t ahead, size_t first_fetched) {
    const size_t later = blockIdx.x + ahead, bytes = cols * sizeof(T);
    if (threadIdx.x == 0 && later >= first_fetched && later < gridDim.x) {
        const char* const from = reinterpret_cast<const char*>(x) + later * bytes / 16 * 16;
        ptx::cp_async_bulk_prefetch_L2(from, bytes / 16 * 16);  // it requires multiples of 16
    }
    softmax_row<kMostPieces<T>, kAligned>(x, out, blockIdx.x, cols, threadIdx.x, blockDim.x,
                                          [](MaxSum own) { return merge_block(own); });
}

/// Prepares the launch for rows of up to kMostPerBlock columns.
template <class T>
std::function<void()> prepare_by_block(Rows<T> r, const demo::Gpu& gpu) {
    const auto kernel = r.aligned() ? by_block<T, true> : by_block<T, false>;
    const int threads = 32 * int((r.cols + kMostPerWarp - 1) / kMostPerWarp);
    size_t first_fetched = r.rows;  // none
    if (r.cols > kShortestFetched) {
        const int blocks_per_sm = demo::blocks_per_multiprocessor(kernel, threads, 0);
        first_fetched = size_t(blocks_per_sm * gpu.multiprocessors);
    }
    const size_t ahead = kBytesAhead / r.row_bytes();
    return [=] { kernel<<<r.rows, threads>>>(r.x, r.out, r.cols, ahead, first_fetched); };
}

// --- by_cluster_twice ---------------------------------------------------------------------------
// Adds: rows of any length. Eight blocks share a row, a cluster, whose blocks read each other's
// shared memory. Costs: the row is loaded twice, so 3 MN numbers move instead of 2 MN, unless the
// L2 cache still has it. Limits: that traffic, and in short rows starting and meeting. Before 9.0
// there are no clusters: one block a row.
// Source: CUDA Programming Guide, "Thread Block Clusters" and "Distributed Shared Memory".

constexpr unsigned int kMostBlocks = 8;  // of a cluster, on every GPU that has clusters
constexpr int kTwiceThreads = 512;

/// The cluster that a block belongs to. A single block before 9.0.
struct Cluster {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __device__ unsigned int size() const { return cooperative_groups::cluster_group::num_blocks(); }
    __device__ unsigned int rank() const { return cooperative_groups::cluster_group::block_rank(); }

    /// Merges the blocks' pairs. All threads get the result. Once in a kernel.
    __device__ MaxSum merge_all(MaxSum pair) const {
        if (size() == 1) return pair;
        const auto cluster = cooperative_groups::this_cluster();
        __shared__ MaxSum own;
        if (threadIdx.x == 0) own = pair;
        cluster.sync();  // every block's pair is there
        // Each lane loads the pair of another block.
        const unsigned int lane = threadIdx.x % 32;
        pair = lane < size() ? *cluster.map_shared_rank(&own, lane) : MaxSum{kNothing, 0};
        cluster.sync();  // no block may exit while another still reads its shared memory
        return merge_warp(pair);
    }
#else
    __device__ unsigned int size() const { return 1; }
    __device__ unsigned int rank() const { return 0; }
    __device__ MaxSum merge_all(MaxSum pair) const { return pair; }
#endif
};

template <class T>
__global__ void __launch_bounds__(kTwiceThreads)
    by_cluster_twice(const T* x,  // [rows, cols] row-major, like out
                     T* out, size_t cols) {
    constexpr size_t kElements = RowLayout<T>::kElements, kPieces = 16 / kElements;  // at a time
    const Cluster cluster;
    const size_t row = blockIdx.x / cluster.size();
    x += row * cols, out += row * cols;
    const size_t first = cluster.rank() * blockDim.x + threadIdx.x;
    const size_t stride = cluster.size() * blockDim.x;
    const RowLayout<T> layout(row, cols);
    const size_t head = layout.head, count = layout.count, at_edge = layout.edge_of(first);

    Piece<T, 1> edge[1];
    load(edge, x, at_edge, size_t(1), cols);
    Piece<T, kElements> pieces[kPieces];
    MaxSum own = max_sum_of(edge);
    for (size_t p = first; p < count; p += stride * kPieces) {
        load(pieces, x + head, p, stride, count);
        own = merge(own, max_sum_of(pieces));
    }
    const MaxSum whole = cluster.merge_all(merge_block(own));
    store(edge, whole, out, at_edge, size_t(1), cols);
    for (size_t p = first; p < count; p += stride * kPieces) {
        load(pieces, x + head, p, stride, count);
        store(pieces, whole, out + head, p, stride, count);
    }
}

/// Prepares the launch, for rows of any length.
template <class T>
std::function<void()> prepare_by_cluster_twice(Rows<T> r) {
    const unsigned int blocks = hopper::has_bulk_copies() ? kMostBlocks : 1;
    return [=, launch = demo::ClusterLaunch(r.rows, blocks, kTwiceThreads, 0)] {
        launch(by_cluster_twice<T>, r.x, r.out, r.cols);
    };
}

// --- by_cluster ---------------------------------------------------------------------------------
// Adds: the cluster keeps its row in shared memory, and each warp has one job: to load, reduce or
// write. So a row is written while the next ones are loaded, and in long rows memory hardly idles.
// Costs: a protocol of barriers, and 130 KiB of shared memory. Limits: rows of 512 KiB; short rows,
// of which each takes the whole protocol; in unaligned rows, the single elements at the edges.
// Source: Bauer, Cook, Khailany, "CudaDMA: optimizing GPU memory bandwidth via warp
// specialization", SC 2011; PTX ISA, "mbarrier", "cp.async.bulk" and "st.async".

constexpr unsigned int kChunkPieces = 1024;          // pieces of 16 bytes that are copied at a time
constexpr unsigned int kSlots = 8;                   // chunks in flight: with 13, fp16 is 6% slower
constexpr unsigned int kReducers = 8, kWriters = 8;  // warps; one more loads
constexpr unsigned int kPipelineThreads = 32 * (kReducers + kWriters + 1);
constexpr size_t kMostShareBytes = 64 << 10;  // half of the slots; the next row uses the others

/// A block's share of a row: as many pieces as the other blocks', and for the first block of the
/// cluster the edges as well. (In a short row the last blocks may have none.)
template <class T, bool kAligned>
struct Share {
    size_t begin;         // element of the matrix where the pieces begin
    unsigned int pieces;  // of 16 bytes
    size_t at_edge;       // the element of the row for this thread, or a number beyond the row

    __device__ Share(size_t row, size_t cols, unsigned int rank, unsigned int blocks,
                     unsigned int thread) {
        const RowLayout<T> layout(kAligned ? 0 : row, cols);
        const unsigned int all = layout.count, most = (all + blocks - 1) / blocks;
        begin = row * cols + layout.head + size_t(rank * most) * RowLayout<T>::kElements;
        pieces = min(most, all - rank * most);
        at_edge = rank == 0 ? layout.edge_of(thread) : cols;
    }
};

/// A block's shared memory. Chunks of rows pass through the slots in turn: chunk i uses slot
/// i % kSlots, and waits there for parity i / kSlots % 2. Rows alternate between two sets of pairs.
/// (An mbarrier counts arrivals and announced bytes; when all have come, its phase ends and the
/// parity changes. Waiting for parity 1 on a new one passes. See bonus_matmul_hopper, rung 2.)
///
///     barrier            its phase ends when                           who waits for it
///     full[slot]         the chunk has arrived                         reducers, writers
///     empty[slot]        all writers have read the chunk               the loader
///     pairs_full[set]    all reducers of the cluster have sent pairs   the writers
///     pairs_empty[set]   all writers of the cluster have read them     the reducers, two rows on
///
/// A slot needs no "reducers are done" barrier: writers start a row only after every reducer has
/// sent its pair, and so has read every chunk of that row.
struct RowPipeline {
    uint4 chunks[kSlots][kChunkPieces];
    hopper::Barrier full[kSlots], empty[kSlots];
    float2 pairs[2][kMostBlocks * kReducers];  // maximum and sum from each reducer of the cluster
    hopper::Barrier pairs_full[2], pairs_empty[2];

    /// One thread prepares the barriers, for clusters of `blocks`.
    __device__ void init(unsigned int blocks) {
        for (unsigned int s = 0; s < kSlots; ++s) {
            hopper::mbarrier_init(&full[s], 1);
            hopper::mbarrier_init(&empty[s], kWriters);
        }
        for (int set = 0; set < 2; ++set) {
            hopper::mbarrier_init(&pairs_full[set], 1);
            hopper::mbarrier_init(&pairs_empty[set], blocks * kWriters);
        }
        hopper::fence_mbarrier_init();
        for (int set = 0; set < 2; ++set) expect_pairs(set, blocks);
    }
    __device__ void expect_pairs(int set, unsigned int blocks) {
        hopper::mbarrier_arrive_expect_tx(&pairs_full[set],
                                          blocks * kReducers * sizeof pairs[set][0]);
    }
};

/// A cluster takes row after row. In each of its blocks:
///
///     reducers  warps that reduce each chunk as it arrives; at a row's end each sends the pair of
///               its part to all blocks of the cluster
///     writers   warps that wait for all pairs of a row, merge them, and go over its chunks again
///     loader    a thread that starts the copy of the next chunk, of this row or a later one, as
///               soon as a slot is empty
template <class T, bool kAligned>
__global__ void __launch_bounds__(kPipelineThreads, 1)
    by_cluster(const T* x,  // [rows, cols] row-major, like out
               T* out, size_t rows, size_t cols) {
    constexpr unsigned int kElements = RowLayout<T>::kElements;
    extern __shared__ __align__(16) unsigned char shared[];
    RowPipeline& pipeline = *reinterpret_cast<RowPipeline*>(shared);
    const unsigned int blocks = Cluster().size(), rank = Cluster().rank();
    const size_t own_row = blockIdx.x / blocks, clusters = gridDim.x / blocks;

    if (threadIdx.x == 0) pipeline.init(blocks);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    // The shuffle tells the compiler that all lanes of a warp have the same `warp`.
    const unsigned int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    unsigned int i = 0, turn = 0;  // the next chunk's number, and the next row's
    if (warp < kReducers) {
        for (size_t row = own_row; row < rows; row += clusters, ++turn) {
            const Share<T, kAligned> share(row, cols, rank, blocks, threadIdx.x);
            Piece<T, 1> edge[1];
            if (!kAligned) load(edge, x + row * cols, share.at_edge, size_t(1), cols);
            MaxSum part{kNothing, 0};
            for (unsigned int p = 0; p < share.pieces; p += kChunkPieces, ++i) {
                hopper::mbarrier_wait(&pipeline.full[i % kSlots], i / kSlots % 2);
                const T* const chunk = reinterpret_cast<T*>(pipeline.chunks[i % kSlots]);
                Piece<T, kElements> own[kChunkPieces / (32 * kReducers)];
                load<From::kShared>(own, chunk, threadIdx.x, 32 * kReducers, share.pieces - p);
                part = merge(part, max_sum_of(own));
            }
            if (!kAligned) part = merge(part, max_sum_of(edge));
            part = merge_warp(part);
            const int set = turn % 2;
            hopper::mbarrier_wait(&pipeline.pairs_empty[set],
                                  turn / 2 % 2 ^ 1);  // the first two rows find both sets empty
            __syncwarp();  // all lanes have looked: once pairs are sent, the next phase may begin
            if (lane < blocks)  // each lane sends to another block
                hopper::st_async(&pipeline.pairs[set][rank * kReducers + warp],
                                 {part.max, part.sum}, &pipeline.pairs_full[set], lane);
        }
        // The cluster's writers arrive at this block's barriers: it stays until the last ones have.
        for (int last = 0; last < 2; ++last, ++turn)
            hopper::mbarrier_wait(&pipeline.pairs_empty[turn % 2], turn / 2 % 2 ^ 1);
    } else if (warp < kReducers + kWriters) {
        const unsigned int thread = threadIdx.x - 32 * kReducers;
        for (size_t row = own_row; row < rows; row += clusters, ++turn) {
            const Share<T, kAligned> share(row, cols, rank, blocks, thread);
            Piece<T, 1> edge[1];
            if (!kAligned) load(edge, x + row * cols, share.at_edge, size_t(1), cols);
            const int set = turn % 2;
            hopper::mbarrier_wait(&pipeline.pairs_full[set], turn / 2 % 2);
            MaxSum whole{kNothing, 0};
            for (unsigned int k = lane; k < blocks * kReducers; k += 32)
                whole = merge(whole, {pipeline.pairs[set][k].x, pipeline.pairs[set][k].y});
            whole = merge_warp(whole);
            if (thread == 0) pipeline.expect_pairs(set, blocks);  // re-arm for the row after next
            __syncwarp();  // every lane has read its pairs: their values went into the shuffles
            if (lane < blocks) hopper::mbarrier_arrive_cluster(&pipeline.pairs_empty[set], lane);
            for (unsigned int p = 0; p < share.pieces; p += kChunkPieces, ++i) {
                hopper::mbarrier_wait(&pipeline.full[i % kSlots], i / kSlots % 2);
                const T* const chunk = reinterpret_cast<T*>(pipeline.chunks[i % kSlots]);
                Piece<T, kElements> own[kChunkPieces / (32 * kWriters)];
                load<From::kShared>(own, chunk, thread, 32 * kWriters, share.pieces - p);
                __syncwarp();  // the warp has read its part of the chunk
                if (lane == 0) hopper::mbarrier_arrive(&pipeline.empty[i % kSlots]);
                store(own, whole, out + share.begin + p * kElements, thread, 32 * kWriters,
                      share.pieces - p);
            }
            if (!kAligned) store(edge, whole, out + row * cols, share.at_edge, size_t(1), cols);
        }
    } else if (lane == 0) {
        for (size_t row = own_row; row < rows; row += clusters) {
            const Share<T, kAligned> share(row, cols, rank, blocks, 0);
            for (unsigned int p = 0; p < share.pieces; p += kChunkPieces, ++i) {
                hopper::mbarrier_wait(&pipeline.empty[i % kSlots],
                                      i / kSlots % 2 ^ 1);  // at first all are empty
                const unsigned int bytes = min(kChunkPieces, share.pieces - p) * 16;
                hopper::mbarrier_arrive_expect_tx(&pipeline.full[i % kSlots], bytes);
                hopper::cp_async_bulk(pipeline.chunks[i % kSlots], x + share.begin + p * kElements,
                                      bytes, &pipeline.full[i % kSlots]);
            }
        }
    }
}

constexpr size_t kMostRowBytes = kMostBlocks * kMostShareBytes;

/// Prepares the launch for rows of up to kMostRowBytes, on a GPU that has_pipelines().
template <class T>
std::function<void()> prepare_by_cluster(Rows<T> r) {
    const auto kernel = r.aligned() ? by_cluster<T, true> : by_cluster<T, false>;
    const size_t shares = (r.row_bytes() + kMostShareBytes - 1) / kMostShareBytes;
    const unsigned int blocks = std::max(size_t(2), std::bit_ceil(shares));
    demo::allow_shared_bytes(kernel, sizeof(RowPipeline));
    const demo::ClusterLaunch one(1, blocks, kPipelineThreads, sizeof(RowPipeline));
    const size_t clusters = std::min(r.rows, size_t(one.at_once(kernel)));
    return
        [=, launch = demo::ClusterLaunch(clusters, blocks, kPipelineThreads, sizeof(RowPipeline))] {
            launch(kernel, r.x, r.out, r.rows, r.cols);
        };
}

/// Whether by_cluster runs on this GPU. (A dry run cannot ask what was compiled for it.)
inline bool has_pipelines(const demo::Gpu& gpu) {
    return gpu.compute_capability >= 90 && sizeof(RowPipeline) <= gpu.shared_per_block &&
           (demo::dry_run || hopper::has_bulk_copies());
}

// --- The choice ---------------------------------------------------------------------------------

/// The best rung for rows of this length, on this GPU, as other programs run it: the one that
/// keeps a row nearest to the arithmetic.
template <class T>
std::vector<demo::Contender> records(const T* x, T* out, size_t rows, size_t cols,
                                     const demo::Gpu& gpu) {
    const Rows<T> r{x, out, rows, cols};
    auto setup = [r, &gpu](demo::Contender& self) {
        const bool in_registers = r.cols <= kMostPerBlock;
        const bool kept = in_registers || (r.row_bytes() <= kMostRowBytes && has_pipelines(gpu));
        self.moved_bytes = (kept ? 2 : 3) * r.rows * r.row_bytes();
        self.launch = r.cols <= kMostPerWarp ? prepare_by_warp(r)
                      : in_registers         ? prepare_by_block(r, gpu)
                      : kept                 ? prepare_by_cluster(r)
                                             : prepare_by_cluster_twice(r);
    };
    return {demo::record("bonus_softmax_rows", {.kernel = "softmax_rows", .setup = setup})};
}

}  // namespace softmax
