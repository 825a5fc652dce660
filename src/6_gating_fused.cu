// 6: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), in one kernel.
//
// A thread that sums an element of x W1 sums the same element of x W2 beside it, from the same tile
// of x. Then it has all it needs for the answer, in registers:
//
//                 tile of W1   tile of W2
//                 +--------+   +--------+        the sums begin as the biases:
//      tile       +--------+   +--------+            v1 = b1 + x W1,  v2 = b2 + x W2
//      of x  +--+ +--------+   +--------+        then:
//            |  | |   v1   |   |   v2   |            out = sigmoid(v1) * v2, the only store
//            +--+ +--------+   +--------+
//
// A tile of x serves both products, nothing but out is stored, and one launch replaces six. The
// price: two sums per element of out, so a block covers half as many columns.
//
// When it pays: where memory is the limit. With --talk S, x[4 S^2, 128] and W[128, 64], one kernel
// moves 192 numbers a row: 85 operations per byte, where an H200 could do 200. library_best moves
// 448, six_kernels 960. fused_talk_tile moves its 192 nearly as fast as a copy does. fused_wmma has
// two fifths of that speed, likely since its blocks have 4 steps and wait for the first tiles.
// N x N has N / 2 operations per byte, so the main loop decides: fused_basic's has no tensor cores,
// fused_wmma's waits as in lesson 3, and the compiler writes fused_tile's.
//
//     ./6_gating_fused 4096        ./6_gating_fused --talk 1024
// H200, S = 1024, ms: six_kernels 1.88, library_best 0.922, fused_basic 12.6, fused_wmma 0.964,
// fused_talk_tile 0.403 (docs/figures.md)
#include "demo.cuh"
#include "demo/copy.cuh"
#include "gating/gating.cuh"
#include "gating/gating_record.cuh"
#include "gating/unfused.cuh"
#include "matmul/wmma_tile.cuh"
#include "tile.cuh"

namespace gating_fused {

__device__ float gate(float v1, float v2) { return gating_unfused::logistic(v1) * v2; }

// --- Lesson 2's kernel with a second tile of weights and a second sum ----------------------------
constexpr int kTile = 32;  // a tile is kTile x kTile elements, a block kTile x kTile threads

// x[M, K], W1[K, H], b1[H], W2[K, H], b2[H], out[M, H], all row-major
__global__ void fused_basic(const half* x, const half* W1, const half* b1, const half* W2,
                            const half* b2, half* out, size_t K, size_t H) {
    __shared__ float tile_x[kTile][kTile], tile_W1[kTile][kTile], tile_W2[kTile][kTile];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const size_t row = size_t(blockIdx.x) * kTile + ty;  // rows on grid.x: grid.y ends at 65535
    const size_t col = size_t(blockIdx.y) * kTile + tx;
    float v1 = b1[col], v2 = b2[col];
    for (size_t t = 0; t < K; t += kTile) {
        tile_x[ty][tx] = x[row * K + (t + tx)];
        tile_W1[ty][tx] = W1[(t + ty) * H + col];
        tile_W2[ty][tx] = W2[(t + ty) * H + col];
        __syncthreads();  // the tiles are complete
        for (int k = 0; k < kTile; ++k) {
            v1 += tile_x[ty][k] * tile_W1[k][tx];
            v2 += tile_x[ty][k] * tile_W2[k][tx];
        }
        __syncthreads();  // nobody needs the tiles any more
    }
    out[row * H + col] = gate(v1, v2);
}

// --- Lesson 3's wmma_tiled: half of its columns come from W1, half from W2 -----------------------
using namespace wmma_tile;  // fragments, copy_tile, store_as_half, kBlock = 128, kWarp = 64, kPad

constexpr int kCols = 64, kWarpCols = 32;  // of out: what a block and a warp compute
constexpr int kStages = 3, kPitch = kCols + kPad, kPitchX = kBlockK + kPad;

/// A warp's sums, for 64 x 32 of out: 4 x 2 fragments (16 x 16) of x W1, and as many of x W2.
struct Sums {
    Accumulator v1[kSide][2], v2[kSide][2];
    __device__ Sums(const half* b1, const half* b2, float* patch) {  // they begin as the biases
        for (int j = 0; j < 2; ++j) {
            const Accumulator first = equal_rows(&b1[j * kFragment], patch);
            const Accumulator second = equal_rows(&b2[j * kFragment], patch);
            for (int i = 0; i < kSide; ++i) v1[i][j] = first, v2[i][j] = second;
        }
    }

    /// One step of 16 in k. Each fragment of x is loaded once and multiplied by both weights.
    __device__ void multiply(const half* x, const half* W1, const half* W2) {
        FragmentA a[kSide];
        for (int i = 0; i < kSide; ++i)
            wmma::load_matrix_sync(a[i], &x[i * kFragment * kPitchX], kPitchX);
        for (int j = 0; j < 2; ++j) {
            FragmentB w1, w2;
            wmma::load_matrix_sync(w1, W1 + j * kFragment, kPitch);
            wmma::load_matrix_sync(w2, W2 + j * kFragment, kPitch);
            for (int i = 0; i < kSide; ++i) {
                wmma::mma_sync(v1[i][j], a[i], w1, v1[i][j]);
                wmma::mma_sync(v2[i][j], a[i], w2, v2[i][j]);
            }
        }
    }

    /// Stores the gates of up to `rows` rows. WMMA calls a thread's elements of a fragment x[0],
    /// x[1], ... It does not say where they are, but they are at the same places in v1 and v2.
    __device__ void store_gates(half* out, size_t pitch, size_t rows, float* patch) {
        for (size_t i = 0; i < kSide && i * kFragment < rows; ++i)
            for (int j = 0; j < 2; ++j) {
                Accumulator& v = v1[i][j];
                for (int e = 0; e < v.num_elements; ++e) v.x[e] = gate(v.x[e], v2[i][j].x[e]);
                store_as_half(v, patch, &out[i * kFragment * pitch + j * kFragment], pitch);
            }
    }
};

struct Tiles {  // lesson 3's stages, with 64 columns of W1 and 64 of W2 instead of 128 of B
    half x[kStages][kBlock][kPitchX];
    half W1[kStages][kBlockK][kPitch], W2[kStages][kBlockK][kPitch];
    float patches[kThreads / 32][kPatch];
};

/// A block computes 128 x 64 of out, a warp 64 x 32: as many sums as in lesson 3.
__global__ void __launch_bounds__(kThreads)
    fused_wmma(const half* x, const half* W1, const half* b1, const half* W2, const half* b2,
               half* out, size_t M, size_t K, size_t H) {
    extern __shared__ __align__(128) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlock, block_col = size_t(blockIdx.y) * kCols;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarpCols;
    const size_t row = block_row + warp_row, col = block_col + warp_col;  // the warp's first
    auto copy_stage = [=, &tiles](size_t t) {  // tile t of x, W1 and W2, into its stage
        const size_t s = t % kStages, k = t * kBlockK, corner = k * H + block_col;
        const size_t depth = k < K ? K - k : 0;  // that remains: past the last tile nothing is read
        copy_tile<kBlock, kBlockK>(tiles.x[s], &x[block_row * K + k], K, M - block_row, depth);
        copy_tile<kBlockK, kCols>(tiles.W1[s], &W1[corner], H, depth, H - block_col);
        copy_tile<kBlockK, kCols>(tiles.W2[s], &W2[corner], H, depth, H - block_col);
        __pipeline_commit();
    };
    for (int t = 0; t < kStages - 1; ++t) copy_stage(t);
    const size_t bias = min(col, H - kWarpCols);  // where col is outside, any will do
    Sums sums(&b1[bias], &b2[bias], tiles.patches[warp]);
    for (size_t t = 0; t * kBlockK < K; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of tile t have arrived
        __syncthreads();                     // everyone's have, and tile t - 1 is used up
        copy_stage(t + kStages - 1);
        const size_t s = t % kStages;
        for (int k = 0; k < kBlockK; k += kFragment)
            sums.multiply(&tiles.x[s][warp_row][k], &tiles.W1[s][k][warp_col],
                          &tiles.W2[s][k][warp_col]);
    }
    if (row < M && col < H) sums.store_gates(&out[row * H + col], H, M - row, tiles.patches[warp]);
}

// --- The same in CUDA Tile C++: the code of one thread, whose values are tiles -------------------
#ifdef __CUDACC_TILE__  // where the compiler knows it: see tile.cuh
using In = tile::In<half>;
using Out = tile::Out<half>;
/// A block computes a tile of out. Threads, shared memory, early copies and tensor cores are the
/// compiler's business. We choose tile sizes, which block computes which, and promises (tile.cuh).
/// The hint is for every GPU (0). In the kernel below, occupancy is blocks per multiprocessor.
template <int kRows, int kCols, int kWarps>
[[cutile::hint(0, num_worker_warps_per_cta = kWarps)]] __tile_global__ void fused_tile(
    In x, In W1, In b1, In W2, In b2, Out out, size_t M, size_t K, size_t H) {
    const auto [m, n] = tile::place_in_groups(tile::count(M, kRows), tile::count(H, kCols));
    auto v1 = ct::zeros<ct::tile<float, ct::shape<kRows, kCols>>>(), v2 = v1;
    for (int k : ct::irange(0, tile::count(K, 64))) {
        const auto a = tile::matrix<kRows, 64>(x, M, K).load_masked(m, k);  // 0 outside
        v1 = ct::mma(a, tile::matrix<64, kCols>(W1, K, H).load_masked(k, n), v1);
        v2 = ct::mma(a, tile::matrix<64, kCols>(W2, K, H).load_masked(k, n), v2);
    }
    const auto gate = tile::logistic(v1 + tile::row<kCols>(b1, H, n));  // added to all rows
    const auto result = ct::element_cast<half>(gate * (v2 + tile::row<kCols>(b2, H, n)));
    tile::matrix<kRows, kCols>(out, M, H).store_masked(result, m, n);
}

/// For --talk S: each of the weights is one tile, which a block loads once. Then it loops over
/// every num_blocks()-th tile of x, and the compiler loads the next one early.
[[cutile::hint(0, num_worker_warps_per_cta = 8, occupancy = 2)]] __tile_global__ void
fused_talk_tile(In x, In W1, In b1, In W2, In b2, Out out, size_t M, size_t, size_t) {
    constexpr int kRows = 64, K = 128, H = 64;  // M is a multiple of 1024
    const auto w1 = tile::matrix<K, H>(W1, K, H).load(0, 0);
    const auto w2 = tile::matrix<K, H>(W2, K, H).load(0, 0);
    const auto bias1 = tile::row<H>(b1, H, 0), bias2 = tile::row<H>(b2, H, 0);
    const auto zero = ct::zeros<ct::tile<float, ct::shape<kRows, H>>>();
    for (int m : ct::irange(int(ct::bid().x), int(M / kRows), int(ct::num_blocks().x))) {
        const auto a = tile::matrix<kRows, K>(x, M, K).load(m, 0);
        const auto v1 = ct::mma(a, w1, zero) + bias1, v2 = ct::mma(a, w2, zero) + bias2;
        const auto result = ct::element_cast<half>(tile::logistic(v1) * v2);
        tile::matrix<kRows, H>(out, M, H).store(result, m, 0);
    }
}

static std::function<void()> tile_launch(const demo::Session& session, const demo::Gating& g) {
    const demo::GatingOperands o = g;
    auto launch = [=](auto kernel, int blocks) {
        return [=] { kernel<<<blocks>>>(o.x, o.W1, o.b1, o.W2, o.b2, o.out, o.M, o.K, o.H); };
    };
    if (session.options.talk) return launch(fused_talk_tile, 2 * session.gpu.multiprocessors);
    const int rows = tile::count(o.M, 128);  // of tiles. Narrow tiles make more blocks, for small N
    return demo::faster(session.options,
                        launch(fused_tile<128, 128, 8>, rows * tile::count(o.H, 128)),
                        launch(fused_tile<128, 64, 4>, rows * tile::count(o.H, 64)));
}
#else
static std::function<void()> tile_launch(const demo::Session&, const demo::Gating&) { return {}; }
#endif

static void run(demo::Session& session) {
    const demo::Gating g(session);  // x, W1, b1, W2, b2, out, and the reference
    const size_t M = g.shape.M, K = g.shape.K, H = g.shape.H;
    const gating_unfused::Unfused unfused(g);
    const dim3 block(kTile, kTile), blocks(M / kTile, H / kTile);
    auto basic = [&] { fused_basic<<<blocks, block>>>(g.x, g.W1, g.b1, g.W2, g.b2, g.out, K, H); };
    const dim3 grid((M + kBlock - 1) / kBlock, (H + kCols - 1) / kCols);
    demo::allow_shared_bytes(fused_wmma, sizeof(Tiles));
    auto tiled = [&] {
        fused_wmma<<<grid, kThreads, sizeof(Tiles)>>>(g.x, g.W1, g.b1, g.W2, g.b2, g.out, M, K, H);
    };
    auto prepare = [&] { return tile_launch(session, g); };
    const std::string why_not = tile::why_not(session.gpu);
    session.run(
        g.shape.workload(), g.check({}),
        {unfused.six_kernels(), unfused.library_best(), g.fused("fused_basic", basic),
         g.fused("fused_wmma", tiled), g.fused_prepared("fused_tile", prepare, "square", why_not),
         g.fused_prepared("fused_talk_tile", prepare, "talk", why_not),
         demo::copy_contender(session, g.shape.workload(), "talk")},
        gating_records(g, session.gpu));  // the suite's fastest: see the bonuses
}

}  // namespace gating_fused

int main(int argc, char** argv) {
    const demo::Program program{.name = "6_gating_fused",
                                .summary = "sigmoid(x W1 + b1) * (x W2 + b2) in one kernel",
                                .types = {{"fp16", gating_fused::run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}
