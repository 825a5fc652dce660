// Rows that threads keep in registers: what bonus_softmax_rows and bonus_norm share. A row is moved
// in pieces of 16 bytes, and shared by a warp, a block, or the blocks of a cluster.
#pragma once

#include <cooperative_groups.h>

#include <type_traits>

#include "hopper.cuh"
#include "ptx.cuh"
#include "rows/rows.cuh"

namespace row_pieces {

/// What a kernel reads and writes, row by row.
template <class T>
struct Rows {
    const T* x;  // [rows, cols] row-major, like out
    T* out;
    size_t rows, cols;

    size_t row_bytes() const { return cols * sizeof(T); }
    /// The most whole pieces that a row can have (its other elements are edges), but at least 1.
    size_t whole_pieces() const { return row_bytes() < 16 ? 1 : row_bytes() / 16; }
    bool aligned() const { return row_bytes() % 16 == 0; }  // all rows are, to 16 bytes
};

/// 16 bytes of a row, which a thread moves at a time.
template <class T>
using Piece = demo::Vector<T>;

/// A block's share of a row, or a warp's: whole pieces, and elements at the edges. Rows of 50257
/// columns, say, begin and end anywhere, and a load of 16 bytes must be aligned to 16. So single
/// elements are left at the edges of a row: the first share has the ones before its pieces, the
/// last share the ones after them. (The matrix itself is aligned. In a short row the last shares
/// may have no pieces.) kUnit: each share's pieces begin at a multiple of that many bytes.
/// kAligned: so do all rows.
template <class T, bool kAligned, int kUnit = 16>
struct Share {
    static constexpr unsigned int kElements = Piece<T>::kSize;
    static constexpr unsigned int kUnitElements = kUnit / sizeof(T), kUnitPieces = kUnit / 16;

    size_t column;        // where in the row the pieces begin
    size_t begin;         // element of the matrix where they do
    unsigned int pieces;  // how many
    size_t edge_at;       // element of the matrix at the edges for this thread
    bool has_edge;

    /// The most pieces that one of so many shares has.
    DEMO_HOST_DEVICE static unsigned int most_pieces(size_t cols, unsigned int shares) {
        const unsigned int units = cols / kUnitElements;
        return (units + shares - 1) / shares * kUnitPieces;
    }

    __device__ Share(size_t row, size_t cols, unsigned int thread, unsigned int rank = 0,
                     unsigned int shares = 1) {
        const size_t first = row * cols;
        unsigned int units = cols / kUnitElements, more = cols % kUnitElements;
        unsigned int before = 0;  // elements at the edge
        if (!kAligned) {
            before = min((0 - unsigned(first)) % kUnitElements, units > 0 ? kUnitElements : more);
            if (before > more) --units, more += kUnitElements;
        }
        unsigned int after = kAligned ? 0 : more - before;
        const unsigned int all = units * kUnitPieces;
        const unsigned int most = most_pieces(cols, shares);  // once in a loop over rows
        column = before + size_t(rank * most) * kElements;
        begin = first + column;
        pieces = rank * most < all ? min(most, all - rank * most) : 0;
        if (rank > 0) before = 0;
        if (rank + 1 < shares) after = 0;
        edge_at = first + (thread < before ? thread : cols - 1 - (thread - before));
        has_edge = !kAligned && thread < before + after;
    }

    /// Asks the L2 cache to fetch the share.
    __device__ void fetch(const T* x) const {
        if (pieces > 0) ptx::cp_async_bulk_prefetch_L2(x + begin, pieces * 16);
    }
    /// The same with the units before and after it, where its edges are. `size`: elements of x.
    __device__ void fetch_with_edges(const T* x, size_t size) const {
        if (kAligned) return fetch(x);
        // In whole pieces, also where the row is too short to have any.
        const size_t from = (begin - min(begin, size_t(kUnitElements))) / kElements * kElements;
        const size_t to =
            min(begin + pieces * kElements + kUnitElements, size) / kElements * kElements;
        if (from < to)
            ptx::cp_async_bulk_prefetch_L2(x + from, unsigned(to - from) * unsigned(sizeof(T)));
    }
};

/// A piece's elements in fp32. fp16 in pairs, as registers hold them: taken one by one, each would
/// first be moved to the lower half of a register.
template <class T>
__device__ void unpack(const Piece<T>& piece, float (&to)[Piece<T>::kSize]) {
    if constexpr (std::is_same_v<T, half>) {
        for (int i = 0; i < Piece<T>::kSize / 2; ++i) {
            const float2 pair = __half22float2(reinterpret_cast<const half2*>(piece.at)[i]);
            to[2 * i] = pair.x, to[2 * i + 1] = pair.y;
        }
    } else {
        for (int i = 0; i < Piece<T>::kSize; ++i) to[i] = float(piece.at[i]);
    }
}

/// And back, rounded.
template <class T>
__device__ Piece<T> pack(const float (&from)[Piece<T>::kSize]) {
    Piece<T> piece;
    if constexpr (std::is_same_v<T, half>) {
        for (int i = 0; i < Piece<T>::kSize / 2; ++i)
            reinterpret_cast<uint32_t*>(piece.at)[i] =
                ptx::cvt_rn_x2<T>(from[2 * i], from[2 * i + 1]);
    } else {
        for (int i = 0; i < Piece<T>::kSize; ++i) piece.at[i] = T(from[i]);
    }
    return piece;
}

/// Loads a thread's pieces: every `stride`-th of `count` from `first` on, and `nothing` beyond.
template <class T, int kPieces>
__device__ void load(Piece<T> (&pieces)[kPieces], const T* from, unsigned int first,
                     unsigned int stride, unsigned int count, T nothing) {
    // One address and one count for all loads: instructions hold the offsets, which are constants.
    const auto* const own = reinterpret_cast<const Piece<T>*>(from) + first;
    const unsigned int left = first < count ? count - first : 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        for (T& value : pieces[i].at) value = nothing;
        // Most rungs load x once, yet on an H200 evict_last is 3 to 4% faster in fp32 than no hint,
        // and evict_first 4% slower.
        ptx::ld_global_evict_last_if(i * stride < left, pieces[i], own + i * stride);
    }
}

/// Call it before pieces are unpacked another time. In code for 10.0 and later the compiler would
/// keep the fp32 numbers of the first time: twice the registers that fp16 fills, and they spill.
template <class T, int kPieces>
__device__ void forget_unpacked([[maybe_unused]] Piece<T> (&pieces)[kPieces]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#pragma unroll
    for (int i = 0; i < 4 * kPieces; ++i)  // for all that the compiler knows, this changes a word
        asm("" : "+r"(reinterpret_cast<uint32_t*>(pieces[i / 4].at)[i % 4]));
#endif
}

// --- Warps, blocks and clusters that keep a row -------------------------------------------------

/// Reduces over teams of kTeam neighbors in a warp: all of a team get the result.
template <int kTeam, class Combine>
__device__ float reduce_team(float own, Combine combine) {
#pragma unroll
    for (int lanes = kTeam / 2; lanes > 0; lanes /= 2)
        own = combine(own, __shfl_xor_sync(~0u, own, lanes));
    return own;
}

constexpr int kKept = 8;           // pieces that a thread keeps
constexpr int kMostThreads = 512;  // of a block
constexpr size_t kMostBlockBytes = kMostThreads * kKept * 16;

/// How many threads, in whole warps, keep so many pieces.
constexpr unsigned int threads_for(size_t pieces, size_t per_thread) {
    return 32 * ((pieces + 32 * per_thread - 1) / (32 * per_thread));
}

constexpr unsigned int kMostBlocks = 8;  // of a cluster, on every GPU that has clusters
constexpr size_t kMostClusterBytes = kMostBlocks * kMostBlockBytes;

/// The cluster that a block belongs to. A single block before 9.0.
struct Cluster {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __device__ unsigned int size() const { return cooperative_groups::cluster_group::num_blocks(); }
    __device__ unsigned int rank() const { return cooperative_groups::cluster_group::block_rank(); }

    /// Merges the blocks' `known` by merge_warp(). All threads get the result. Once in a kernel.
    /// `nothing`: what is known of no elements.
    template <class Known>
    __device__ Known merge_all(Known known, Known nothing) const {
        if (size() == 1) return known;
        const auto cluster = cooperative_groups::this_cluster();
        __shared__ Known own;
        if (threadIdx.x == 0) own = known;
        cluster.sync();  // every block's is there
        // Each lane loads another block's.
        const unsigned int lane = threadIdx.x % 32;
        known = lane < size() ? *cluster.map_shared_rank(&own, lane) : nothing;
        cluster.sync();  // no block may exit while another still reads its shared memory
        return merge_warp(known);
    }
#else
    __device__ unsigned int size() const { return 1; }
    __device__ unsigned int rank() const { return 0; }
    template <class Known>
    __device__ Known merge_all(Known known, Known) const {
        return known;
    }
#endif
};

/// Whether by_cluster runs on this GPU. (A dry run cannot ask what was compiled for it.)
inline bool has_clusters(const demo::Gpu& gpu) {
    return gpu.clusters && (demo::dry_run || hopper::has_bulk_copies());
}

constexpr int kTwicePieces = 4;              // that a thread of by_cluster_twice keeps
constexpr unsigned int kTwiceThreads = 512;  // of its blocks, at most

/// How by_cluster_twice is launched. A row that fits one step of a block gets one block, of as many
/// warps as it fills. (Without clusters every row is one block's.)
template <class T>
demo::ClusterLaunch launch_by_cluster_twice(const Rows<T>& r, const demo::Gpu& gpu) {
    const size_t pieces = r.whole_pieces();
    if (pieces <= kTwicePieces * kTwiceThreads)
        return {r.rows, 1, threads_for(pieces, kTwicePieces), 0};
    return {r.rows, has_clusters(gpu) ? kMostBlocks : 1, kTwiceThreads, 0};
}

}  // namespace row_pieces
