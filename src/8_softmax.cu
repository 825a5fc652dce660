// 8: Softmax over the rows of x[rows, cols]: out = e^(x - max) / sum of e^(x - max).
//
// Every row first has to be seen whole: its maximum, then its sum. Whoever wants to read it only
// once must have somewhere to keep it. (Why the maximum: e^89 is beyond what fp32 holds, and
// subtracting the same from all of a row changes nothing but keeps e's argument at 0 and below.)
//
// chain            as a framework runs it eagerly, five kernels: the rows' maxima, x - max, e to
//                  that, the rows' sums, e / sum. Reads 5 MN + 2 M, writes 3 MN + 2 M: four times
//                  the least.
// fused            a block takes a row, keeps it in shared memory, and goes over it three times. A
//                  row that does not fit is read three times.
// fused_online     a team takes a row, no larger than the row asks for:
//
//                      columns: fp32    fp16    team                    keeps the row in
//                        up to    1024    1024    a warp, no barrier      registers
//                        up to   16384   16384    a block                 registers
//                        up to  131072  262144    2 .. 8 blocks that      shared memory
//                                                 reach into each
//                                                 other's: a cluster
//                        beyond                   8 blocks                nothing: read twice
//
//                  Keeping long rows takes compute capability 9.0 and 130 KiB of shared memory in
//                  a block. Elsewhere they are read twice, before 9.0 by a single block.
//                  Maximum and sum are found in one go ("online"): each thread finds both of its
//                  own part, and two such parts merge into one. So the team meets once, not twice.
//                  Rows of any length move by 16 bytes. Where one does not begin or end at a
//                  multiple of 16 bytes, one thread each takes the few elements at its edges.
//
// The choices were measured on an H200, in percent of a copy.
//
// Clusters: when eight blocks load a row, meet, and write it, memory idles while they wait for each
// other: 84. So each warp has one job, loading, reducing or writing, and a row is written while the
// next is loaded: 97 (fp16: 95). Eight chunks on their way are best; with thirteen, fp16 is 6%
// slower. Shorter rows do not gain by it: at 16384 columns such a block on its own gave 96, and
// registers 101 (fp16: 99).
//
// Blocks meet too, and memory has less to do meanwhile: so on rows of more than 8192, from 9.0 on,
// each first has the L2 cache fetch a row some 3 MiB ahead: 101.3 (fp16: 101.7). 8 MiB ahead, fp32
// falls to 88; on shorter rows up to 3 are lost.
//
// Rows with edges come to 93 at 50257 columns, GPT-2's vocabulary (fp16: 82), and to 85 to 101 from
// 1023 to 16383; with a load for every single element these gave 29 to 73. Rows that are read twice
// come to 61 to 64 (PyTorch's and Triton's at 131072 columns, which do the same: 46 to 65).
//
// x is read once, yet the loads ask the L2 cache to evict it last. That moves the same bytes in
// less time: in fp32, 97 becomes 101 at 16384 columns, and 98 becomes 101 at 1000, faster than a
// copy that does not ask. To have it evicted first, which sounds more like it, gives 93.
//
// A row that is -infinity throughout is NaN: there is no distribution over nothing. (It is in
// PyTorch too.) A single -infinity is 0, and a NaN or +infinity makes its whole row NaN.
//
// TFLOP/s counts five operations per element, the chain's.
#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/softmax.cuh"
#include "hopper.cuh"
#include "ptx.cuh"

namespace softmax {

constexpr int kThreads = 256;
constexpr float kNothing = -INFINITY;  // the maximum of no numbers

constexpr float kLog2E = 1.44269504f;  // e^x = 2^(x log2 e), and 2^x is one instruction

/// What a part of a row comes down to: its maximum, and the sum of its e^(x - max), which lies
/// between 1 and the number of terms.
struct Part {
    float max, sum;
};

/// `max`, to be subtracted: where it is -infinity, x - max would be NaN, and 0 does as well.
__device__ float shift(float max) { return max == kNothing ? 0 : max; }

/// e^(x - max). The difference comes first: of numbers around 1e10, fp32's next neighbours of
/// x log2 e lie 1024 apart.
__device__ float power(float x, float max) { return ptx::ex2_approx((x - max) * kLog2E); }

__device__ Part merge(Part a, Part b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * power(a.max, shift(max)) + b.sum * power(b.max, shift(max))};
}

/// Merges the parts of a warp's threads. All of them get the result.
__device__ Part merge_warp(Part part) {
    float max = part.max;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, lanes));
    float sum = part.sum * power(part.max, shift(max));
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return {max, sum};
}

/// Merges the parts of a block's threads (whole warps of them, up to 32). All get the result.
/// Calls in a row take turns with two `slot`s: then one barrier each is enough.
__device__ Part merge_block(Part part, int slot = 0) {
    __shared__ Part parts[2][32];
    part = merge_warp(part);
    const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) parts[slot][warp] = part;
    __syncthreads();  // every warp's part is there
    part = lane < blockDim.x / 32 ? parts[slot][lane] : Part{kNothing, 0};
    return merge_warp(part);
}

// --- One kernel per operation -------------------------------------------------------------------

/// A block per row: its maximum. fp32 whatever T is: a sum of 131072 terms exceeds fp16.
template <class T>
__global__ void row_max(const T* x, float* max, size_t rows, size_t cols) {
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = kNothing;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            own = fmaxf(own, float(x[row * cols + col]));
        const Part part = merge_block({own, 0});
        if (threadIdx.x == 0) max[row] = part.max;
        __syncthreads();  // merge_block's memory may be used again
    }
}

template <class T>
__global__ void row_sum(const T* e, float* sum, size_t rows, size_t cols) {
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = 0;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            own += float(e[row * cols + col]);
        const Part part = merge_block({0, own});  // with equal maxima, merging is adding
        if (threadIdx.x == 0) sum[row] = part.sum;
        __syncthreads();  // merge_block's memory may be used again
    }
}

template <class T>
__global__ void subtract(const T* x, const float* max, T* t, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) t[i] = T(float(x[i]) - max[i / cols]);
}

template <class T>
__global__ void exponential(const T* t, T* e, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) e[i] = T(expf(float(t[i])));
}

template <class T>
__global__ void divide(const T* e, const float* sum, T* out, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(float(e[i]) / sum[i / cols]);
}

// --- A block per row ----------------------------------------------------------------------------

template <class T>
__global__ void fused(const T* x,  // [rows, cols] row-major, like out
                      T* out, size_t rows, size_t cols, bool fits) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const kept = reinterpret_cast<T*>(shared);  // [cols], where that fits
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* const from = x + row * cols;
        const T* const again = fits ? kept : from;

        float max = kNothing;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x) {
            const T value = from[col];
            if (fits) kept[col] = value;
            max = fmaxf(max, float(value));
        }
        max = merge_block({max, 0}, 0).max;

        float sum = 0;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            sum += __expf(float(again[col]) - shift(max));
        sum = merge_block({0, sum}, 1).sum;

        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            out[row * cols + col] = T(__expf(float(again[col]) - shift(max)) / sum);
        __syncthreads();  // the next row may take the memory
    }
}

// --- A team per row -----------------------------------------------------------------------------

/// Elements that a thread moves at a time: 16 bytes, or a single one at the edges of a row.
template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Piece {
    T at[kElements];
};

/// The part of kPieces pieces.
template <class T, int kElements, int kPieces>
__device__ Part part_of(const Piece<T, kElements> (&pieces)[kPieces]) {
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
/// -infinity. (Index: 32 bits where they suffice; they take half the registers.)
template <From kFrom = From::kGlobal, class T, int kElements, int kPieces, class Index>
__device__ void load(Piece<T, kElements> (&pieces)[kPieces], const T* row, Index first,
                     Index stride, Index count) {
    const auto* const from = reinterpret_cast<const Piece<T, kElements>*>(row);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        if (first + i * stride < count) {
            if constexpr (kFrom == From::kGlobal && sizeof pieces[i] == 16)
                ptx::ld_global_evict_last(pieces[i], &from[first + i * stride]);
            else
                pieces[i] = from[first + i * stride];
        } else {
            for (T& value : pieces[i].at) value = T(kNothing);
        }
    }
}

/// Stores the softmax of the same pieces, given the whole row's part.
template <class T, int kElements, int kPieces, class Index>
__device__ void store(const Piece<T, kElements> (&pieces)[kPieces], Part whole, T* row, Index first,
                      Index stride, Index count) {
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

/// How threads divide a row: into pieces of 16 bytes. Where it does not begin or end at a multiple
/// of 16 bytes, single elements are left at its edges: up to 14, fewer than a warp has threads.
/// (The matrix itself begins at such a multiple.)
template <class T>
struct RowLayout {
    static constexpr unsigned int kElements = 16 / sizeof(T);  // of a piece
    size_t head, count;  // how many elements come before the pieces, and how many pieces

    __device__ RowLayout(size_t row, size_t cols)
        : head(min((kElements - row * cols % kElements) % kElements, cols)),
          count((cols - head) / kElements) {}

    /// The element at the edges that is a thread's to take, or a number beyond the row.
    __device__ size_t edge_of(size_t thread) const {
        return thread < head ? thread : count * kElements + thread;
    }
};

constexpr int kPerThread = 32;  // numbers that a thread keeps: more, and fewer threads fit an SM
template <class T>
constexpr int kMostPieces = kPerThread * sizeof(T) / 16;

/// The softmax of one row by `threads` threads, which keep it: up to kPieces pieces each.
/// merge_team(part) returns the part of all of them. kAligned: all rows begin at multiples of 16
/// bytes, and so end there too (which saves registers).
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
    Part part = part_of(pieces);
    if (!kAligned) part = merge(part, part_of(edge));
    const Part whole = merge_team(part);
    store(pieces, whole, out + pieces_begin, thread, threads, count);
    if (!kAligned) store(edge, whole, out + begin, at_edge, 1u, unsigned(cols));
}

/// A warp per row, for rows of up to 32 * kPieces pieces.
template <class T, bool kAligned, int kPieces>
__global__ void by_warp(const T* x,  // [rows, cols] row-major, like out
                        T* out, size_t rows, size_t cols) {
    const size_t row = size_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    softmax_row<kPieces, kAligned>(x, out, row, cols, threadIdx.x % 32, 32, merge_warp);
}

constexpr int kMostThreads = 512, kMostPerBlock = kMostThreads * kPerThread;
constexpr size_t kBytesAhead = 3 << 20;  // from a block's row to the one that it has fetched

/// A block per row, for rows of up to blockDim * kPerThread elements. It also has the L2 cache
/// fetch the row that comes `ahead` rows later, from row `first_fetched` on: the blocks of those
/// before start at once.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 2)
    by_block(const T* x,  // [rows, cols] row-major, like out
             T* out, size_t cols, size_t ahead, size_t first_fetched) {
    const size_t later = blockIdx.x + ahead, bytes = cols * sizeof(T);
    if (threadIdx.x == 0 && later >= first_fetched && later < gridDim.x) {
        const char* const from = reinterpret_cast<const char*>(x) + later * bytes / 16 * 16;
        ptx::cp_async_bulk_prefetch_L2(from, bytes / 16 * 16);  // it takes multiples of 16
    }
    softmax_row<kMostPieces<T>, kAligned>(x, out, blockIdx.x, cols, threadIdx.x, blockDim.x,
                                          [](Part part) { return merge_block(part); });
}

/// Blocks that share a row, and reach into each other's shared memory. A single block before 9.0.
struct Cluster {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __device__ unsigned int size() const { return cooperative_groups::cluster_group::num_blocks(); }
    __device__ unsigned int rank() const { return cooperative_groups::cluster_group::block_rank(); }

    /// Merges the blocks' parts. All threads get the result. Once in a kernel.
    __device__ Part merge_all(Part part) const {
        if (size() == 1) return part;
        const auto cluster = cooperative_groups::this_cluster();
        __shared__ Part own;
        if (threadIdx.x == 0) own = part;
        cluster.sync();  // every block's part is there
        // Each lane takes a block's part.
        const unsigned int lane = threadIdx.x % 32;
        part = lane < size() ? *cluster.map_shared_rank(&own, lane) : Part{kNothing, 0};
        cluster.sync();  // no block may leave while another still reads its shared memory
        return merge_warp(part);
    }
#else
    __device__ unsigned int size() const { return 1; }
    __device__ unsigned int rank() const { return 0; }
    __device__ Part merge_all(Part part) const { return part; }
#endif
};

constexpr int kTwiceThreads = 512;

/// A cluster per row, of any length: nothing is kept, and the second reading is the L2 cache's if
/// the row is still there.
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
    Part part = part_of(edge);
    for (size_t p = first; p < count; p += stride * kPieces) {
        load(pieces, x + head, p, stride, count);
        part = merge(part, part_of(pieces));
    }
    const Part whole = cluster.merge_all(merge_block(part));
    store(edge, whole, out, at_edge, size_t(1), cols);
    for (size_t p = first; p < count; p += stride * kPieces) {
        load(pieces, x + head, p, stride, count);
        store(pieces, whole, out + head, p, stride, count);
    }
}

// --- A cluster per row, and warps with one job each ---------------------------------------------

constexpr unsigned int kChunkPieces = 1024;          // pieces of 16 bytes that are copied at a time
constexpr unsigned int kSlots = 8;                   // of the ring: 128 KiB
constexpr unsigned int kReducers = 8, kWriters = 8;  // warps, and there is one that loads
constexpr unsigned int kRingThreads = 32 * (kReducers + kWriters + 1);  // threads
constexpr unsigned int kMostBlocks = 8;                                 // of a cluster
constexpr size_t kMostShareBytes = 64 << 10;  // of a row: half of the ring, the next row has room

/// The share of a row that a block of the cluster has: an equal part of the pieces, and the first
/// block the edges too. (Rows are long: every block gets some.)
template <class T, bool kAligned>
struct Share {
    size_t begin;         // element of the matrix where the pieces begin
    unsigned int pieces;  // of 16 bytes
    size_t at_edge;       // element of the row that is this thread's, or beyond the row

    __device__ Share(size_t row, size_t cols, unsigned int rank, unsigned int blocks,
                     unsigned int thread) {
        const RowLayout<T> layout(kAligned ? 0 : row, cols);
        const unsigned int all = layout.count, most = (all + blocks - 1) / blocks;
        begin = row * cols + layout.head + size_t(rank * most) * RowLayout<T>::kElements;
        pieces = min(most, all - rank * most);
        at_edge = rank == 0 ? layout.edge_of(thread) : cols;
    }
};

/// What a block keeps: see by_cluster.
struct Ring {
    uint4 chunks[kSlots][kChunkPieces];
    hopper::Barrier full[kSlots], empty[kSlots];
    float2 parts[2][kMostBlocks * kReducers];  // of all the cluster's reducers: max and sum
    hopper::Barrier known[2], taken[2];

    /// One thread prepares the barriers, for clusters of `blocks`.
    __device__ void init(unsigned int blocks) {
        for (unsigned int s = 0; s < kSlots; ++s) {
            hopper::mbarrier_init(&full[s], 1);
            hopper::mbarrier_init(&empty[s], kWriters);
        }
        for (int set = 0; set < 2; ++set) {
            hopper::mbarrier_init(&known[set], 1);
            hopper::mbarrier_init(&taken[set], blocks * kWriters);
        }
        hopper::fence_mbarrier_init();
        for (int set = 0; set < 2; ++set) expect_parts(set, blocks);
    }
    __device__ void expect_parts(int set, unsigned int blocks) {
        hopper::mbarrier_arrive_expect_tx(&known[set], blocks * kReducers * sizeof parts[set][0]);
    }
};

/// A cluster takes row after row, and each of its blocks an equal share of each. Chunks go around a
/// ring (i: their number, so i % kSlots is the slot, and i / kSlots % 2 its barriers' parity):
///
///     loader    a thread that starts the copy of the next chunk, of this row or the next, as soon
///               as a slot is empty
///     reducers  warps that find their part of a row, chunk by chunk as they come, and send it to
///               all blocks of the cluster
///     writers   warps that wait for all parts of a row, merge them, and go over its chunks again
///
/// So a row is written while the next ones are reduced and loaded, and no one waits for all.
///
///     barrier        ends when                                     who waits for it
///     full[slot]     the chunk has arrived                         reducers, writers
///     empty[slot]    all writers have read the chunk               the loader
///     known[set]     all reducers of the cluster have sent parts   the writers
///     taken[set]     all writers of the cluster have read them     the reducers, two rows later
///
/// Nobody waits for the reducers before a slot is used again: writers begin a row only when each
/// reducer has sent its part of it. Rows take turns with two sets of parts.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kRingThreads, 1)
    by_cluster(const T* x,  // [rows, cols] row-major, like out
               T* out, size_t rows, size_t cols) {
    constexpr unsigned int kElements = RowLayout<T>::kElements;
    extern __shared__ __align__(16) unsigned char shared[];
    Ring& ring = *reinterpret_cast<Ring*>(shared);
    const unsigned int blocks = Cluster().size(), rank = Cluster().rank();
    const size_t own_row = blockIdx.x / blocks, clusters = gridDim.x / blocks;

    if (threadIdx.x == 0) ring.init(blocks);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    // The shuffle tells the compiler that a warp agrees on it.
    const unsigned int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    unsigned int i = 0, turn = 0;  // the next chunk's number, and the next row's
    if (warp < kReducers) {
        for (size_t row = own_row; row < rows; row += clusters, ++turn) {
            const Share<T, kAligned> share(row, cols, rank, blocks, threadIdx.x);
            Piece<T, 1> edge[1];
            if (!kAligned) load(edge, x + row * cols, share.at_edge, size_t(1), cols);
            Part part{kNothing, 0};
            for (unsigned int p = 0; p < share.pieces; p += kChunkPieces, ++i) {
                hopper::mbarrier_wait(&ring.full[i % kSlots], i / kSlots % 2);
                const T* const chunk = reinterpret_cast<T*>(ring.chunks[i % kSlots]);
                Piece<T, kElements> own[kChunkPieces / (32 * kReducers)];
                load<From::kShared>(own, chunk, threadIdx.x, 32 * kReducers, share.pieces - p);
                part = merge(part, part_of(own));
            }
            if (!kAligned) part = merge(part, part_of(edge));
            part = merge_warp(part);
            const int set = turn % 2;
            hopper::mbarrier_wait(&ring.taken[set],
                                  turn / 2 % 2 ^ 1);  // the first two find all taken
            if (lane < blocks)                        // each lane to another block
                hopper::st_async(&ring.parts[set][rank * kReducers + warp], {part.max, part.sum},
                                 &ring.known[set], lane);
        }
    } else if (warp < kReducers + kWriters) {
        const unsigned int thread = threadIdx.x - 32 * kReducers;
        for (size_t row = own_row; row < rows; row += clusters, ++turn) {
            const Share<T, kAligned> share(row, cols, rank, blocks, thread);
            Piece<T, 1> edge[1];
            if (!kAligned) load(edge, x + row * cols, share.at_edge, size_t(1), cols);
            const int set = turn % 2;
            hopper::mbarrier_wait(&ring.known[set], turn / 2 % 2);
            Part whole{kNothing, 0};
            for (unsigned int k = lane; k < blocks * kReducers; k += 32)
                whole = merge(whole, {ring.parts[set][k].x, ring.parts[set][k].y});
            whole = merge_warp(whole);
            if (thread == 0) ring.expect_parts(set, blocks);  // the next but one row's
            __syncwarp();  // the parts have been read: their values went into the shuffles above
            if (lane < blocks) hopper::mbarrier_arrive_cluster(&ring.taken[set], lane);
            for (unsigned int p = 0; p < share.pieces; p += kChunkPieces, ++i) {
                hopper::mbarrier_wait(&ring.full[i % kSlots], i / kSlots % 2);
                const T* const chunk = reinterpret_cast<T*>(ring.chunks[i % kSlots]);
                Piece<T, kElements> own[kChunkPieces / (32 * kWriters)];
                load<From::kShared>(own, chunk, thread, 32 * kWriters, share.pieces - p);
                __syncwarp();  // the warp has what it needs of the chunk
                if (lane == 0) hopper::mbarrier_arrive(&ring.empty[i % kSlots]);
                store(own, whole, out + share.begin + p * kElements, thread, 32 * kWriters,
                      share.pieces - p);
            }
            if (!kAligned) store(edge, whole, out + row * cols, share.at_edge, size_t(1), cols);
        }
    } else if (lane == 0) {
        for (size_t row = own_row; row < rows; row += clusters) {
            const Share<T, kAligned> share(row, cols, rank, blocks, 0);
            for (unsigned int p = 0; p < share.pieces; p += kChunkPieces, ++i) {
                hopper::mbarrier_wait(&ring.empty[i % kSlots],
                                      i / kSlots % 2 ^ 1);  // at first all are
                const unsigned int bytes = min(kChunkPieces, share.pieces - p) * 16;
                hopper::mbarrier_arrive_expect_tx(&ring.full[i % kSlots], bytes);
                hopper::cp_async_bulk(ring.chunks[i % kSlots], x + share.begin + p * kElements,
                                      bytes, &ring.full[i % kSlots]);
            }
        }
    }
    hopper::barrier_cluster_sync();  // no block may leave while others still reach into it
}

// --- Launching ----------------------------------------------------------------------------------

/// `temporary` [rows, cols]; `max` and `sum` [rows].
template <class T>
void launch_chain(const T* x, T* temporary, float* max, float* sum, T* out, size_t rows,
                  size_t cols) {
    const size_t size = rows * cols, blocks = (size + kThreads - 1) / kThreads;
    const size_t row_blocks = std::min<size_t>(rows, 1 << 24);
    row_max<<<row_blocks, kThreads>>>(x, max, rows, cols);
    subtract<<<blocks, kThreads>>>(x, max, out, size, cols);
    exponential<<<blocks, kThreads>>>(out, temporary, size);
    row_sum<<<row_blocks, kThreads>>>(temporary, sum, rows, cols);
    divide<<<blocks, kThreads>>>(temporary, sum, out, size, cols);
}

// What follows prepares a launch, once, and returns what enqueues it: asking the runtime for shared
// memory and for occupancy takes microseconds that are not the kernel's.

/// `most_shared`: bytes of shared memory that a block may have.
template <class T>
std::function<void()> prepare_fused(const T* x, T* out, size_t rows, size_t cols,
                                    size_t most_shared) {
    const size_t bytes = cols <= most_shared / sizeof(T) ? cols * sizeof(T) : 0;
    const size_t blocks = std::min<size_t>(rows, 1 << 24);
    demo::allow_shared_bytes(fused<T>, bytes);
    return [=] { fused<T><<<blocks, kThreads, bytes>>>(x, out, rows, cols, bytes > 0); };
}

/// What teams can be made of on this GPU.
struct Teams {
    int multiprocessors;
    bool clusters, rings;  // whether there are any

    explicit Teams(const demo::Gpu& gpu)
        : multiprocessors(gpu.multiprocessors),
          clusters(hopper::has_bulk_copies()),
          rings(clusters && sizeof(Ring) <= gpu.shared_per_block) {}

    /// Whether a team keeps its row.
    bool read_once(size_t cols, size_t element_bytes) const {
        return cols <= kMostPerBlock ||
               (rings && cols * element_bytes <= kMostBlocks * kMostShareBytes);
    }
};

/// Chooses the team: no larger than the row asks for.
template <bool kAligned, class T>
std::function<void()> prepare_by_team(const T* x, T* out, size_t rows, size_t cols,
                                      const Teams& teams) {
    const size_t row_bytes = cols * sizeof(T);
    if (cols <= 32 * kPerThread) {  // a warp; eight of them make a block
        const auto kernel = row_bytes <= 32 * 16       ? by_warp<T, kAligned, 1>
                            : row_bytes <= 4 * 32 * 16 ? by_warp<T, kAligned, 4>
                                                       : by_warp<T, kAligned, kMostPieces<T>>;
        return [=] { kernel<<<(rows + 7) / 8, 256>>>(x, out, rows, cols); };
    }
    if (cols <= kMostPerBlock) {
        const auto kernel = by_block<T, kAligned>;
        const int threads = 32 * ((int(cols) + 32 * kPerThread - 1) / (32 * kPerThread));
        size_t first_fetched = rows;  // none: shorter rows only lose by it
        if (cols > kMostPerBlock / 2) {
            const int blocks_per_sm = demo::blocks_per_multiprocessor(kernel, threads, 0);
            first_fetched = size_t(blocks_per_sm * teams.multiprocessors);
        }
        const size_t ahead = kBytesAhead / row_bytes;
        return [=] { kernel<<<rows, threads>>>(x, out, cols, ahead, first_fetched); };
    }
    if (!teams.read_once(cols, sizeof(T)))
        return
            [=, launch = demo::ClusterLaunch(rows, teams.clusters ? kMostBlocks : 1, kTwiceThreads,
                                             0)] { launch(by_cluster_twice<T>, x, out, cols); };
    const unsigned int cluster =
        std::max(size_t(2), std::bit_ceil((row_bytes + kMostShareBytes - 1) / kMostShareBytes));
    demo::allow_shared_bytes(by_cluster<T, kAligned>, sizeof(Ring));
    const demo::ClusterLaunch one(1, cluster, kRingThreads, sizeof(Ring));
    const size_t clusters = std::min(rows, size_t(one.at_once(by_cluster<T, kAligned>)));
    return [=, launch = demo::ClusterLaunch(clusters, cluster, kRingThreads, sizeof(Ring))] {
        launch(by_cluster<T, kAligned>, x, out, rows, cols);
    };
}

template <class T>
std::function<void()> prepare_online(const T* x, T* out, size_t rows, size_t cols,
                                     const Teams& teams) {
    return cols * sizeof(T) % 16 == 0 ? prepare_by_team<true>(x, out, rows, cols, teams)
                                      : prepare_by_team<false>(x, out, rows, cols, teams);
}

// --- Running ------------------------------------------------------------------------------------

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t rows = shape.rows, cols = shape.cols;
    // Even rows lie around 100, odd ones around -100: e^x itself would overflow or vanish.
    const demo::Input<T> x(session, "x", shape, {.then = demo::Then::kOffsetRows});
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<T> temporary(shape.size());
    const demo::Buffer<float> max(rows), sum(rows);
    const demo::SoftmaxReference<T> reference(session, x);

    const size_t most_shared = session.gpu.shared_per_block - 1024;  // the warps' parts need some
    const size_t matrix = x.bytes(), column = max.bytes();
    const demo::Workload work = shape.workload(session, 5);
    session.run(work, reference.check(out, false),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch =
                      [&] {
                          launch_chain<T>(x, temporary.data(), max.data(), sum.data(), out, rows,
                                          cols);
                      },
                  .check = reference.check(out, true),
                  .launches = 5,
                  .temporary_bytes = matrix + 2 * column,
                  .moved_bytes = 8 * matrix + 4 * column},
                 {.kernel = "fused",
                  .setup =
                      [&](demo::Contender& self) {
                          self.launch = prepare_fused<T>(x, out, rows, cols, most_shared);
                      },
                  .moved_bytes = (cols <= most_shared / sizeof(T) ? 2 : 4) * matrix},
                 {.kernel = "fused_online",
                  .setup =
                      [&](demo::Contender& self) {
                          const Teams teams(session.gpu);
                          self.launch = prepare_online<T>(x, out, rows, cols, teams);
                          self.moved_bytes = (teams.read_once(cols, sizeof(T)) ? 2 : 3) * matrix;
                      }},
                 demo::copy_contender(session, work)});
}

}  // namespace softmax

#ifndef SOFTMAX_NO_MAIN

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "8_softmax",
        .summary = "softmax of a matrix's rows: five kernels, one, and one at a copy's speed",
        .types = {{"fp32", softmax::run<float>}, {"fp16", softmax::run<half>}},
        .any_shape = true,
        .sizes = {4096, 8192, 16384},
        // Long rows, short rows, and rows that do not begin at multiples of 16 bytes.
        .shapes = {{4096, 131072}, {262144, 1000}, {8192, 50257}}};
    return demo::main_of(program, argc, argv);
}

#endif
