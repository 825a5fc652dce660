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
// When it pays: a row of --talk S (x[4 S^2, 128], W[128, 64]) is 192 numbers to move in one kernel,
// 448 or 576 in library_best, 960 in six_kernels. At 85 operations per byte the tensor cores wait,
// and a copy of 192 numbers a row is about the limit. But N x N is N / 2 operations per byte: there
// only a kernel with as good a main loop as the library's wins. The last row has one: the suite's
// fastest for this GPU (bonus_gating_hopper, bonus_gating_mma, bonus_gating_talk).
//
// What limits them: fused_basic has no tensor cores; fused_wmma waits as lesson 3's does, and on
// --talk loads the weights again for every 128 rows; fused_streamed loads their fragments again.
//
//     ./6_gating_fused 4096        ./6_gating_fused --talk 1024
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/gating.cuh"
#include "kernels/gating_record.cuh"
#include "kernels/gating_unfused.cuh"
#include "kernels/wmma_tile.cuh"

namespace gating_fused {

struct Operands {
    const half *x, *W1, *b1, *W2, *b2;  // [M, K], [K, H], [H], [K, H], [H], row-major
    half* out;                          // [M, H] row-major
    size_t M, K, H;                     // multiples of 32
};

__device__ float gate(float v1, float v2) { return gating_unfused::logistic(v1) * v2; }

// --- Lesson 2's kernel with a second tile of weights and a second sum ----------------------------
constexpr int kTile = 32;  // a tile is kTile x kTile elements, a block kTile x kTile threads

__global__ void fused_basic(Operands operands) {
    const auto [x, W1, b1, W2, b2, out, M, K, H] = operands;
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

// --- Lesson 3's wmma_tiled with half of its columns from each of the weights ---------------------
using namespace wmma_tile;  // fragments, copy_tile, store_as_half, kBlock = 128, kWarp = 64, kPad

constexpr int kCols = 64, kWarpCols = 32;  // of out: what a block and a warp compute
constexpr int kPitch = kCols + kPad;       // of the weights in shared memory
constexpr int kStages = 3;                 // which Turing has room for, too

/// A warp's sums: kDown x 2 fragments of x W1, and as many of x W2.
template <int kDown>
struct Sums {
    Accumulator v1[kDown][2], v2[kDown][2];

    /// They begin as the biases: 16 of them, in each of the patch's rows, are loaded as fragments.
    __device__ Sums(const half* b1, const half* b2, float* patch) {
        auto begin = [&](auto& sums, int j, const half* b) {
            for (int e = threadIdx.x % 32; e < kFragment * kFragment; e += 32)
                patch[e / kFragment * kPatchPitch + e % kFragment] =
                    b[j * kFragment + e % kFragment];
            __syncwarp();  // the patch is complete
            for (auto& row : sums)
                wmma::load_matrix_sync(row[j], patch, kPatchPitch, wmma::mem_row_major);
            __syncwarp();  // the patch may be overwritten
        };
        for (int j = 0; j < 2; ++j) begin(v1, j, b1), begin(v2, j, b2);
    }

    /// One step of 16 in k. Each fragment of x is loaded once and multiplied by both weights.
    __device__ void multiply(const half* x, int pitch, const half* W1, const half* W2) {
        FragmentA a[kDown];
        for (int i = 0; i < kDown; ++i)
            wmma::load_matrix_sync(a[i], x + i * kFragment * pitch, pitch);
        for (int j = 0; j < 2; ++j) {
            FragmentB w1, w2;
            wmma::load_matrix_sync(w1, W1 + j * kFragment, kPitch);
            wmma::load_matrix_sync(w2, W2 + j * kFragment, kPitch);
            for (int i = 0; i < kDown; ++i) {
                wmma::mma_sync(v1[i][j], a[i], w1, v1[i][j]);
                wmma::mma_sync(v2[i][j], a[i], w2, v2[i][j]);
            }
        }
    }

    /// Stores the gates of up to `rows` rows. Which elements of a fragment a thread holds (x[0],
    /// x[1], ...) is not specified, but of v1 and v2 they are the same: the gate needs no more.
    __device__ void store_gates(half* out, size_t pitch, size_t rows, float* patch) {
        for (size_t i = 0; i < kDown && i * kFragment < rows; ++i)
            for (int j = 0; j < 2; ++j) {
                Accumulator& v = v1[i][j];
                for (int e = 0; e < v.num_elements; ++e) v.x[e] = gate(v.x[e], v2[i][j].x[e]);
                store_as_half(v, patch, &out[i * kFragment * pitch + j * kFragment], pitch);
            }
    }
};

struct Tiles {  // where lesson 3's stage has 128 columns of B, this has 64 of each of the weights
    half x[kStages][kBlock][kBlockK + kPad];
    half W1[kStages][kBlockK][kPitch], W2[kStages][kBlockK][kPitch];
    float patches[kThreads / 32][kPatch];
};

/// A block computes 128 x 64 of out, a warp 64 x 32: as many sums as in lesson 3.
__global__ void __launch_bounds__(kThreads) fused_wmma(Operands operands) {
    const auto [x, W1, b1, W2, b2, out, M, K, H] = operands;
    extern __shared__ __align__(128) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlock, block_col = size_t(blockIdx.y) * kCols;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarpCols;
    const size_t row = block_row + warp_row, col = block_col + warp_col;  // the warp's first

    auto copy_stage = [=, &tiles](size_t t) {  // tile t of x, W1 and W2, into its stage
        const size_t s = t % kStages, k = t * kBlockK, left = k < K ? K - k : 0;
        const size_t corner = k * H + block_col;
        copy_tile<kBlock, kBlockK>(tiles.x[s], &x[block_row * K + k], K, M - block_row, left);
        copy_tile<kBlockK, kCols>(tiles.W1[s], &W1[corner], H, left, H - block_col);
        copy_tile<kBlockK, kCols>(tiles.W2[s], &W2[corner], H, left, H - block_col);
        __pipeline_commit();
    };
    for (int t = 0; t < kStages - 1; ++t) copy_stage(t);

    const size_t bias = min(col, H - kWarpCols);  // where col is outside, any will do
    Sums<kSide> sums(&b1[bias], &b2[bias], tiles.patches[warp]);
    for (size_t t = 0; t * kBlockK < K; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of tile t have arrived
        __syncthreads();                     // everyone's have, and tile t - 1 is used up
        copy_stage(t + kStages - 1);
        const size_t s = t % kStages;
        for (int k = 0; k < kBlockK; k += kFragment)
            sums.multiply(&tiles.x[s][warp_row][k], kBlockK + kPad, &tiles.W1[s][k][warp_col],
                          &tiles.W2[s][k][warp_col]);
    }
    if (row < M && col < H) sums.store_gates(&out[row * H + col], H, M - row, tiles.patches[warp]);
}

// --- For --talk S: the weights stay in shared memory, and x streams past -------------------------
constexpr int kTalkK = 128, kRows = 64;  // a tile of x is kRows x kTalkK

struct Stream {
    half W1[kTalkK][kPitch], W2[kTalkK][kPitch];
    half x[kStages][kRows][kTalkK + kPad];
    float patches[kThreads / 32][kPatch];
};

/// In fused_wmma each block loads as many weights as x, multiplies four tiles and ends. But here
/// all tiles of out need all of the weights, and they are small: a block loads them once, then
/// takes every gridDim.x-th tile of x. A warp computes 32 x 32 of a tile of out.
__global__ void __launch_bounds__(kThreads) fused_streamed(Operands operands) {
    const auto [x, W1, b1, W2, b2, out, M, K, H] = operands;  // K = 128, H = 64, M = 4 S^2
    extern __shared__ __align__(128) unsigned char shared[];
    Stream& stream = *reinterpret_cast<Stream*>(shared);
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * 32, warp_col = warp % 2 * kWarpCols;
    float* const patch = stream.patches[warp];

    copy_tile<kTalkK, kCols>(stream.W1, W1, kCols, kTalkK, kCols);  // in the first tile's group
    copy_tile<kTalkK, kCols>(stream.W2, W2, kCols, kTalkK, kCols);
    auto row_of = [](size_t t) { return (blockIdx.x + t * gridDim.x) * kRows; };  // of tile t
    auto copy_x = [=, &stream](size_t t) {
        const size_t row = row_of(t), rows = row < M ? kRows : 0;  // past the last tile, zeros
        copy_tile<kRows, kTalkK>(stream.x[t % kStages], &x[row * kTalkK], kTalkK, rows, kTalkK);
        __pipeline_commit();
    };
    for (int t = 0; t < kStages - 1; ++t) copy_x(t);

    const Sums<2> biases(&b1[warp_col], &b2[warp_col], patch);
    for (size_t t = 0; row_of(t) < M; ++t) {
        __pipeline_wait_prior(kStages - 2);
        __syncthreads();
        copy_x(t + kStages - 1);
        Sums<2> sums = biases;
        for (int k = 0; k < kTalkK; k += kFragment)
            sums.multiply(&stream.x[t % kStages][warp_row][k], kTalkK + kPad,
                          &stream.W1[k][warp_col], &stream.W2[k][warp_col]);
        sums.store_gates(&out[(row_of(t) + warp_row) * kCols + warp_col], kCols, kRows, patch);
    }
}

static void run(demo::Session& session) {
    const demo::Gating g(session);  // x, W1, b1, W2, b2, out, and the reference
    const auto [M, K, H, name, size] = g.shape;
    const Operands operands{g.x, g.W1, g.b1, g.W2, g.b2, g.out, M, K, H};
    const gating_unfused::Unfused unfused(g);
    auto basic = [&] { fused_basic<<<dim3(M / kTile, H / kTile), dim3(kTile, kTile)>>>(operands); };
    const dim3 blocks((M + kBlock - 1) / kBlock, (H + kCols - 1) / kCols);
    demo::allow_shared_bytes(fused_wmma, sizeof(Tiles));
    auto tiled = [&] { fused_wmma<<<blocks, kThreads, sizeof(Tiles)>>>(operands); };
    const std::string lack = demo::try_shared_bytes(fused_streamed, sizeof(Stream));
    const int at_once = 2 * session.gpu.multiprocessors;  // blocks: two fit one, by shared memory
    auto streamed = [&] { fused_streamed<<<at_once, kThreads, sizeof(Stream)>>>(operands); };
    session.run(g.shape.workload(), g.check({}),
                {unfused.six_kernels(), unfused.library_best(), g.fused("fused_basic", basic),
                 g.fused("fused_wmma", tiled), g.fused("fused_streamed", streamed, "talk", lack),
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
