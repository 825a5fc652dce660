// Bonus: LayerNorm, and residual + RMSNorm, of rows of any length: up to 512 KiB mostly at 92 to
// 100% of a copy's speed on an NVIDIA H200.
//
//     --op layernorm    out = (x - mean) / sqrt(variance + epsilon) * gamma + beta
//     --op rmsnorm      sum = x + residual,  out = sum / sqrt(mean of sum^2 + epsilon) * gamma
//
// The least traffic is two matrices for LayerNorm and four for RMSNorm, which also writes `sum`,
// the residual of the next layer. That takes a row that stays in registers, as in
// bonus_softmax_rows. Every rung that can keep a row runs:
//
//     rows of up to    rung               a row is kept in the registers of
//       8 KiB          by_warp            a warp (RMSNorm: 4 KiB)
//       64 KiB         by_block           up to 16 warps
//       512 KiB        by_cluster         2 to 8 blocks, a cluster
//       any length     by_cluster_twice   8 blocks, but of each share only the end: the rest is
//                                         loaded twice
//
// Do not compute a variance as the mean of squares minus the squared mean. Here rows lie around
// 100 or -100 with a variance of 1/3: the mean of squares is 10,000.33, where fp32 has steps of
// 0.001, and each addition to their sum rounds as coarsely.
// To read a row twice costs no traffic while it is in registers. So each warp finds its mean first,
// then the squares of the distances from it: its moments. LayerNorm's are summed by the tensor
// cores in fp16. Moments merge, as a softmax's maxima and sums do.
//
//     ./bonus_norm 16384        ./bonus_norm 16384 --op rmsnorm        (and --dtype fp32)
//     ./bonus_norm --rows 4096 --cols 131072
//
// What limits it: memory; LayerNorm, where memory is as fast as an H200's, also the instructions,
// above all for gamma and beta where rows are not aligned, and beyond 288 KiB waiting for moments.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "demo.cuh"
#include "demo/copy.cuh"
#include "rows/norm.cuh"
#include "rows/row_pieces.cuh"

namespace norms {

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

using namespace row_pieces;

// --- Two operations -----------------------------------------------------------------------------

struct LayerNorm {
    static constexpr bool kCenters = true, kAdds = false;
};
struct RmsNorm {
    static constexpr bool kCenters = false, kAdds = true;  // around 0; x + residual
};

template <class T>
struct Arrays : Rows<T> {
    const T *gamma, *beta;  // [cols]; beta: LayerNorm's
    const T* residual;      // [rows, cols] like sum: RMSNorm's
    T* sum;
    float epsilon;

    /// In how many ways rows begin relative to 16 bytes. Row r is of group r % groups(). Rows of a
    /// group begin equally far from a multiple of 16 bytes, and share cut pieces of gamma and beta.
    unsigned int groups() const {
        const size_t size = Piece<T>::kSize;
        return size / std::gcd(this->cols, size);
    }
};

// --- Moments ------------------------------------------------------------------------------------

/// Some elements of a row: how many, their mean, and the sum of their squared distances from it.
/// RMSNorm's distances are from 0: its mean is 0.
struct Moments {
    float count = 0, mean = 0, squares = 0;
};

/// The rule: around the common mean, a set's squares are larger by count (mean - common)^2; for
/// both sets together that is away^2 a.count b.count / count.
__device__ inline Moments merge(Moments a, Moments b) {
    const float count = a.count + b.count, away = b.mean - a.mean;
    if (count == 0) return a;
    const float share = b.count / count;
    return {count, a.mean + away * share, a.squares + b.squares + away * (a.count * share) * away};
}

__device__ inline float sum_of_warp(float own) {
    return reduce_team<32>(own, [](float a, float b) { return a + b; });
}

/// Merges the moments of a warp's threads: the common mean first, then all squares seen from there.
__device__ inline Moments merge_warp(Moments own) {
    const float count = sum_of_warp(own.count), sum = sum_of_warp(own.count * own.mean);
    const float mean = count > 0 ? sum / count : 0, away = own.mean - mean;
    return {count, mean, sum_of_warp(own.squares + own.count * away * away)};
}

/// Merges the moments of a block's warps. All threads get the result.
__device__ inline Moments merge_block(Moments of_warp) {
    __shared__ Moments all[32];
    const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) all[warp] = of_warp;
    __syncthreads();  // every warp's moments are there
    return merge_warp(lane < blockDim.x / 32 ? all[lane] : Moments{});
}

/// Merges the moments that warps have sent to shared memory, kRounds for each lane. Each warp does
/// so for itself. Counts and squares were divided by the row's length before they were sent: so the
/// row's count is 1, and its squares are its variance (RMSNorm's mean square). All counts have the
/// rounding error of 1 / cols. A weighted sum of means would have it, too; so only distances from
/// the first mean are summed.
template <class Op, int kRounds>
__device__ Moments merge_rounds(const float4* sent, unsigned int senders) {
    float4 own[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
        const unsigned int sender = threadIdx.x % 32 + 32 * i;
        own[i] = sender < senders ? sent[sender] : float4{};
    }
    float mean = 0;
    if (Op::kCenters) {
        const int first = __ffs(__ballot_sync(~0u, own[0].x > 0)) - 1;  // of the first 32 one has
        mean = __shfl_sync(~0u, own[0].y, first);                       // elements, in every row
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kRounds; ++i) sum += own[i].x * (own[i].y - mean);
        mean += sum_of_warp(sum);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
        const float away = own[i].y - mean;
        squares += own[i].z + own[i].x * away * away;
    }
    return {1, mean, sum_of_warp(squares)};
}
template <class Op>
__device__ Moments merge_sent(const float4* sent, unsigned int senders) {
    constexpr int kMostRounds = kMostBlocks * (kMostThreads / 32) / 32;
    return senders <= 32 ? merge_rounds<Op, 1>(sent, senders)
                         : merge_rounds<Op, kMostRounds>(sent, senders);
}

// --- What a thread keeps ------------------------------------------------------------------------

/// 16 bytes of gamma or beta, an array of `cols`, from number `at` on; zeros if not `wanted`. Where
/// rows are not aligned, `at` is `shift` past a multiple of 16 bytes: then the 32 bytes around are
/// loaded, and these 16 cut out.
template <bool kAligned, class T>
__device__ Piece<T> parameters(const T* array, size_t at, unsigned int shift, size_t cols,
                               bool wanted) {
    constexpr int kSize = Piece<T>::kSize;
    // In whole registers: between two pieces of fp16 the compiler would choose number by number.
    uint4 low{}, high{};
    if (kAligned) {
        if (wanted) low = reinterpret_cast<const uint4&>(array[at]);
        return reinterpret_cast<const Piece<T>&>(low);
    }
    const size_t begin = at - shift;
    const auto* const around = reinterpret_cast<const uint4*>(array + begin);
    if (wanted) low = around[0];
    if (begin + 2 * kSize <= cols) {
        if (wanted) high = around[shift > 0];
    } else if (wanted) {  // the array ends within it: one by one
        Piece<T> rest{};
        for (int j = 0; j < kSize; ++j)
            if (j < int(shift)) rest.at[j] = array[begin + kSize + j];
        high = reinterpret_cast<const uint4&>(rest);
    }
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const unsigned int bytes = shift * sizeof(T);
    // Down by 8, 4 and 2 bytes, where `bytes` has that bit.
    for (int i = 0; i < 6; ++i) w[i] = bytes & 8 ? w[i + 2] : w[i];
    for (int i = 0; i < 5; ++i) w[i] = bytes & 4 ? w[i + 1] : w[i];
    if (sizeof(T) == 2)
        for (int i = 0; i < 4; ++i)
            w[i] = uint32_t((uint64_t(w[i + 1]) << 32 | w[i]) >> bytes % 4 * 8);
    const uint4 cut{w[0], w[1], w[2], w[3]};
    return reinterpret_cast<const Piece<T>&>(cut);
}

/// The 16 bytes of an array of `cols` at a multiple of 16 bytes; zeros behind its end.
template <class T>
__device__ Piece<T> piece_at(const T* array, size_t at, size_t cols) {
    Piece<T> piece{};
    if (at + Piece<T>::kSize <= cols) return reinterpret_cast<const Piece<T>&>(array[at]);
    for (unsigned int j = 0; j < Piece<T>::kSize; ++j)
        if (at + j < cols) piece.at[j] = array[at + j];
    return piece;
}

/// a + b, rounded to T. fp16 in pairs, which are one instruction.
template <class T>
__device__ Piece<T> sum_of(Piece<T> a, const Piece<T>& b) {
    if constexpr (std::is_same_v<T, half>) {
        for (int i = 0; i < 4; ++i) {
            auto& pair = reinterpret_cast<half2*>(a.at)[i];
            pair = __hadd2(pair, reinterpret_cast<const half2*>(b.at)[i]);
        }
    } else {
        for (int i = 0; i < Piece<T>::kSize; ++i) a.at[i] += b.at[i];
    }
    return a;
}

/// A thread's pieces of a row, or of a share of it, and perhaps an element at the edges. A warp's
/// pieces are neighbors, and a thread has every 32nd. kUnit: Share's.
template <class Op, class T, bool kAligned, int kPieces, int kUnit = 16>
struct Kept {
    using RowShare = Share<T, kAligned, kUnit>;
    const Arrays<T>& a;
    const RowShare share;
    const unsigned int first_of_warp;  // number of a piece within the share
    const unsigned int first_piece;    // the same of this thread's first one
    const int left;                    // pieces of the share from there on
    Piece<T> pieces[kPieces];
    T edge;

    __device__ Kept(const Arrays<T>& a, const RowShare& share, unsigned int thread)
        : a(a),
          share(share),
          first_of_warp(thread / 32 * (32 * kPieces)),
          first_piece(first_of_warp + thread % 32),
          left(int(share.pieces) - int(first_piece)) {}
    __device__ Kept(const Arrays<T>& a, size_t row, unsigned int thread, unsigned int rank = 0,
                    unsigned int shares = 1)
        : Kept(a, RowShare(row, a.cols, thread, rank, shares), thread) {}

    /// How many pieces this warp has, of at most 32 kPieces. `p`: where in the share they begin.
    __device__ unsigned int pieces_of_warp(unsigned int p = 0) const {
        const unsigned int begin = p + first_of_warp;
        return begin < share.pieces ? min(share.pieces - begin, 32u * kPieces) : 0;
    }
    /// Whether this thread has an i-th one.
    __device__ bool has(unsigned int p, int i) const { return int(p) + 32 * i < left; }
    /// Where in one of the matrices this thread's pieces are, from number p on: every 32nd.
    template <class Element>
    __device__ auto* pieces_of(Element* matrix, unsigned int p = 0) const {
        using To = std::conditional_t<std::is_const_v<Element>, const Piece<T>, Piece<T>>;
        return reinterpret_cast<To*>(matrix + share.begin) + (p + first_piece);
    }
    /// Stores the i-th, if this thread has one. What it stores is computed in any case: a branch
    /// around it would cost more.
    __device__ void store(T* matrix, unsigned int p, int i, const Piece<T>& piece) const {
        ptx::st_global_cs_if(has(p, i), pieces_of(matrix, p) + 32 * i, piece);
    }

    /// Loads the pieces from number p on. RMSNorm's are sums, which are stored at once.
    __device__ void load_pieces(unsigned int p = 0) {
        if constexpr (!Op::kAdds) return load_from(a.x, p);
        constexpr int kBatch = 2;  // pieces: all at once would need as many registers again
        static_assert(kPieces % kBatch == 0);
#pragma unroll
        for (int done = 0; done < kPieces; done += kBatch) {
            Piece<T> x[kBatch], residual[kBatch];
            const unsigned int at = p + first_piece + 32 * done;
            load(x, a.x + share.begin, at, 32, share.pieces, T(0));
            load(residual, a.residual + share.begin, at, 32, share.pieces, T(0));
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                pieces[done + i] = sum_of(x[i], residual[i]);
                store(a.sum, p, done + i, pieces[done + i]);
            }
        }
    }
    __device__ void load_from(const T* x, unsigned int p) {
        load(pieces, x + share.begin, p + first_piece, 32, share.pieces, T(0));
    }
    __device__ void load_edge() {
        edge = T(0);
        if (!share.has_edge) return;
        edge = a.x[share.edge_at];
        if (Op::kAdds)
            a.sum[share.edge_at] = edge = T(float(edge) + float(a.residual[share.edge_at]));
    }

    /// by_cluster loads a row in two steps. First one thread of each warp starts a copy of the
    /// warp's pieces to shared memory; then each thread takes its own from there, and zeros beyond.
    __device__ void copy_to(void* to, const T* matrix, hopper::Barrier* arrived) const {
        if (const unsigned int count = pieces_of_warp())
            hopper::cp_async_bulk(to, pieces_of(matrix), 16 * count, arrived,
                                  ptx::createpolicy_evict_first());
    }
    template <class X, class Residual>
    __device__ void take(X x, Residual residual, T edge_of_x, T edge_of_residual) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            pieces[i] = x(i);
            if (Op::kAdds) pieces[i] = sum_of(pieces[i], residual(i));
        }
        if (pieces_of_warp() < 32 * kPieces) {  // beyond is an earlier row's, or nothing yet
#pragma unroll
            for (int i = 0; i < kPieces; ++i)
                if (!has(0, i)) pieces[i] = {};
        }
        edge = edge_of_x;
        if (Op::kAdds) edge = T(float(edge) + float(edge_of_residual));
    }
    /// RMSNorm's sums of a row that was taken.
    __device__ void store_sums() const {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) store(a.sum, 0, i, pieces[i]);
        if (share.has_edge) a.sum[share.edge_at] = edge;
    }

    /// The sum of all pieces of the warp's threads, and of `last` of each. (A missing piece is 0.)
    /// In fp16 by the tensor cores, which sum in fp32: one piece of each thread makes a matrix of
    /// 16 rows, and its product with a matrix of ones holds the rows' sums in each column.
    __device__ float sum_of_pieces(T last) const {
        if constexpr (std::is_same_v<T, half>) {
            constexpr uint32_t kOnes = 0x3c003c00;  // two in fp16
            float sums[4] = {};                     // of rows lane / 4 and, from [2] on, 8 + that
            auto add = [&](const Piece<T>& piece) {
                ptx::mma_m16n8k16(sums, reinterpret_cast<const uint32_t(&)[4]>(piece), kOnes,
                                  kOnes);
            };
#pragma unroll
            for (int i = 0; i < kPieces; ++i) add(pieces[i]);
            if (!kAligned) add({last});
            float sum = sums[0] + sums[2];
            for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
            return sum;
        } else {
            float sum = last, values[Piece<T>::kSize];
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                unpack(pieces[i], values);
                float of_piece = 0;
                for (float value : values) of_piece += value;
                sum += of_piece;
            }
            return sum_of_warp(sum);
        }
    }

    /// This thread's share of the sum of all pieces' squared distances from `center`. For LayerNorm
    /// in fp16 by the tensor cores, again: one piece of each thread makes a matrix D [16, 16] of
    /// distances, and the trace of D D^T is the sum of their squares. D has half of each distance,
    /// since a whole one can be too large for fp16; and 0 for a missing piece.
    __device__ float squares_of_pieces(unsigned int p, T center) {
        float squares = 0;
        if constexpr (std::is_same_v<T, half> && Op::kCenters) {
            if (pieces_of_warp(p) < 32 * kPieces) {
#pragma unroll
                for (int i = 0; i < kPieces; ++i)
                    if (!has(p, i))
                        for (T& value : pieces[i].at) value = center;
            }
            const half2 one_half = __float2half2_rn(0.5f);
            const half2 minus_half_center = __float2half2_rn(-0.5f * float(center));
            float low[4] = {}, high[4] = {};  // columns 0 to 7 and 8 to 15 of the sum of D D^T
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                Piece<T> piece = pieces[i];
                for (int j = 0; j < 4; ++j) {
                    auto& pair = reinterpret_cast<half2*>(piece.at)[j];
                    pair = __hfma2(pair, one_half, minus_half_center);
                }
                const auto& d = reinterpret_cast<const uint32_t(&)[4]>(piece);
                ptx::mma_m16n8k16(low, d, d[0], d[2]);
                ptx::mma_m16n8k16(high, d, d[1], d[3]);
            }
            // Which of this thread's two neighbors in a row is on the diagonal, if any.
            const int lane = threadIdx.x % 32, of_pair = lane / 4 - lane % 4 * 2;
            if (of_pair == 0) squares = low[0] + high[2];
            if (of_pair == 1) squares = low[1] + high[3];
            return 4 * squares;
        } else {
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                float values[Piece<T>::kSize], of_piece = 0;
                unpack(pieces[i], values);
                for (float value : values) {
                    const float away = value - float(center);
                    of_piece += away * away;
                }
                if (has(p, i)) squares += of_piece;
            }
            return squares;
        }
    }

    /// The moments of all pieces of the warp's threads, and if `with_edge` of their edges.
    __device__ Moments moments(unsigned int p = 0, bool with_edge = true) {
        with_edge = with_edge && share.has_edge;
        float count = pieces_of_warp(p) * Piece<T>::kSize;
        if (!kAligned) count += __popc(__ballot_sync(~0u, with_edge));
        float mean = 0;
        if (Op::kCenters) mean = sum_of_pieces(with_edge ? edge : T(0)) / max(count, 1.0f);
        // In fp16, distances from the rounded mean are exact, or nearly so. Around the mean itself
        // the sum of squares is smaller, by count * off^2.
        const T center = T(mean);
        float squares = squares_of_pieces(p, center);
        if (with_edge) squares += (float(edge) - float(center)) * (float(edge) - float(center));
        const float off = mean - float(center);
        return {count, mean, max(sum_of_warp(squares) - count * off * off, 0.0f)};
    }

    /// How far gamma and beta of the pieces are from a multiple of 16 bytes, in elements.
    __device__ unsigned int shift() const { return share.column % Piece<T>::kSize; }

    /// Gamma or beta, whichever `array` is, of a piece of the share.
    __device__ Piece<T> parameters_at(const T* array, size_t piece, bool wanted = true) const {
        return parameters<kAligned>(array, share.column + piece * Piece<T>::kSize, shift(), a.cols,
                                    wanted);
    }

    /// How many columns after the earliest possible one this row's pieces begin.
    __device__ unsigned int behind() const {
        return kAligned ? 0 : share.column % RowShare::kUnitElements;
    }
    /// Gamma or beta of the i-th piece of a row that begins the earliest; zeros beyond the last.
    __device__ Piece<T> earliest_parameters_of(const T* array, int i) const {
        const size_t column =
            share.column - behind() + size_t(first_piece + 32 * i) * Piece<T>::kSize;
        return piece_at(array, column, a.cols);
    }

    /// Gamma or beta of the i-th piece; zeros if there is none.
    __device__ Piece<T> parameters_of(const T* array, unsigned int p, int i) const {
        return parameters_at(array, size_t(p + first_piece) + 32 * i, has(p, i));
    }

    /// Stores the results of the pieces, given the moments of the whole row. gamma(i, to), beta(i,
    /// to): get the i-th piece's, in fp32.
    template <class Gamma, class Beta>
    __device__ void store_pieces(Moments whole, unsigned int p, Gamma gamma, Beta beta) {
        // (x - mean) scale = x scale + offset
        const float scale = scale_of(whole), offset = Op::kCenters ? -whole.mean * scale : 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            float values[Piece<T>::kSize], with[Piece<T>::kSize];
            gamma(i, with), unpack(pieces[i], values);
            for (int j = 0; j < Piece<T>::kSize; ++j)
                values[j] = (values[j] * scale + offset) * with[j];
            if (Op::kCenters) {
                beta(i, with);
                for (int j = 0; j < Piece<T>::kSize; ++j) values[j] += with[j];
            }
            store(a.out, p, i, pack<T>(values));
        }
    }
    __device__ void store_pieces(Moments whole, unsigned int p = 0) {
        store_pieces(
            whole, p, [&](int i, auto& to) { unpack(parameters_of(a.gamma, p, i), to); },
            [&](int i, auto& to) { unpack(parameters_of(a.beta, p, i), to); });
    }

    /// Gamma and beta of the edge.
    struct EdgeParameters {
        T gamma, beta;
    };
    __device__ static EdgeParameters edge_parameters(const Arrays<T>& a, size_t column) {
        return {a.gamma[column], Op::kCenters ? a.beta[column] : T(0)};
    }
    __device__ EdgeParameters edge_parameters() const {
        if (!share.has_edge) return {};
        return edge_parameters(a, share.edge_at - share.begin + share.column);
    }
    __device__ void store_edge(Moments whole, EdgeParameters with) const {
        if (!share.has_edge) return;
        a.out[share.edge_at] =
            T((float(edge) - whole.mean) * scale_of(whole) * float(with.gamma) + float(with.beta));
    }

    __device__ void load_row() { load_pieces(), load_edge(); }
    __device__ void store_row(Moments whole) {
        store_edge(whole, edge_parameters()), store_pieces(whole);
    }

  private:
    __device__ float scale_of(Moments whole) const {
        return rsqrtf(whole.squares / whole.count + a.epsilon);
    }
};

// --- by_warp ------------------------------------------------------------------------------------
// Adds: a row stays in the registers of one warp, whose threads merge by shuffles. Where rows are
// not aligned, those of a block begin equally far from a multiple of 16 bytes, so that gamma and
// beta are cut out once for all of them; warps of LayerNorm then take up to two rows in turn.
// Costs: registers. Limits: 8 pieces of 16 bytes a thread, so rows of 4 KiB, in LayerNorm 16, of 8;
// in a short row most lanes have nothing to do.
// Source: CUDA Programming Guide, "Warp Shuffle Functions".

template <class Op>
constexpr int kMostWarpPieces = Op::kCenters ? 16 : 8;  // of a thread
template <class Op>
constexpr size_t kMostWarpBytes = 32 * kMostWarpPieces<Op> * 16;
constexpr unsigned int kWarpThreads = 256;             // of a block
constexpr unsigned int kTogether = kWarpThreads / 32;  // rows of a block at a time

/// `turns`: how many rows a warp takes, one after the other.
template <class Op, class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kWarpThreads)
    by_warp(Arrays<T> a, unsigned int groups, unsigned int turns) {
    using Row = Kept<Op, T, kAligned, kPieces>;
    constexpr int kPlaces = kAligned ? 1 : 32 * kPieces;
    __shared__ Piece<T> gamma[kPlaces], beta[Op::kCenters ? kPlaces : 1];
    const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t before = blockIdx.x / groups * turns * kTogether;  // rows of the group
    size_t row = (before + warp) * groups + blockIdx.x % groups;
    const Row first(a, row, lane);
    if (!kAligned) {
        for (unsigned int i = threadIdx.x; i < first.share.pieces; i += kWarpThreads) {
            gamma[i] = first.parameters_at(a.gamma, i);
            if (Op::kCenters) beta[i] = first.parameters_at(a.beta, i);
        }
        __syncthreads();  // gamma and beta are there
    }
    const auto of_edge = first.edge_parameters();  // in the same column of all these rows
    for (unsigned int turn = 0; turn < turns && row < a.rows; ++turn, row += kTogether * groups) {
        Row kept(a, row, lane);
        kept.load_row();
        const Moments whole = kept.moments();
        kept.store_edge(whole, of_edge);
        auto get = [&](const T* array, const Piece<T>* cut, int i, auto& to) {
            unpack(kAligned ? kept.parameters_of(array, 0, i) : cut[lane + 32 * i], to);
        };
        kept.store_pieces(
            whole, 0, [&](int i, auto& to) { get(a.gamma, gamma, i, to); },
            [&](int i, auto& to) { get(a.beta, beta, i, to); });
    }
}

/// The same for as many pieces a thread as a row needs.
template <class Op, class T, bool kAligned>
auto by_warp_for(size_t pieces) {
    if (pieces <= 4 * 32) return by_warp<Op, T, kAligned, 4>;
    if (pieces <= 8 * 32) return by_warp<Op, T, kAligned, 8>;
    return by_warp<Op, T, kAligned, kMostWarpPieces<Op>>;
}

/// Prepares the launch for rows of up to kMostWarpBytes.
template <class Op, class T>
std::function<void()> prepare_by_warp(Arrays<T> a) {
    const size_t pieces = a.whole_pieces();
    const auto kernel =
        a.aligned() ? by_warp_for<Op, T, true>(pieces) : by_warp_for<Op, T, false>(pieces);
    // Two where it pays to cut out for twice as many rows. More would leave launches uneven.
    const unsigned int turns = Op::kCenters && !a.aligned() && pieces <= 8 * 32 ? 2 : 1;
    const unsigned int groups = a.groups();
    const size_t together = groups * kTogether * turns, rounds = (a.rows + together - 1) / together;
    return [=] { kernel<<<rounds * groups, kWarpThreads>>>(a, groups, turns); };
}

// --- by_block -----------------------------------------------------------------------------------
// Adds: up to 16 warps keep a row together, and merge through shared memory.
// Costs: a barrier, at which memory idles, unless other blocks of the multiprocessor load
// meanwhile. Limits: the registers of 512 threads, 64 KiB.
// Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances", 1979, for the merge.

constexpr int kFew = kKept / 2;  // pieces of a thread, as long as a block can have enough threads

/// How many blocks of 512 threads with so few pieces must fit a multiprocessor.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int kBlocksOfFew = 3;  // then a thread has at most 40 registers
#else
constexpr int kBlocksOfFew = 2;  // the code for 8.0 and 10.0 would spill, if three had to
#endif

template <class Op, class T, bool kAligned, int kPieces>
__global__ void __launch_bounds__(kMostThreads, kPieces == kFew ? kBlocksOfFew : 2)
    by_block(Arrays<T> a) {
    Kept<Op, T, kAligned, kPieces> kept(a, blockIdx.x, threadIdx.x);
    kept.load_row();
    kept.store_row(merge_block(kept.moments()));
}

/// Prepares the launch for rows of up to kMostBlockBytes.
template <class Op, class T>
std::function<void()> prepare_by_block(Arrays<T> a) {
    const bool few = a.whole_pieces() <= kFew * kMostThreads;
    const auto kernel =
        few           ? a.aligned() ? by_block<Op, T, true, kFew> : by_block<Op, T, false, kFew>
                  : a.aligned() ? by_block<Op, T, true, kKept>
                      : by_block<Op, T, false, kKept>;
    const unsigned int threads = threads_for(a.whole_pieces(), few ? kFew : kKept);
    return [=] { kernel<<<a.rows, threads>>>(a); };
}

// --- by_cluster ---------------------------------------------------------------------------------
// Adds: 2 to 8 blocks keep a row together, a cluster, whose blocks reach each other's shared
// memory. Each warp sends its moments straight to every block. And a cluster takes row after row:
// while it works on one, in registers, the next is on its way to shared memory, where gamma and
// beta stay as well, and the row after it is fetched into the L2 cache. That is asked to keep what
// was fetched, and to give up first what has been copied or stored. One instruction, a bulk copy,
// moves all of a warp's pieces: with a copy and an address for each, LayerNorm took a third more
// instructions. Clusters draw their rows from a counter, so that fast ones take more, and
// neighbors in memory are read at nearly the same time, which memory does faster. Each share begins
// at an L2 line: warps whose stores begin within one are 2 to 3% slower on an H200. What a row has
// before its first whole line and after its last one are single elements, fetched like the others.
// Costs: shared memory for three rows, and registers: of rows beyond 256 to 288 KiB one block fits
// a multiprocessor, not two; a counter, which each launch leaves at 0.
// Limits: 8 blocks of 512 threads: rows of 512 KiB. Before 9.0 there are no clusters.
// Source: CUDA Programming Guide, "Thread Block Clusters", "Distributed Shared Memory" and
// "Asynchronous Data Copies"; PTX ISA, "st.async" and "cp.async.bulk".

constexpr int kLine = 128;  // bytes, of the L2 cache

/// To what all rows are aligned.
enum Alignment { kToElements, kToPieces, kToLines };

/// How many places of each kind a warp of by_cluster has in shared memory.
template <Alignment kAlignment, int kPieces>
constexpr int kPlaces = 32 * kPieces + (kAlignment == kToLines ? 0 : kLine / 16);

/// Gamma or beta of a warp's pieces, in shared memory. Unless rows are aligned to pieces, a lane
/// needs 16 bytes from any element on. So words of 4 bytes are stored in four sequences, each of
/// every fourth word: then a warp's lanes read different banks.
template <class T, Alignment kAlignment, int kPlaces>
struct InShared {
    static constexpr bool kWhole = kAlignment != kToElements;
    Piece<T>* pieces;  // [kPlaces]; not kWhole: words, [4, kPlaces]

    __device__ uint32_t& word(unsigned int place, unsigned int w) const {
        return reinterpret_cast<uint32_t*>(pieces)[w % 4 * kPlaces + place + w / 4];
    }
    __device__ void set(unsigned int place, const Piece<T>& piece) const {
        if (kWhole) {
            pieces[place] = piece;
        } else {
            for (int j = 0; j < 4; ++j)
                word(place, j) = reinterpret_cast<const uint32_t*>(piece.at)[j];
        }
    }
    /// Gets in fp32 the piece that begins `behind` elements after `place`. kHalf: in mid-word.
    template <bool kHalf>
    __device__ void get(unsigned int place, unsigned int behind,
                        float (&to)[Piece<T>::kSize]) const {
        if (kWhole) return unpack(pieces[place + behind / Piece<T>::kSize], to);
        constexpr int kWords = 4 + kHalf;
        uint32_t words[kWords];
        for (int w = 0; w < kWords; ++w) words[w] = word(place, behind * sizeof(T) / 4 + w);
        if constexpr (std::is_same_v<T, half>) {
            for (int w = 0; w < kWords; ++w) {
                const float2 pair = __half22float2(reinterpret_cast<const half2&>(words[w]));
                const int j = 2 * w - kHalf;
                if (j >= 0) to[j] = pair.x;
                if (j + 1 < Piece<T>::kSize) to[j + 1] = pair.y;
            }
        } else {
            for (int j = 0; j < Piece<T>::kSize; ++j) to[j] = __uint_as_float(words[j]);
        }
    }
};

template <class Op, class T, Alignment kAlignment, int kPieces>
__global__ void __launch_bounds__(kMostThreads, 1) by_cluster(Arrays<T> a, unsigned int* drawn) {
    constexpr bool kAligned = kAlignment == kToLines;
    using Row = Kept<Op, T, kAligned, kPieces, kLine>;
    using RowShare = typename Row::RowShare;
    extern __shared__ __align__(kLine) unsigned char shared[];
    __shared__ hopper::Barrier full[2];                     // a row's moments have all arrived
    __shared__ hopper::Barrier arrived[kMostThreads / 32];  // a warp's part of the next row has
    const unsigned int blocks = Cluster().size(), rank = Cluster().rank();
    const unsigned int cluster = blockIdx.x / blocks, clusters = gridDim.x / blocks;
    const unsigned int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Each warp has places of its own, for its pieces of x and residual of the next row, gamma and
    // beta, so it waits for no other. (RMSNorm has no beta, LayerNorm no residual.) They begin at a
    // multiple of 128 bytes: copies to elsewhere would take longer.
    enum Kind { kX, kGamma, kResidual, kBeta = kResidual, kKinds };
    // Rows' pieces begin up to a line apart: gamma and beta need more places.
    constexpr int kWarpPlaces = kPlaces<kAlignment, kPieces>;
    auto places_of = [&](unsigned int warp) {
        return reinterpret_cast<Piece<T>*>(shared) + warp * (kKinds * kWarpPlaces);
    };
    auto* const places = places_of(warp);
    // The moments that each warp of the cluster sends, for two rows in turn. Its first warp also
    // sends the number of the row after next.
    const unsigned int senders = blocks * warps;
    auto* const moments = reinterpret_cast<float4*>(places_of(warps));
    auto place = [&](Kind kind, int i) -> Piece<T>& {
        return places[kind * kWarpPlaces + lane + 32 * i];
    };
    const InShared<T, kAlignment, kWarpPlaces> gamma{&places[kGamma * kWarpPlaces]},
        beta{&places[kBeta * kWarpPlaces]};
    if (threadIdx.x < 2) hopper::mbarrier_init(&full[threadIdx.x], 1);
    if (lane == 0) hopper::mbarrier_init(&arrived[warp], 1);
    hopper::fence_mbarrier_init();
    hopper::barrier_cluster_sync();  // every block's barriers are ready

    T edge_of_x = T(0), edge_of_residual = T(0);  // of the next row
    auto start = [&](const RowShare& share) {
        const Row next(a, share, threadIdx.x);
        // The copy could overtake this lane's loads, which may still be queued: on an H200 it did.
        hopper::fence_proxy_async();
        __syncwarp();  // all lanes have taken what was in these places
        if (lane == 0) {
            hopper::mbarrier_arrive_expect_tx(&arrived[warp],
                                              (Op::kAdds ? 2 : 1) * 16 * next.pieces_of_warp());
            next.copy_to(&place(kX, 0), a.x, &arrived[warp]);
            if (Op::kAdds) next.copy_to(&place(kResidual, 0), a.residual, &arrived[warp]);
        }
        if (share.has_edge) edge_of_x = a.x[share.edge_at];
        if (Op::kAdds && share.has_edge) edge_of_residual = a.residual[share.edge_at];
    };
    auto fetch = [&](size_t row) {  // to the L2 cache
        if (threadIdx.x > 0 || row >= a.rows) return;
        const RowShare share(row, a.cols, 0, rank, blocks);
        share.fetch_with_edges(a.x, a.rows * a.cols);
        if (Op::kAdds) share.fetch_with_edges(a.residual, a.rows * a.cols);
    };
    // The first two rows of each cluster are fixed, the others drawn.
    size_t row = cluster, next = clusters + cluster;
    RowShare share(row, a.cols, threadIdx.x, rank, blocks);
    start(share);
    const Row first_row(a, share, threadIdx.x);
#pragma unroll 4
    for (int i = 0; 32 * i + int(lane) < kWarpPlaces; ++i) {
        gamma.set(lane + 32 * i, first_row.earliest_parameters_of(a.gamma, i));
        if (Op::kCenters) beta.set(lane + 32 * i, first_row.earliest_parameters_of(a.beta, i));
    }
    __syncwarp();  // all lanes find what others have loaded
    fetch(next);
    // A thread's element at the edges is always in the same column.
    const size_t edge_column = rank == 0 ? threadIdx.x : a.cols - 1 - threadIdx.x;
    typename Row::EdgeParameters of_edge{};
    if (!kAligned && edge_column < a.cols) of_edge = Row::edge_parameters(a, edge_column);
    const float per_column = 1.0f / a.cols;
    for (unsigned int turn = 0; row < a.rows; ++turn) {
        Row kept(a, share, threadIdx.x);
        hopper::mbarrier_wait(&arrived[warp], turn % 2);  // this warp's part of the row is there
        kept.take([&](int i) { return place(kX, i); }, [&](int i) { return place(kResidual, i); },
                  edge_of_x, edge_of_residual);
        if (next < a.rows) start(share = {next, a.cols, threadIdx.x, rank, blocks});

        const unsigned int of_turn = turn % 2;
        unsigned int drawn_now = 0;
        if (threadIdx.x == 0) {
            hopper::mbarrier_arrive_expect_tx(&full[of_turn], senders * sizeof moments[0]);
            // Arrives meanwhile. Each row draws once, and the last draw sets the counter back to 0.
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
        if (Op::kAdds) kept.store_sums();  // while moments travel
        // A warp sends only after it has read the moments of the row before. So once a row's are
        // complete, the next row's places are free. After the last row nobody sends: a block may
        // end.
        hopper::mbarrier_wait(&full[of_turn], turn / 2 % 2);
        const Moments whole = merge_sent<Op>(sent, senders);
        row = next, next = __float_as_uint(sent[0].w);
        fetch(next);
        const unsigned int behind = kept.behind();
        auto store = [&]<bool kHalf>() {
            auto get = [&](const auto& from, int i, auto& to) {
                from.template get<kHalf>(lane + 32 * i, behind, to);
            };
            kept.store_pieces(
                whole, 0, [&](int i, auto& to) { get(gamma, i, to); },
                [&](int i, auto& to) { get(beta, i, to); });
        };
        if (kAlignment == kToElements && behind * sizeof(T) % 4 != 0)
            store.template operator()<true>();
        else
            store.template operator()<false>();
        kept.store_edge(whole, of_edge);
    }
}

/// A shape of clusters for rows of some length.
template <class T>
struct Shape {
    double time;           // of a multiprocessor for a row, by a model
    unsigned int blocks;   // of a cluster
    unsigned int threads;  // of a block
    size_t bytes;          // of shared memory, for a block
    std::function<void()> (*prepare)(Arrays<T>, const Shape&, size_t l2_bytes);
};

/// Prepares the launch by clusters of that shape.
template <class Op, class T, Alignment kAlignment, int kPieces>
std::function<void()> prepare_shape(Arrays<T> a, const Shape<T>& shape, size_t l2_bytes) {
    const auto kernel = by_cluster<Op, T, kAlignment, kPieces>;
    size_t bytes = shape.bytes;
    demo::allow_shared_bytes(kernel, bytes);
    auto at_once = [&] {
        return size_t(demo::ClusterLaunch(1, shape.blocks, shape.threads, bytes).at_once(kernel));
    };
    // Rows that are fetched ahead share the L2 cache with copies and stores. So a sixth of it must
    // hold a row for each cluster, unless there is only one block on a multiprocessor. Blocks that
    // ask for more shared memory than they need keep others away.
    const size_t row_bytes = (Op::kAdds ? 2 : 1) * a.row_bytes();
    const size_t most = std::max<size_t>(1, l2_bytes / 6 / row_bytes);
    constexpr size_t kMore = 4096;
    while (at_once() > most && demo::try_shared_bytes(kernel, bytes + kMore).empty())
        bytes += kMore;
    const size_t clusters = std::min(at_once(), a.rows);
    const auto drawn = std::make_shared<demo::Buffer<unsigned int>>(1);
    DEMO_CHECK(cudaMemset(drawn->data(), 0, drawn->bytes()));
    return [=, launch = demo::ClusterLaunch(clusters, shape.blocks, shape.threads, bytes)] {
        launch(kernel, a, drawn->data());
    };
}

/// Adds the shapes with so many pieces a thread, each with its time by a model.
template <class Op, class T, Alignment kAlignment, int kPieces>
void add_shapes(std::vector<Shape<T>>& shapes, const Arrays<T>& a, const demo::Gpu& gpu) {
    const auto kernel = by_cluster<Op, T, kAlignment, kPieces>;
    // Fixed cost of a row, in pieces. Warps that saturate an SM. Penalty for one block an SM.
    constexpr double kElse = 5, kBusy = 12.5, kAlone = 1.1;
    auto threads_of = [&](unsigned int blocks) {
        const size_t most = Share<T, kAlignment == kToLines, kLine>::most_pieces(a.cols, blocks);
        // Each element at the edges needs a thread: nearly as many as a line has.
        return std::max(threads_for(most, kPieces), unsigned(kLine / sizeof(T)));
    };
    for (unsigned int blocks = 2; blocks <= kMostBlocks; ++blocks) {
        const unsigned int threads = threads_of(blocks);
        if (threads > kMostThreads) continue;
        const unsigned int warps = threads / 32;
        const size_t places = 3 * kPlaces<kAlignment, kPieces> * sizeof(Piece<T>);
        const size_t bytes = warps * (places + 2 * blocks * sizeof(float4));
        if (!demo::try_shared_bytes(kernel, bytes).empty()) continue;
        const int clusters = demo::ClusterLaunch(1, blocks, threads, bytes).room(kernel);
        if (clusters == 0) continue;
        // While a multiprocessor works through all warps that it holds, each cluster finishes a
        // row. A single block can give the four schedulers unequal numbers of warps: waiting for
        // the fullest cost about half of what it could.
        const int together = demo::blocks_per_multiprocessor(kernel, threads, bytes);
        double busy = together * warps;
        if (together == 1) busy = kAlone * (warps + (warps + 3) / 4 * 4) / 2;
        const double rows = double(clusters) / gpu.multiprocessors;
        const double time = (kElse + kPieces) * std::max(busy, kBusy) / rows;
        shapes.push_back({time, blocks, threads, bytes, prepare_shape<Op, T, kAlignment, kPieces>});
    }
}

/// Prepares the launch by one of those numbers of pieces.
template <class Op, class T, Alignment kAlignment, int... kPieces>
std::function<void()> fastest_by_cluster(const Arrays<T>& a, const demo::Gpu& gpu) {
    std::vector<Shape<T>> shapes;
    (add_shapes<Op, T, kAlignment, kPieces>(shapes, a, gpu), ...);
    if (shapes.empty())
        demo::fail(demo::kSkipped, "by_cluster: no cluster that could keep " +
                                       std::to_string(a.cols) +
                                       " columns has room here (--kernel can leave it out)");
    double least = INFINITY;
    for (const auto& shape : shapes) least = std::min(least, shape.time);
    // The model errs by some percent. Among the shapes that it finds about equally fast, the one
    // with the fewest blocks was mostly the fastest.
    constexpr double kAbout = 1.03;
    auto order = [&](const Shape<T>& shape) {
        return std::tuple(shape.time > kAbout * least, shape.blocks, shape.time);
    };
    const Shape<T>& best = *std::ranges::min_element(shapes, {}, order);
    return best.prepare(a, best, gpu.l2_bytes);
}

/// Prepares it with the numbers of pieces that pay. LayerNorm computes so much that lanes without
/// pieces cost time, so there the number follows the row's length.
template <class Op, class T, Alignment kAlignment>
std::function<void()> prepare_by_cluster(const Arrays<T>& a, const demo::Gpu& gpu) {
    if constexpr (Op::kCenters)
        return fastest_by_cluster<Op, T, kAlignment, 8, 9, 10>(a, gpu);
    else
        return fastest_by_cluster<Op, T, kAlignment, kKept>(a, gpu);
}

/// Prepares the launch for rows of up to kMostClusterBytes, on a GPU that has clusters.
template <class Op, class T>
std::function<void()> prepare_by_cluster(const Arrays<T>& a, const demo::Gpu& gpu) {
    if (a.row_bytes() % kLine == 0) return prepare_by_cluster<Op, T, kToLines>(a, gpu);
    if (a.aligned()) return prepare_by_cluster<Op, T, kToPieces>(a, gpu);
    return prepare_by_cluster<Op, T, kToElements>(a, gpu);
}

// --- by_cluster_twice ---------------------------------------------------------------------------
// Adds: rows of any length. Of a long row a block keeps only the last step's pieces. Costs: the
// others are loaded twice, the second time perhaps from the L2 cache. Limits: that traffic.
// Before 9.0 there are no clusters: one block a row, as in rows of up to 32 KiB anyway. Source:
// Welford, "Note on a Method for Calculating Corrected Sums of Squares and Products", 1962, for
// merging step by step.

template <class Op, class T>
__global__ void __launch_bounds__(kTwiceThreads, 2) by_cluster_twice(Arrays<T> a) {
    const Cluster cluster;
    Kept<Op, T, false, kTwicePieces> kept(a, blockIdx.x / cluster.size(), threadIdx.x,
                                          cluster.rank(), cluster.size());
    constexpr unsigned int kBlockPieces = kTwicePieces * kTwiceThreads;
    kept.load_row();
    Moments own = kept.moments();
    unsigned int p = 0;
    for (; p + kBlockPieces < kept.share.pieces;) {
        kept.load_pieces(p += kBlockPieces);
        own = merge(own, kept.moments(p, false));
    }
    const Moments whole = cluster.merge_all(merge_block(own), Moments{});
    kept.store_edge(whole, kept.edge_parameters()), kept.store_pieces(whole, p);
    for (; p > 0;) {  // backward: the latest pieces are the likeliest to be in the cache
        kept.load_from(Op::kAdds ? a.sum : a.x, p -= kBlockPieces);
        kept.store_pieces(whole, p);
    }
}

/// Prepares the launch, for rows of any length.
template <class Op, class T>
std::function<void()> prepare_by_cluster_twice(Arrays<T> a) {
    return [=, launch = launch_by_cluster_twice(a)] { launch(by_cluster_twice<Op, T>, a); };
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
    auto prepare_cluster = [&gpu](const Arrays<T>& a) { return prepare_by_cluster<Op>(a, gpu); };
    session.run(
        work, check_of(1),
        {rung("by_warp", prepare_by_warp<Op, T>, 1, why_not(kMostWarpBytes<Op>)),
         rung("by_block", prepare_by_block<Op, T>, 2, why_not(kMostBlockBytes)),
         rung("by_cluster", prepare_cluster, 2,
              !has_clusters(gpu) ? "needs clusters (sm_90)"
              : a.rows >> 32     ? "numbers rows in 32 bits"
                                 : why_not(kMostClusterBytes)),
         rung("by_cluster_twice", prepare_by_cluster_twice<Op, T>, 3, "", a.rows * a.row_bytes()),
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
