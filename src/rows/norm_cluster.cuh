// Belongs to bonus_norm: by_cluster, which keeps a row in the registers of 2 to 8 blocks.
//
// Adds    a cluster of blocks, which reach each other's shared memory. Each warp sends its moments
//         straight to every block, and waits for all warps' moments, while copies go on. For a
//         cluster takes row after row, three at a time:
//
//             row                 is on its way to    by
//             this one            registers           take(), then its results leave
//             the next one        shared memory       one bulk copy for each warp: start()
//             the one after it    the L2 cache        one prefetch for each block: fetch()
//
//         Rows are drawn from a counter: fast clusters take more, and all read neighbors in memory
//         at nearly the same time, which memory does faster. Each block's share begins at an L2
//         line, since stores that begin within one are slower; what lies before the first line of
//         a row and after the last is single elements. Gamma and beta stay in shared memory.
// Costs   shared memory for x, gamma and beta (or residual), so that two blocks fit a
//         multiprocessor up to some 256 KiB a row, then one; a counter, which each launch leaves
//         at 0.
// Limits  8 blocks of 512 threads: rows of 512 KiB. Before 9.0 there are no clusters.
// Source  CUDA Programming Guide, "Thread Block Clusters", "Distributed Shared Memory" and
//         "Asynchronous Data Copies"; PTX ISA, "st.async" and "cp.async.bulk".
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "demo/launch.cuh"
#include "rows/norm_row.cuh"

namespace norms {

constexpr int kLine = 128;  // bytes, of the L2 cache

/// A warp's shared memory, so that it waits for no other. The next row's x arrives in `x`. (Copies
/// to addresses between lines take longer: so all begin at a line.)
template <class Op, class T, bool kAligned, int kPieces>
struct WarpMemory {
    // Unless rows are aligned to lines, their pieces begin up to a line apart, and gamma and beta
    // need more places.
    static constexpr int kPlaces = 32 * kPieces + (kAligned ? 0 : kLine / 16);
    alignas(kLine) Piece<T> x[kPlaces];
    KeptParameters<T, kAligned, kPlaces> gamma, other;  // beta, or the next row's residual
};

/// Merges the moments that warps have sent to shared memory. Each warp does so for itself. Counts
/// and squares were divided by the row's length before they were sent: so the row's count is 1, and
/// its squares are its variance (RMSNorm's mean square).
template <class Op>
__device__ Moments merge_sent(const float4* sent, unsigned int senders) {
    constexpr int kRounds = kMostBlocks * (kMostThreads / 32) / 32;  // of 32 senders, at most
    float4 own[kRounds];
    float mean = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
        const unsigned int sender = threadIdx.x % 32 + 32 * i;
        own[i] = sender < senders ? sent[sender] : float4{};
        mean += own[i].x * own[i].y;
    }
    mean = Op::kCenters ? sum_of_warp(mean) : 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
        const float away = own[i].y - mean;
        squares += own[i].z + own[i].x * away * away;
    }
    return {1, mean, sum_of_warp(squares)};
}

template <class Op, class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kMostThreads, 1) by_cluster(Arrays<T> a, unsigned int* drawn) {
    using Row = Kept<Op, T, kAligned, kPieces, kLine>;
    using Memory = WarpMemory<Op, T, kAligned, kPieces>;
    extern __shared__ __align__(kLine) unsigned char shared[];
    __shared__ hopper::Barrier full[2];                     // a row's moments have all arrived
    __shared__ hopper::Barrier arrived[kMostThreads / 32];  // a warp's part of the next row has
    const unsigned int blocks = Cluster().size(), rank = Cluster().rank();
    const unsigned int cluster = blockIdx.x / blocks, clusters = gridDim.x / blocks;
    const unsigned int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Memory& memory = reinterpret_cast<Memory*>(shared)[warp];
    // The moments that each warp of the cluster sends, for two rows in turn. Its first warp also
    // sends the number of the row after next.
    const unsigned int senders = blocks * warps;
    auto* const moments = reinterpret_cast<float4*>(shared + warps * sizeof(Memory));
    if (threadIdx.x < 2) hopper::mbarrier_init(&full[threadIdx.x], 1);
    if (lane == 0) hopper::mbarrier_init(&arrived[warp], 1);
    hopper::fence_mbarrier_init();
    hopper::barrier_cluster_sync();  // every block's barriers are ready

    T edge_of_x = T(0), edge_of_residual = T(0);  // of the next row
    auto start = [&](const Row& next) {           // to shared memory
        // The copy could overtake this lane's loads, which may still be queued: on an H200 it did.
        hopper::fence_proxy_async();
        __syncwarp();  // all lanes have taken what was in these places
        const unsigned int bytes = 16 * next.pieces_of_warp();
        if (lane == 0) {
            hopper::mbarrier_arrive_expect_tx(&arrived[warp], (Op::kAdds ? 2 : 1) * bytes);
            const uint64_t policy = ptx::createpolicy_evict_first();
            const size_t from = next.share.begin + size_t(next.first_piece) * Row::kSize;
            auto copy = [&](void* to, const T* matrix) {
                if (bytes > 0)
                    hopper::cp_async_bulk(to, matrix + from, bytes, &arrived[warp], policy);
            };
            copy(memory.x, a.x);
            if (Op::kAdds) copy(memory.other.pieces, a.residual);
        }
        if (!next.share.has_edge) return;
        edge_of_x = a.x[next.share.edge_at];
        if (Op::kAdds) edge_of_residual = a.residual[next.share.edge_at];
    };
    auto fetch = [&](size_t row) {  // to the L2 cache
        if (threadIdx.x > 0 || row >= a.rows) return;
        const typename Row::RowShare share(row, a.cols, 0, rank, blocks);
        share.fetch_with_edges(a.x, a.rows * a.cols);
        if (Op::kAdds) share.fetch_with_edges(a.residual, a.rows * a.cols);
    };
    auto take = [&](Row& kept) {  // to registers; zeros beyond the last piece
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            kept.pieces[i] = memory.x[lane + 32 * i];
            if (Op::kAdds)
                kept.pieces[i] = sum_of(kept.pieces[i], memory.other.pieces[lane + 32 * i]);
        }
        if (kept.pieces_of_warp() < 32 * kPieces) {  // beyond is an earlier row's, or nothing yet
#pragma unroll
            for (int i = 0; i < kPieces; ++i)
                if (!kept.has(0, i)) kept.pieces[i] = {};
        }
        kept.edge = edge_of_x;
        if (Op::kAdds) kept.edge = T(float(edge_of_x) + float(edge_of_residual));
    };

    // The first two rows of each cluster are fixed, the others drawn.
    size_t row = cluster, next = clusters + cluster;
    auto share_of = [&](size_t row) {
        return typename Row::RowShare(row, a.cols, threadIdx.x, rank, blocks);
    };
    const Row first(a, share_of(row), threadIdx.x);
    start(first);
    fetch(next);
    // Of a row whose pieces begin the earliest.
    const size_t earliest = first.share.column - first.behind();
#pragma unroll 4
    for (unsigned int place = lane; place < Memory::kPlaces; place += 32) {
        const size_t at = earliest + size_t(first.first_of_warp + place) * Row::kSize;
        memory.gamma.set(place, piece_at(a.gamma, at, a.cols));
        if (Op::kCenters) memory.other.set(place, piece_at(a.beta, at, a.cols));
    }
    __syncwarp();  // all lanes find what others have loaded
    // A thread's element at the edges is always in the same column. (The first and the last block
    // have some.)
    const size_t edge_column = rank == 0 ? threadIdx.x : a.cols - 1 - threadIdx.x;
    typename Row::EdgeParameters of_edge{};
    if (!kAligned && edge_column < a.cols) of_edge = Row::edge_parameters(a, edge_column);

    const float per_column = 1.0f / a.cols;
    for (unsigned int turn = 0; row < a.rows; ++turn) {
        Row kept(a, share_of(row), threadIdx.x);
        hopper::mbarrier_wait(&arrived[warp], turn % 2);  // this warp's part of the row is there
        take(kept);
        if (next < a.rows) start(Row(a, share_of(next), threadIdx.x));

        const unsigned int of_turn = turn % 2;
        unsigned int drawn_now = 0;
        if (threadIdx.x == 0) {
            // Moments that arrive before this count as well: the phase waits for this arrival.
            hopper::mbarrier_arrive_expect_tx(&full[of_turn], senders * sizeof moments[0]);
            // Its result arrives while moments are found. Each row draws once, and the last draw
            // sets the counter back to 0.
            if (rank == 0) drawn_now = atomicInc(drawn, a.rows - 1);
        }
        const Moments own = kept.moments();
        unsigned int after_next = 0;  // which the cluster's first warp knows
        if (threadIdx.x == 0 && rank == 0)
            after_next = min(2 * clusters + size_t(drawn_now), a.rows);
        after_next = __shfl_sync(~0u, after_next, 0);
        auto* const sent = moments + of_turn * senders;
        if (lane < blocks)  // lane b sends to block b, this one included
            hopper::st_async(&sent[rank * warps + warp],
                             {own.count * per_column, own.mean, own.squares * per_column,
                              __uint_as_float(after_next)},
                             &full[of_turn], lane);
        if (Op::kAdds) {  // the sums leave while moments travel
#pragma unroll
            for (int i = 0; i < kPieces; ++i) kept.store(a.sum, 0, i, kept.pieces[i]);
            if (kept.share.has_edge) a.sum[kept.share.edge_at] = kept.edge;
        }
        // A warp sends only after it has read the moments of the row before. So when this row's are
        // complete, all have read that row's, and the next row's may take their places. After the
        // last row nobody sends: a block may end.
        hopper::mbarrier_wait(&full[of_turn], turn / 2 % 2);
        const Moments whole = merge_sent<Op>(sent, senders);
        row = next, next = __float_as_uint(sent[0].w);
        fetch(next);
        if (kAligned) forget_unpacked(kept.pieces);  // else gamma and beta fill the registers
        kept.store_with(memory.gamma, memory.other, whole);
        kept.store_edge(whole, of_edge);
    }
}

// --- Launching it -------------------------------------------------------------------------------

/// Prepares the launch in clusters of that shape. `bytes`: of shared memory, for a block.
template <class Op, class T, bool kAligned, int kPieces>
std::function<void()> prepare_shape(const Arrays<T>& a, unsigned int blocks, unsigned int threads,
                                    size_t bytes, size_t l2_bytes) {
    const auto kernel = by_cluster<Op, T, kAligned, kPieces>;
    demo::allow_shared_bytes(kernel, bytes);
    auto at_once = [&] {
        return size_t(demo::ClusterLaunch(1, blocks, threads, bytes).at_once(kernel));
    };
    // Rows that are fetched ahead share the L2 cache with copies and stores. So a sixth of it must
    // hold a row for each cluster, unless there is only one block on a multiprocessor. Blocks that
    // ask for more shared memory than they need keep others away.
    const size_t row_bytes = (Op::kAdds ? 2 : 1) * a.row_bytes();
    const size_t most = std::max<size_t>(1, l2_bytes / 6 / row_bytes);
    constexpr size_t kMore = 4096;
    while (at_once() > most && demo::try_shared_bytes(kernel, bytes + kMore).empty())
        bytes += kMore;
    const auto drawn = std::make_shared<demo::Buffer<unsigned int>>(1);
    DEMO_CHECK(cudaMemset(drawn->data(), 0, drawn->bytes()));
    const demo::ClusterLaunch launch(std::min(at_once(), a.rows), blocks, threads, bytes);
    return [=] { launch(kernel, a, drawn->data()); };
}

/// Prepares the launch in the fastest clusters by a model, with one of those numbers of pieces.
template <class Op, class T, bool kAligned, int... kPieces>
std::function<void()> prepare_fastest(const Arrays<T>& a, size_t l2_bytes) {
    // Fitted to an NVIDIA H200. Fixed cost of a row, in pieces. Warps that saturate an SM. Penalty
    // for one block an SM.
    constexpr double kElse = 5, kBusy = 12.5, kAlone = 1.1;
    double least = INFINITY;
    std::function<std::function<void()>()> prepare_best;
    auto consider = [&]<int kEach>(std::integral_constant<int, kEach>) {
        const auto kernel = by_cluster<Op, T, kAligned, kEach>;
        for (unsigned int blocks = 2; blocks <= kMostBlocks; ++blocks) {
            const size_t most = Share<T, kAligned, kLine>::most_pieces(a.cols, blocks);
            // Each element at the edges needs a thread: nearly as many as a line has.
            const unsigned int threads =
                std::max(threads_for(most, kEach), unsigned(kLine / sizeof(T)));
            const unsigned int warps = threads / 32;
            const size_t bytes =
                warps * (sizeof(WarpMemory<Op, T, kAligned, kEach>) + 2 * blocks * sizeof(float4));
            if (threads > kMostThreads || !demo::try_shared_bytes(kernel, bytes).empty()) continue;
            const int clusters = demo::ClusterLaunch(1, blocks, threads, bytes).room(kernel);
            if (clusters == 0) continue;
            // While a multiprocessor works through all warps that it holds, each cluster finishes a
            // row. A single block can give the four schedulers unequal numbers of warps: waiting
            // for the fullest costs about half of what it could.
            const int together = demo::blocks_per_multiprocessor(kernel, threads, bytes);
            double busy = together * warps;
            if (together == 1) busy = kAlone * (warps + (warps + 3) / 4 * 4) / 2;
            const double time = (kElse + kEach) * std::max(busy, kBusy) / clusters;
            // The model errs by some percent: more blocks, or pieces, must promise more than that.
            if (time > 0.97 * least) continue;
            least = time;
            prepare_best = [=, &a] {
                return prepare_shape<Op, T, kAligned, kEach>(a, blocks, threads, bytes, l2_bytes);
            };
        }
    };
    (consider(std::integral_constant<int, kPieces>()), ...);
    if (!prepare_best)
        demo::fail(demo::kSkipped, "by_cluster: no cluster that could keep " +
                                       std::to_string(a.cols) +
                                       " columns has room here (--kernel can leave it out)");
    return prepare_best();
}

/// Prepares the launch, for rows of up to kMostClusterBytes.
template <class Op, class T>
std::function<void()> prepare_by_cluster(const Arrays<T>& a, size_t l2_bytes) {
    auto prepare = [&]<bool kAligned>(std::bool_constant<kAligned>) {
        // LayerNorm computes so much that lanes without pieces cost time.
        if constexpr (Op::kCenters)
            return prepare_fastest<Op, T, kAligned, 9, 10>(a, l2_bytes);
        else
            return prepare_fastest<Op, T, kAligned, kKept>(a, l2_bytes);
    };
    return a.row_bytes() % kLine == 0 ? prepare(std::true_type()) : prepare(std::false_type());
}

}  // namespace norms
