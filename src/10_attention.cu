// 10: Attention, O = softmax(Q K^T / sqrt(D)) V, whose N x N scores are never written to memory.
//
// Q, K, V and O are [B, heads, N, D], and every head is a problem of its own. Row i of O is a mean
// of V's rows, with weights. Row j's score is the product of row i of Q and row j of K, divided by
// sqrt(D). The softmax of row i's N scores gives the weights.
//
// chain, library_best   write N x N scores per head, and read them: 8 GiB at N = 65536.
// fused_basic           a block keeps 64 rows of Q, and goes through K and V in tiles of 64 rows
//                       (fused_tile likewise, in CUDA Tile C++, with 128):
//
//                   tiles of K^T                   For each of its 64 rows it keeps, so far,
//               +--------+--------+---                 max     the greatest score
//       64 rows | scores | scores |  ...               sum     the sum of e^(score - max)
//       of Q    +--------+--------+---                 o[D]    the sum of e^(score - max) v
//                   tiles of V
//
// Only the last score completes a row's maximum and sum. So a row keeps lesson 8's pair, and o. If
// the maximum grows, sum and o are multiplied by e^(old - new maximum). At the end O is o / sum.
//
//     ./10_attention 4096        ./10_attention 65536 --dim 64        ./10_attention 4096 --causal
// --causal: row i attends to rows 0 to i alone. What limits fused_basic: without stages (lesson 3)
// it waits for each tile; K, V, scores and weights use shared memory. Next: bonus_attention.
// H200, N = 4096, ms: chain 18.5, library_best 2.26, fused_basic 3.49, fused_tile 1.12
// (docs/figures.md)
#include "attention/attention.cuh"
#include "attention/attention_record.cuh"
#include "attention/unfused.cuh"
#include "demo.cuh"
#include "demo/launch.cuh"
#include "matmul/wmma_tile.cuh"
#include "rows/max_sum.cuh"
#include "tile.cuh"

namespace attention {

using namespace wmma_tile;  // fragments, copy_tile, store_as_half, kThreads = 128, kPad
using softmax::kNothing, softmax::MaxSum, softmax::power;  // power(x, max) = e^(x - max)
using FragmentKT = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major>;

constexpr int kTile = 64;               // rows of Q that a block has, and of K and V in a tile
constexpr int kScorePitch = kTile + 4;  // floats from row to row: see kPad
constexpr int kWeightPitch = 2 * kScorePitch;  // halfs: the same bytes, see weigh()

template <int D>
struct Tiles {
    half K[kTile][D + kPad], V[kTile][D + kPad];
    float scores[kTile][kScorePitch];  // a warp's 16 rows are its own
};

/// Turns a warp's 16 rows of scores into weights e^(score - max), where the scores were:
///     a row of scores:   | float 0      ...      63 | pad |
///     then of weights:   | half 0 ... 63 |  unused  | pad |    2 bytes a number, not 4
/// Two neighboring lanes share a row. It attends to the next `keys` rows of K, at least one, so max
/// is finite. Updates the row's pair, and returns the factor for the sums before this tile.
__device__ float weigh(float* scores, int keys, float scale, MaxSum& pair) {
    const int row = threadIdx.x % 32 / 2, odd = threadIdx.x % 2;
    float own[kTile / 2], max = pair.max, sum = 0;
    for (int i = 0; i < kTile / 2; ++i) {
        const int key = 2 * i + odd;
        own[i] = key < keys ? scores[row * kScorePitch + key] * scale : kNothing;
        max = fmaxf(max, own[i]);
    }
    max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));  // the other lane's
    __syncwarp();                                    // all scores are in registers
    half* const weights = reinterpret_cast<half*>(scores) + row * kWeightPitch;
    for (int i = 0; i < kTile / 2; ++i) {
        const float weight = power(own[i], max);
        weights[2 * i + odd] = __float2half(weight);
        sum += weight;
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    const float factor = power(pair.max, max);
    pair = {max, pair.sum * factor + sum};
    return factor;
}

/// Multiplies each of a warp's 16 rows of o by a number that its two lanes have. WMMA does not say
/// which lane holds which element, but a fragment of factors has its elements in the same places.
template <int kCount>
__device__ void multiply_rows(Accumulator (&o)[kCount], float number, float* patch) {
    const int row = threadIdx.x % 32 / 2, half_row = threadIdx.x % 2 * 8;
    for (int i = 0; i < 8; ++i) patch[row * kPatchPitch + half_row + i] = number;
    __syncwarp();  // the patch is complete
    Accumulator factors;
    wmma::load_matrix_sync(factors, patch, kPatchPitch, wmma::mem_row_major);
    __syncwarp();  // the patch may be overwritten
    for (Accumulator& part : o)
        for (int e = 0; e < part.num_elements; ++e) part.x[e] *= factors.x[e];
}

/// A block has 64 rows of Q, each of its four warps 16 of them.
template <int D>
__global__ void __launch_bounds__(kThreads) fused_basic(demo::AttentionOperands operands) {
    const auto [Q, K, V, O, N, scale, causal] = operands;
    extern __shared__ __align__(128) unsigned char shared[];
    Tiles<D>& tiles = *reinterpret_cast<Tiles<D>*>(shared);
    alignas(32) __shared__ float patches[kThreads / 32][kPatch];
    const int warp = threadIdx.x / 32;
    float *const scores = tiles.scores[warp * 16], *const patch = patches[warp];
    const size_t blocks = (N + kTile - 1) / kTile, start = blockIdx.x / blocks * N * D;
    const size_t block_row = blockIdx.x % blocks * kTile, warp_row = block_row + warp * 16;
    const size_t row = warp_row + threadIdx.x % 32 / 2;  // that this lane and its neighbor weigh
    const size_t keys = causal ? min(row + 1, N) : N;    // that it attends to
    const size_t end = causal ? min(block_row + kTile, N) : N;  // of all keys of the block
    FragmentA q[D / 16];  // the warp's rows of Q; past the head any will do: they are not stored
    Accumulator o[D / 16];
    const half* const from = &Q[start + min(warp_row, N - 16) * D];
    for (int d = 0; d < D; d += 16) wmma::load_matrix_sync(q[d / 16], from + d, D);
    for (Accumulator& part : o) wmma::fill_fragment(part, 0.0f);
    MaxSum pair{kNothing, 0};
    for (size_t first = 0; first < end; first += kTile) {
        copy_tile<kTile, D>(tiles.K, &K[start + first * D], D, N - first, D);
        copy_tile<kTile, D>(tiles.V, &V[start + first * D], D, N - first, D);
        __pipeline_commit();
        __pipeline_wait_prior(0);  // at once: a second pair of tiles could arrive meanwhile
        __syncthreads();           // the tiles are complete
        for (int j = 0; j < kTile; j += 16) {
            Accumulator s;
            wmma::fill_fragment(s, 0.0f);
            for (int d = 0; d < D; d += 16) {
                FragmentKT k;  // K^T: the tile's rows are its columns
                wmma::load_matrix_sync(k, &tiles.K[j][d], D + kPad);
                wmma::mma_sync(s, q[d / 16], k, s);
            }
            wmma::store_matrix_sync(&scores[j], s, kScorePitch, wmma::mem_row_major);
        }
        __syncwarp();  // the warp's scores are complete
        multiply_rows(o, weigh(scores, int(keys - first), scale, pair), patch);
        __syncwarp();  // the warp's weights are complete
        for (int j = 0; j < kTile; j += 16) {
            FragmentA weights;
            wmma::load_matrix_sync(weights, reinterpret_cast<half*>(scores) + j, kWeightPitch);
            for (int d = 0; d < D; d += 16) {
                FragmentB v;
                wmma::load_matrix_sync(v, &tiles.V[j][d], D + kPad);
                wmma::mma_sync(o[d / 16], weights, v, o[d / 16]);
            }
        }
        __syncthreads();  // nobody needs the tiles any more
    }
    multiply_rows(o, 1 / pair.sum, patch);
    for (int d = 0; d < D && warp_row < N; d += 16)
        store_as_half(o[d / 16], patch, &O[start + warp_row * D + d], D);
}

// --- The same in CUDA Tile C++: see lesson 6 -----------------------------------------------------
#ifdef __CUDACC_TILE__
constexpr int kTileRows = 128, kTileKeys = 128;  // of Q, in a block; of K and V, in a tile

/// Maxima and sums are columns, with a number for each of a block's rows.
template <int D>
[[cutile::hint(0, num_worker_warps_per_cta = 8)]] __tile_global__ void fused_tile(
    tile::In<half> Q, tile::In<half> K, tile::In<half> V, tile::Out<half> O, size_t heads, size_t N,
    float scale, bool causal) {
    using Scores = ct::tile<float, ct::shape<kTileRows, kTileKeys>>;
    using Column = ct::tile<float, ct::shape<kTileRows, 1>>;
    const ct::shape<kTileKeys, D> tile_shape;  // of K and V, which come as 1 x kTileKeys x D
    const int blocks = tile::count(N, kTileRows), n = int(N), head = ct::bid().x / blocks;
    const int m = ct::bid().x % blocks, row = m * kTileRows;  // the block's first
    const auto rows_of_Q = tile::matrices<kTileRows, D>(Q, heads, N, D).load_masked(head, m, 0);
    const auto q = ct::reshape<ct::shape<kTileRows, D>>(rows_of_Q);
    auto o = ct::zeros<ct::tile<float, ct::shape<kTileRows, D>>>();
    auto max = ct::full<Column>(-INFINITY), sum = ct::zeros<Column>();
    const auto rows = row + ct::iota<ct::tile<int, ct::shape<kTileRows, 1>>>();
    // A row attends to row + 1 keys, or without a mask to n, since row + n is never less.
    const auto limit = ct::min(rows + (causal ? 1 : n), n);
    const int end = causal && row + kTileRows < n ? row + kTileRows : n;  // of the block's keys
    for (int t : ct::irange(0, tile::count(end, kTileKeys))) {
        const auto k = tile::matrices<kTileKeys, D>(K, heads, N, D).load_masked(head, t, 0);
        const auto v = tile::matrices<kTileKeys, D>(V, heads, N, D).load_masked(head, t, 0);
        const auto k_T = ct::transpose(ct::reshape(k, tile_shape));
        auto scores = scale * ct::mma(q, k_T, ct::zeros<Scores>());
        const int key = t * kTileKeys;  // the tile's first
        if (key + kTileKeys > (causal ? row : n)) {
            const auto keys = key + ct::iota<ct::tile<int, ct::shape<1, kTileKeys>>>();
            scores = ct::select(keys < limit, scores, ct::full<Scores>(-INFINITY));
        }
        const auto old_max = max;
        max = ct::max(max, ct::reduce_max<1>(scores));
        const auto weights = ct::exp(scores - max, ct::round_approximate_t{});
        const auto factor = ct::exp(old_max - max);
        sum = sum * factor + ct::sum<1>(weights);
        o = ct::mma(ct::element_cast<half>(weights), ct::reshape(v, tile_shape), o * factor);
    }
    const auto result = ct::reshape<ct::shape<1, kTileRows, D>>(ct::element_cast<half>(o / sum));
    tile::matrices<kTileRows, D>(O, heads, N, D).store_masked(result, head, m, 0);
}

static std::function<void()> tile_launch(const demo::Attention& a) {
    const auto kernel = a.shape.D == 64 ? fused_tile<64> : fused_tile<128>;
    const size_t blocks = a.shape.heads() * tile::count(a.shape.N, kTileRows);
    return [=, &a, s = a.shape] {
        kernel<<<blocks>>>(a.Q, a.K, a.V, a.O, s.heads(), s.N, s.scale(), s.causal);
    };
}
#else
static std::function<void()> tile_launch(const demo::Attention&) { return {}; }
#endif

static void run(demo::Session& session) {
    const demo::Attention a(session);  // Q, K, V, O, and the reference
    const demo::UnfusedAttention unfused(a, session.gpu);
    const demo::AttentionOperands operands = a;
    const size_t blocks = a.shape.heads() * ((a.shape.N + kTile - 1) / kTile);
    const auto kernel = a.shape.D == 64 ? fused_basic<64> : fused_basic<128>;
    const size_t shared = a.shape.D == 64 ? sizeof(Tiles<64>) : sizeof(Tiles<128>);
    const demo::Contender basic{.kernel = "fused_basic",
                                .launch = [=] { kernel<<<blocks, kThreads, shared>>>(operands); },
                                .moved_bytes = session.least_bytes(),
                                .why_not = demo::try_shared_bytes(kernel, shared)};
    demo::Contender tile = basic;
    tile.kernel = "fused_tile", tile.launch = tile_launch(a);
    tile.why_not = tile::why_not(session.gpu);
    session.note(unfused.scores_text());
    session.run(a.shape.workload(session), a.check(demo::Rounds::kWeights),
                {unfused.chain(), unfused.library_best(), basic, tile}, records(a, session.gpu));
}

}  // namespace attention

int main(int argc, char** argv) {
    const demo::Program program{.name = "10_attention",
                                .summary = "softmax(Q K^T / sqrt(D)) V, without the N x N scores",
                                .types = {{"fp16", attention::run}},
                                .n_means = "rows of Q and K of a head",
                                .default_n = demo::kSimulator ? 64 : 4096,
                                .options = demo::attention_options(),
                                .variants = {"4096 --dim 64", "4096 --causal"}};
    return demo::main_of(program, argc, argv);
}
