// Belongs to bonus_norm: a row of LayerNorm or RMSNorm in registers, for all rungs. Threads keep
// pieces of a row (Kept), find the moments of what they have, merge them, and store the results.
#pragma once

#include "rows/row_pieces.cuh"

namespace norms {

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

/// Merges the moments of a block's warps. All threads get the result: each warp merges for itself.
__device__ inline Moments merge_block(Moments of_warp) {
    __shared__ Moments all[32];
    const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) all[warp] = of_warp;
    __syncthreads();  // every warp's moments are there
    return merge_warp(lane < blockDim.x / 32 ? all[lane] : Moments{});
}

// --- Gamma and beta -----------------------------------------------------------------------------

/// 16 bytes of gamma or beta from number `at` on; zeros if not `wanted`. Where rows are not
/// aligned, `at` is any number: words of 4 bytes are loaded, and shifted by half a word if fp16
/// begins in the middle of one.
template <bool kAligned, class T>
__device__ Piece<T> parameters(const T* array, size_t at, bool wanted = true) {
    Piece<T> piece{};
    if (!wanted) return piece;
    if (kAligned) return reinterpret_cast<const Piece<T>&>(array[at]);
    const unsigned int bits = sizeof(T) == 2 && at % 2 ? 16 : 0;
    const auto* const from = reinterpret_cast<const uint32_t*>(array + (at - bits / 16));
    uint32_t words[5];
    for (int w = 0; w < 4; ++w) words[w] = from[w];
    words[4] = bits ? reinterpret_cast<const unsigned short&>(array[at + 7]) : 0;
    for (int w = 0; w < 4; ++w)
        reinterpret_cast<uint32_t*>(piece.at)[w] =
            uint32_t((uint64_t(words[w + 1]) << 32 | words[w]) >> bits);
    return piece;
}

/// 16 bytes of an array of `cols` from number `at` on, a multiple of 16 bytes; zeros past its end.
template <class T>
__device__ Piece<T> piece_at(const T* array, size_t at, size_t cols) {
    Piece<T> piece{};
    if (at + Piece<T>::kSize <= cols) return reinterpret_cast<const Piece<T>&>(array[at]);
    for (unsigned int j = 0; j < Piece<T>::kSize; ++j)
        if (at + j < cols) piece.at[j] = array[at + j];
    return piece;
}

/// Gamma or beta in shared memory, for rows that begin at different places. A lane needs 16 bytes
/// from any element on. So words of 4 bytes are stored in four sequences, each of every fourth
/// word: then a warp's lanes read different banks.
template <class T, bool kAligned, int kPlaces>
struct KeptParameters {
    Piece<T> pieces[kPlaces];  // not kAligned: words, [4, kPlaces]

    __device__ uint32_t& word(unsigned int place, unsigned int w) {
        return reinterpret_cast<uint32_t*>(pieces)[w % 4 * kPlaces + place + w / 4];
    }
    __device__ void set(unsigned int place, const Piece<T>& piece) {
        if (kAligned)
            pieces[place] = piece;
        else
            for (int w = 0; w < 4; ++w)
                word(place, w) = reinterpret_cast<const uint32_t*>(piece.at)[w];
    }
    /// Gets in fp32 the piece that begins `behind` elements after `place`. kHalf: in mid-word.
    template <bool kHalf>
    __device__ void get(unsigned int place, unsigned int behind, float (&to)[Piece<T>::kSize]) {
        if (kAligned) return unpack(pieces[place], to);
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

// --- A row's pieces -----------------------------------------------------------------------------

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

/// A thread's pieces of a row, or of a block's share of it, and perhaps an element at the edges,
/// where no whole piece is (see Share). A warp's pieces are neighbors, and a thread has every 32nd.
/// kUnit: Share's.
template <class Op, class T, bool kAligned, int kPieces, int kUnit = 16>
struct Kept {
    using RowShare = Share<T, kAligned, kUnit>;
    static constexpr int kSize = Piece<T>::kSize;
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
    /// Where rows are not aligned, their pieces begin at different columns, less than a unit apart:
    /// how many after the earliest this row's do.
    __device__ unsigned int behind() const {
        return kAligned ? 0 : share.column % RowShare::kUnitElements;
    }
    /// Whether this thread has an i-th one.
    __device__ bool has(unsigned int p, int i) const { return int(p) + 32 * i < left; }
    /// Stores the i-th, if this thread has one. What it stores is computed in any case: a branch
    /// around it would cost more.
    __device__ void store(T* matrix, unsigned int p, int i, const Piece<T>& piece) const {
        auto* const to = reinterpret_cast<Piece<T>*>(matrix + share.begin) + (p + first_piece);
        ptx::st_global_cs_if(has(p, i), to + 32 * i, piece);
    }

    /// Loads the pieces from number p on; 0 beyond the last. RMSNorm's are sums, which are stored
    /// at once.
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
    /// The same of a whole row, or share.
    __device__ void load_row() {
        load_pieces();
        edge = T(0);
        if (!share.has_edge) return;
        edge = a.x[share.edge_at];
        if (Op::kAdds)
            a.sum[share.edge_at] = edge = T(float(edge) + float(a.residual[share.edge_at]));
    }

    /// The moments of all pieces of the warp's threads, and if `with_edge` of their edges: first
    /// the mean, then the squares of the distances from it.
    __device__ Moments moments(unsigned int p = 0, bool with_edge = true) {
        with_edge = with_edge && share.has_edge;
        float count = pieces_of_warp(p) * kSize, mean = 0, values[kSize];
        if (!kAligned) count += __popc(__ballot_sync(~0u, with_edge));
        if (Op::kCenters) {
            float sum = with_edge ? float(edge) : 0;
#pragma unroll
            for (int i = 0; i < kPieces; ++i) {
                unpack(pieces[i], values);
                float of_piece = 0;
                for (float value : values) of_piece += value;
                sum += of_piece;
            }
            mean = sum_of_warp(sum) / max(count, 1.0f);
            forget_unpacked(pieces);
        }
        float squares = with_edge ? (float(edge) - mean) * (float(edge) - mean) : 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            unpack(pieces[i], values);
            float of_piece = 0;
            for (float value : values) of_piece += (value - mean) * (value - mean);
            if (has(p, i)) squares += of_piece;
        }
        return {count, mean, sum_of_warp(squares)};
    }

    /// Stores the results of the pieces, given the moments of the whole row. gamma(i, to), beta(i,
    /// to): get the i-th piece's, in fp32.
    template <class Gamma, class Beta>
    __device__ void store_pieces(Moments whole, unsigned int p, Gamma gamma, Beta beta) const {
        // (x - mean) scale = x scale + offset
        const float scale = scale_of(whole), offset = Op::kCenters ? -whole.mean * scale : 0;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            float values[kSize], with[kSize];
            gamma(i, with), unpack(pieces[i], values);
            for (int j = 0; j < kSize; ++j) values[j] = (values[j] * scale + offset) * with[j];
            if constexpr (Op::kCenters) {
                beta(i, with);
                for (int j = 0; j < kSize; ++j) values[j] += with[j];
            }
            store(a.out, p, i, pack<T>(values));
        }
    }
    /// The same with gamma and beta from memory.
    __device__ void store_pieces(Moments whole, unsigned int p = 0) const {
        const size_t first = share.column + size_t(p + first_piece) * kSize;
        auto get = [&](const T* array, int i, auto& to) {
            unpack(parameters<kAligned>(array, first + 32 * kSize * i, has(p, i)), to);
        };
        store_pieces(
            whole, p, [&](int i, auto& to) { get(a.gamma, i, to); },
            [&](int i, auto& to) { get(a.beta, i, to); });
    }
    /// The same with gamma and beta from shared memory, where the row that begins the earliest has
    /// its first piece at place 0.
    template <class Gamma, class Beta>
    __device__ void store_with(Gamma& gamma, Beta& beta, Moments whole) const {
        const unsigned int place = threadIdx.x % 32, behind = this->behind();
        auto store = [&]<bool kHalf>() {
            store_pieces(
                whole, 0,
                [&](int i, auto& to) { gamma.template get<kHalf>(place + 32 * i, behind, to); },
                [&](int i, auto& to) { beta.template get<kHalf>(place + 32 * i, behind, to); });
        };
        if (behind * sizeof(T) % 4 != 0)
            store.template operator()<true>();
        else
            store.template operator()<false>();
    }

    /// Gamma and beta of an edge in this column.
    struct EdgeParameters {
        T gamma, beta;
    };
    __device__ static EdgeParameters edge_parameters(const Arrays<T>& a, size_t column) {
        return {a.gamma[column], Op::kCenters ? a.beta[column] : T(0)};
    }
    __device__ void store_edge(Moments whole, EdgeParameters with) const {
        if (!share.has_edge) return;
        a.out[share.edge_at] =
            T((float(edge) - whole.mean) * scale_of(whole) * float(with.gamma) + float(with.beta));
    }
    __device__ void store_edge(Moments whole) const {
        if (!share.has_edge) return;
        store_edge(whole, edge_parameters(a, share.edge_at - share.begin + share.column));
    }
    __device__ void store_row(Moments whole) {
        forget_unpacked(pieces), store_edge(whole), store_pieces(whole);
    }

  private:
    __device__ float scale_of(Moments whole) const {
        return rsqrtf(whole.squares / whole.count + a.epsilon);
    }
};

}  // namespace norms
