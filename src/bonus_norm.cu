// Bonus: LayerNorm, and residual + RMSNorm, of rows of any length: up to 512 KiB mostly at 92 to
// 100% of a copy's speed on an NVIDIA H200.
//
//     --op layernorm    out = (x - mean) / sqrt(variance + epsilon) * gamma + beta
//     --op rmsnorm      sum = x + residual,  out = sum / sqrt(mean of sum^2 + epsilon) * gamma
//
// The least traffic is two matrices for LayerNorm and four for RMSNorm, which also writes `sum`,
// the residual of the next layer. So a row stays in registers, as in bonus_softmax_rows. A rung is
// about how many threads keep it, and how these merge what each knows. Each that can keep a row
// runs:
//
//     rows of up to    rung               a row is kept in the registers of
//       8 KiB          by_warp            a warp (RMSNorm: 4 KiB)
//       64 KiB         by_block           up to 16 warps
//       512 KiB        by_cluster         2 to 8 blocks, a cluster
//       any length     by_cluster_twice   8 blocks; of what is beyond 256 KiB only the end: the
//                                         rest is loaded twice
//
// Do not compute a variance as the mean of squares minus the squared mean. Here rows lie around
// 100 or -100 with a variance of 1/3: the mean of squares is 10,000.33, where fp32 has steps of
// 0.001, and a sum of many such squares has larger ones.
// To read a row twice costs no traffic while it is in registers. So each warp finds its mean first,
// then the squares of the distances from it: its moments. Moments merge, as a softmax's maxima and
// sums do.
//
//     rows/row_pieces.cuh    pieces of 16 bytes, shares of a row, clusters: for softmax, too
//     rows/norm_row.cuh      a row in registers: its moments and results. All rungs use it
//     rows/norm_cluster.cuh  by_cluster
//
//     ./bonus_norm 16384        ./bonus_norm 16384 --op rmsnorm        (and --dtype fp32)
//     ./bonus_norm --rows 4096 --cols 131072
//
// What limits it: memory. LayerNorm on an H200 is limited by its instructions, too, where rows are
// not aligned; and beyond some 200 KiB by waiting for moments.
#include <algorithm>

#include "demo.cuh"
#include "demo/copy.cuh"
#include "rows/norm.cuh"
#include "rows/norm_cluster.cuh"
#include "rows/norm_row.cuh"

namespace norms {

// --- The two operations, plainly: tests hold the kernels to these -------------------------------

/// LayerNorm of a row on the CPU: x, gamma, beta and out are [cols].
inline void layernorm_on_cpu(const float* x, const float* gamma, const float* beta, float* out,
                             size_t cols, double epsilon) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < cols; ++c) mean += x[c] / double(cols);
    for (size_t c = 0; c < cols; ++c) variance += (x[c] - mean) * (x[c] - mean) / double(cols);
    const double scale = 1 / std::sqrt(variance + epsilon);
    for (size_t c = 0; c < cols; ++c) out[c] = float((x[c] - mean) * scale * gamma[c] + beta[c]);
}

/// RMSNorm of a row on the CPU: x, residual, gamma, sum and out are [cols].
inline void rmsnorm_on_cpu(const float* x, const float* residual, const float* gamma, float* sum,
                           float* out, size_t cols, double epsilon) {
    double square = 0;  // the mean of sum^2
    for (size_t c = 0; c < cols; ++c) sum[c] = x[c] + residual[c];
    for (size_t c = 0; c < cols; ++c) square += double(sum[c]) * sum[c] / double(cols);
    for (size_t c = 0; c < cols; ++c)
        out[c] = float(sum[c] / std::sqrt(square + epsilon) * gamma[c]);
}

// --- by_warp ------------------------------------------------------------------------------------
// Adds    a row stays in the registers of one warp, whose threads merge by shuffles. Where rows are
//         not aligned, a piece's 16 bytes of gamma and beta begin at any element: a block keeps
//         both in shared memory, for all of its rows.
// Costs   registers.
// Limits  pieces of 16 bytes that a thread can keep: 8 make rows of 4 KiB; in LayerNorm 16, of 8.
//         In a short row most lanes have nothing to do.
// Source  CUDA Programming Guide, "Warp Shuffle Functions".

template <class Op>
constexpr int kMostWarpPieces = Op::kCenters ? 16 : 8;  // of a thread
template <class Op>
constexpr size_t kMostWarpBytes = 32 * kMostWarpPieces<Op> * 16;
constexpr unsigned int kWarpThreads = 256;             // of a block
constexpr unsigned int kTogether = kWarpThreads / 32;  // rows of a block at a time

/// `turns`: how many rows a warp takes, one after the other.
template <class Op, class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kWarpThreads) by_warp(Arrays<T> a, unsigned int turns) {
    using Row = Kept<Op, T, kAligned, kPieces>;
    constexpr int kPlaces = kAligned ? 1 : 32 * kPieces + 1;
    __shared__ KeptParameters<T, kAligned, kPlaces> gamma, beta;
    if (!kAligned) {
        for (unsigned int i = threadIdx.x; i * Row::kSize < a.cols; i += kWarpThreads) {
            gamma.set(i, piece_at(a.gamma, i * Row::kSize, a.cols));
            if (Op::kCenters) beta.set(i, piece_at(a.beta, i * Row::kSize, a.cols));
        }
        __syncthreads();  // gamma and beta are there
    }
    size_t row = size_t(blockIdx.x) * turns * kTogether + threadIdx.x / 32;
    for (unsigned int turn = 0; turn < turns && row < a.rows; ++turn, row += kTogether) {
        Row kept(a, row, threadIdx.x % 32);
        kept.load_row();
        const Moments whole = kept.moments();
        kept.store_edge(whole);
        if (kAligned)
            kept.store_pieces(whole);
        else
            kept.store_with(gamma, beta, whole);
    }
}

/// Prepares the launch for rows of up to kMostWarpBytes, with as many pieces a thread as they need.
template <class Op, class T, bool kAligned>
std::function<void()> prepare_by_warp(const Arrays<T>& a) {
    const size_t pieces = a.whole_pieces();
    const auto kernel = pieces <= 4 * 32   ? by_warp<Op, T, kAligned, 4>
                        : pieces <= 8 * 32 ? by_warp<Op, T, kAligned, 8>
                                           : by_warp<Op, T, kAligned, kMostWarpPieces<Op>>;
    // Two rows a warp where that halves the loads of gamma and beta. More would leave launches
    // uneven.
    const unsigned int turns = Op::kCenters && !a.aligned() && pieces <= 8 * 32 ? 2 : 1;
    const size_t blocks = (a.rows + kTogether * turns - 1) / (kTogether * turns);
    return [=] { kernel<<<blocks, kWarpThreads>>>(a, turns); };
}
template <class Op, class T>
std::function<void()> prepare_by_warp(const Arrays<T>& a) {
    return a.aligned() ? prepare_by_warp<Op, T, true>(a) : prepare_by_warp<Op, T, false>(a);
}

// --- by_block -----------------------------------------------------------------------------------
// Adds    up to 16 warps keep a row together, and merge through shared memory.
// Costs   a barrier, at which memory idles, unless other blocks of the multiprocessor load
//         meanwhile.
// Limits  the registers of 512 threads, 64 KiB.
// Source  CUDA Programming Guide, "Shared Memory".

constexpr int kFew = kKept / 2;  // pieces of a thread, as long as a block can have enough threads

/// How many blocks of 512 threads with so few pieces must fit a multiprocessor. Three leave a
/// thread 40 registers: too few for fp16 that is not aligned, and in the code for 8.0 and 10.0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <class T, bool kAligned>
constexpr int kBlocksOfFew = kAligned || sizeof(T) == 4 ? 3 : 2;
#else
template <class T, bool kAligned>
constexpr int kBlocksOfFew = 2;
#endif

template <class Op, class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kMostThreads, kPieces == kFew ? kBlocksOfFew<T, kAligned> : 2)
    by_block(Arrays<T> a) {
    Kept<Op, T, kAligned, kPieces> kept(a, blockIdx.x, threadIdx.x);
    kept.load_row();
    kept.store_row(merge_block(kept.moments()));
}

/// Prepares the launch for rows of up to kMostBlockBytes.
template <class Op, class T, bool kAligned>
std::function<void()> prepare_by_block(const Arrays<T>& a) {
    const bool few = a.whole_pieces() <= kFew * kMostThreads;
    const auto kernel = few ? by_block<Op, T, kAligned, kFew> : by_block<Op, T, kAligned, kKept>;
    const unsigned int threads = threads_for(a.whole_pieces(), few ? kFew : kKept);
    return [=] { kernel<<<a.rows, threads>>>(a); };
}
template <class Op, class T>
std::function<void()> prepare_by_block(const Arrays<T>& a) {
    return a.aligned() ? prepare_by_block<Op, T, true>(a) : prepare_by_block<Op, T, false>(a);
}

// --- by_cluster: rows/norm_cluster.cuh ----------------------------------------------------------

// --- by_cluster_twice ---------------------------------------------------------------------------
// Adds    rows of any length. Of a long row a block keeps only the last step's pieces.
// Costs   the others are loaded again, x or RMSNorm's sums, perhaps from the L2 cache.
// Limits  that traffic. A row of up to 32 KiB gets one block, not 8 (launch_by_cluster_twice), and
//         without clusters each row does.
// Source  Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
//         Variances", 1979: merge(), step by step.

template <class Op, class T>
__global__ void __launch_bounds__(kTwiceThreads, 2) by_cluster_twice(Arrays<T> a) {
    const Cluster cluster;
    Kept<Op, T, false, kTwicePieces> kept(a, blockIdx.x / cluster.size(), threadIdx.x,
                                          cluster.rank(), cluster.size());
    constexpr unsigned int kBlockPieces = kTwicePieces * kTwiceThreads;
    kept.load_row();
    Moments own = kept.moments();
    unsigned int p = 0;
    while (p + kBlockPieces < kept.share.pieces) {
        kept.load_pieces(p += kBlockPieces);
        own = merge(own, kept.moments(p, false));
    }
    // merge_block() has a barrier of the block, merge_all() two of the cluster.
    const Moments whole = cluster.merge_all(merge_block(own), Moments{});
    kept.store_edge(whole), kept.store_pieces(whole, p);
    while (p > 0) {  // backward: the latest pieces are the likeliest to be in the cache
        kept.load_from(Op::kAdds ? a.sum : a.x, p -= kBlockPieces);
        kept.store_pieces(whole, p);
    }
}

/// Prepares the launch, for rows of any length.
template <class Op, class T>
std::function<void()> prepare_by_cluster_twice(Arrays<T> a, const demo::Gpu& gpu) {
    return [=, launch = launch_by_cluster_twice(a, gpu)] { launch(by_cluster_twice<Op, T>, a); };
}

// --- Running them -------------------------------------------------------------------------------

/// check_of(merges): how to verify a kernel that merges moments so many times.
template <class Op, class T, class CheckOf>
void run_all(demo::Session& session, const Arrays<T>& a, demo::Workload work, CheckOf check_of) {
    const demo::Gpu& gpu = session.gpu;
    // Why a rung that keeps rows of up to `most` bytes cannot run. --describe looks for no GPU and
    // lists what not every GPU can run: there the length is no reason.
    auto why_not = [&](size_t most) -> std::string {
        if (16 * a.whole_pieces() <= most || gpu.arch.empty()) return "";
        return "keeps rows of up to " + std::to_string(most) + " bytes";
    };
    auto rung = [&](const char* name, auto prepare, int merges, const std::string& reason,
                    size_t more = 0) {
        return demo::Contender{.kernel = name,
                               .setup = [=](demo::Contender& self) { self.launch = prepare(a); },
                               .check = check_of(merges),
                               .moved_bytes = work.least_bytes + more,
                               .why_not = reason};
    };
    const size_t kept = 16 * kTwicePieces * kTwiceThreads * (has_clusters(gpu) ? kMostBlocks : 1);
    auto prepare_cluster = [&gpu](const Arrays<T>& a) {
        return prepare_by_cluster<Op>(a, gpu.l2_bytes);
    };
    auto prepare_any_length = [&gpu](const auto& a) {
        return prepare_by_cluster_twice<Op>(a, gpu);
    };
    session.run(work, check_of(1),
                {rung("by_warp", prepare_by_warp<Op, T>, 1, why_not(kMostWarpBytes<Op>)),
                 rung("by_block", prepare_by_block<Op, T>, 2, why_not(kMostBlockBytes)),
                 rung("by_cluster", prepare_cluster, 3,
                      !has_clusters(gpu) ? "needs clusters (sm_90)"
                      : a.rows >> 32     ? "numbers rows in 32 bits"
                                         : why_not(kMostClusterBytes)),
                 rung("by_cluster_twice", prepare_any_length, 3, "",
                      a.rows * (a.row_bytes() - std::min(a.row_bytes(), kept))),
                 demo::copy_contender(session, work)});
}

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const std::vector<size_t> columns{shape.cols};
    const float epsilon = session.parameter("epsilon", 0.5e-5f, 2e-5f);
    if (session.options.choice("--op") == "layernorm") {
        // Even rows are around 100, odd ones around -100: a variance found by squares is wrong.
        const demo::Input<T> x(session, "x", shape,
                               {.then = demo::Then::kOffsetRows, .hard = demo::kHardRows<T>});
        const demo::Input<T> gamma(session, "gamma", columns), beta(session, "beta", columns);
        const demo::Output<T> out(session, "out", shape);
        const demo::NormReference<T> reference(
            session, {x, nullptr, gamma, beta, shape.cols, epsilon}, shape.rows);
        const Arrays<T> a{{x, out, shape.rows, shape.cols}, gamma, beta, nullptr, nullptr, epsilon};
        run_all<LayerNorm>(session, a, shape.workload(session, 7),
                           [&](int merges) { return reference.check(out, merges); });
    } else {
        // So small that epsilon is 0.4% of the mean square.
        const demo::Fill small{.scale = 1.0f / 16, .hard = demo::kHardRows<T>};
        const demo::Input<T> x(session, "x", shape, small),
            residual(session, "residual", shape, small);
        const demo::Input<T> gamma(session, "gamma", columns);
        const demo::Output<T> out(session, "out", shape), sum(session, "sum", shape);
        const demo::NormReference<T> reference(
            session, {x, residual, gamma, nullptr, shape.cols, epsilon}, shape.rows);
        const Arrays<T> a{{x, out, shape.rows, shape.cols}, gamma, nullptr, residual, sum, epsilon};
        demo::Workload work = shape.workload(session, 5);
        work.shape = "rmsnorm" + (shape.square ? "" : work.shape);
        run_all<RmsNorm>(session, a, work,
                         [&](int merges) { return reference.check(sum, out, merges); });
    }
}

}  // namespace norms

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_norm",
        .summary = "LayerNorm, residual + RMSNorm at a copy's speed: by warp, block, cluster",
        .types = {{"fp16", norms::run<half>}, {"fp32", norms::run<float>}},
        .any_shape = true,
        .options = {{.name = "--op",
                     .help = "what to compute",
                     .choices = {"layernorm", "rmsnorm"}}},
        .sizes = {4096, 8192, 16384},
        .shapes = {{4096, 131072}, {8192, 50257}},
        .variants = {"16384 --op rmsnorm"}};
    return demo::main_of(program, argc, argv);
}
