// 6: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), in one kernel.
//
// Whatever 5_gating_unfused ships through global memory between its kernels can stay in registers.
// A thread that sums an element of x W1 also sums the same element of x W2, from the same tile of
// x, and then has all it needs for the answer:
//
//                  tile of W1   tile of W2
//                  +--------+   +--------+
//                  |        |   |        |
//                  +--------+   +--------+
//        tile      +--------+   +--------+
//        of x  +-+ |   v1   |   |   v2   |   ->  sigmoid(v1 + b1) * (v2 + b2)  ->  out
//              +-+ +--------+   +--------+       in registers                      stored once
//
// x is loaded once instead of twice, nothing but out is stored, and there is one launch instead of
// six. The price: two sums per element of out, so twice the registers for the same tile.
//
// fused_basic  2_matmul_sharedmem's kernel with a second tile of weights and a second sum.
// fused_wmma   3_matmul_tensorcore's wmma_tiled, with half of its columns from each of the weights.
//
// When it pays: --talk S (x[4 S^2, 128], W[128, 64]) does little arithmetic per byte, so its time
// is its traffic, and fusion removes most of that. N x N does N / 2 operations per byte: its time
// is the matmuls', fusion can save only what the other kernels took, and wins only with a main loop
// as good as the library's. The last row has one. (For which kernel that is, see the last line.)
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/gating.cuh"
#include "kernels/gating_record.cuh"
#include "kernels/gating_unfused.cuh"
#include "kernels/wmma_tile.cuh"

namespace gating_fused {

/// sigmoid(v1) * v2.
__device__ float gate(float v1, float v2) { return gating_unfused::logistic(v1) * v2; }

// --- As in lesson 2 -----------------------------------------------------------------------------

constexpr int kTile = 32;  // a tile is kTile x kTile elements, a block kTile x kTile threads

__global__ void fused_basic(const half* x,   // [M, K] row-major
                            const half* W1,  // [K, H] row-major
                            const half* b1,  // [H]
                            const half* W2,  // [K, H] row-major
                            const half* b2,  // [H]
                            half* out,       // [M, H] row-major
                            size_t K, size_t H) {
    __shared__ float tile_x[kTile][kTile], tile_W1[kTile][kTile], tile_W2[kTile][kTile];

    const int tx = threadIdx.x, ty = threadIdx.y;
    const size_t row = size_t(blockIdx.x) * kTile + ty;  // M may be long: rows lie on grid.x
    const size_t col = size_t(blockIdx.y) * kTile + tx;

    float v1 = b1[col], v2 = b2[col];
    for (size_t t = 0; t < K; t += kTile) {
        tile_x[ty][tx] = x[row * K + (t + tx)];
        tile_W1[ty][tx] = W1[(t + ty) * H + col];
        tile_W2[ty][tx] = W2[(t + ty) * H + col];
        __syncthreads();  // the tiles are complete

        for (int k = 0; k < kTile; ++k) {
            const float x_k = tile_x[ty][k];  // read once, used twice
            v1 += x_k * tile_W1[k][tx];
            v2 += x_k * tile_W2[k][tx];
        }
        __syncthreads();  // nobody needs the tiles any more
    }
    out[row * H + col] = gate(v1, v2);
}

// --- On the tensor cores, as in lesson 3 --------------------------------------------------------

using namespace wmma_tile;
using gating_unfused::Half8, gating_unfused::load, gating_unfused::store;

/// Stores the gates of 16 x 16 elements. Both sums go through patches of shared memory, this warp's
/// own, so that each thread knows which 8 neighbors it has, of which row and columns.
__device__ void store_gates(const Accumulator& sums1, const Accumulator& sums2, float* patches,
                            Half8 bias1, Half8 bias2, half* out, size_t pitch) {
    const float* const v1 = through_patch(sums1, patches);
    const float* const v2 = through_patch(sums2, patches + kPatch);
    Half8 gates;
    for (int e = 0; e < 8; ++e)
        gates.v[e] = gate(v1[e] + float(bias1.v[e]), v2[e] + float(bias2.v[e]));
    store(&out[patch_row() * pitch + patch_col()], gates);
    __syncwarp();  // the patches may be overwritten
}

constexpr int kOutN = kBlockN / 2;  // a block computes 128 x 64 of out ...
constexpr int kHalf = kWarpN / 2;   // ... and a warp 64 x 32: 32 columns of each of the weights
constexpr int kHalfFragments = kHalf / kFragment;

/// A stage holds 128 columns as in lesson 3, but of both weights, so that the 64 columns of a warp
/// are 32 of W1 and the same 32 of W2:
///
///        columns  0 .. 31    32 .. 63    64 .. 95    96 .. 127
///               +----------+-----------+-----------+-----------+
///               | W1 0..31 | W2 0..31  | W1 32..63 | W2 32..63 |
///               +----------+-----------+-----------+-----------+
///                 v1         v2          v1          v2
///                 warps 0 and 2          warps 1 and 3
///
/// Loads, loop and registers stay those of lesson 3.
template <int kStages>
__global__ void __launch_bounds__(kThreads) fused_wmma(const half* x,   // [M, K] row-major
                                                       const half* W1,  // [K, H] row-major
                                                       const half* b1,  // [H]
                                                       const half* W2,  // [K, H] row-major
                                                       const half* b2,  // [H]
                                                       half* out,       // [M, H] row-major
                                                       size_t M, size_t K, size_t H) {
    extern __shared__ __align__(128) unsigned char shared[];
    const size_t block_row = size_t(blockIdx.x) * kBlockM, block_col = blockIdx.y * kOutN;

    WarpTile tile;
    multiply_tiles<kStages>(
        tile, reinterpret_cast<Stage*>(shared), K / kBlockK, [&](Stage& stage, size_t t) {
            const size_t k = t * kBlockK;
            copy_tile<kBlockM, kBlockK>(stage.A[0], kBlockK + kPad, &x[block_row * K + k], K,
                                        M - block_row, K - k);
            for (int quarter = 0; quarter < 4; ++quarter) {
                const half* const W = quarter % 2 == 0 ? W1 : W2;
                const size_t col = block_col + quarter / 2 * kHalf;
                copy_tile<kBlockK, kHalf>(&stage.B[0][quarter * kHalf], kBlockN + kPad,
                                          &W[k * H + col], H, K - k, H - col);
            }
        });

    float* const patches = reinterpret_cast<float*>(shared) + threadIdx.x / 32 * 2 * kPatch;
    for (int j = 0; j < kHalfFragments; ++j) {
        const size_t col = block_col + tile.col / 2 + j * kFragment;
        if (col >= H) break;  // H is a multiple of 32: a fragment is inside or outside
        const Half8 bias1 = load(&b1[col + patch_col()]), bias2 = load(&b2[col + patch_col()]);
        for (int i = 0; i < kWarpM / kFragment; ++i)
            if (const size_t row = block_row + tile.row + i * kFragment; row < M)
                store_gates(tile.sums[i][j], tile.sums[i][j + kHalfFragments], patches, bias1,
                            bias2, &out[row * H + col], H);
    }
}

// --- The talk's shape: W stays, x streams past --------------------------------------------------

constexpr int kTalkK = 128, kTalkH = 64;
constexpr int kStreamRows = 64, kStreamStages = 3;  // of x: one is multiplied, two are on their way

struct Stream {
    half W1[kTalkK][kTalkH + kPad], W2[kTalkK][kTalkH + kPad];
    half x[kStreamStages][kStreamRows][kTalkK + kPad];
    float patches[kThreads / 32][2][kPatch];
};

/// The weights are small: a block loads them once, and then goes on from tile to tile of x.
__global__ void __launch_bounds__(kThreads) fused_streamed(const half* x,   // [M, 128] row-major
                                                           const half* W1,  // [128, 64] row-major
                                                           const half* b1,  // [64]
                                                           const half* W2,  // [128, 64] row-major
                                                           const half* b2,  // [64]
                                                           half* out,       // [M, 64] row-major
                                                           size_t M) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stream& stream = *reinterpret_cast<Stream*>(shared);
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;
    const size_t tiles = M / kStreamRows;

    copy_tile<kTalkK, kTalkH>(stream.W1[0], kTalkH + kPad, W1, kTalkH, kTalkK, kTalkH);
    copy_tile<kTalkK, kTalkH>(stream.W2[0], kTalkH + kPad, W2, kTalkH, kTalkK, kTalkH);
    auto copy_x = [&](int stage, size_t tile) {
        if (tile < tiles)
            copy_tile<kStreamRows, kTalkK>(stream.x[stage][0], kTalkK + kPad,
                                           &x[tile * kStreamRows * kTalkK], kTalkK, kStreamRows,
                                           kTalkK);
        __pipeline_commit();
    };
    for (int s = 0; s < kStreamStages - 1; ++s) copy_x(s, blockIdx.x + s * gridDim.x);

    int stage = 0;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        __pipeline_wait_prior(kStreamStages - 2);
        __syncthreads();  // the tile is complete, and the one before is used up
        copy_x((stage + kStreamStages - 1) % kStreamStages, tile + (kStreamStages - 1) * gridDim.x);

        Accumulator v1[2][2], v2[2][2];  // 32 x 32 of out
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j)
                wmma::fill_fragment(v1[i][j], 0.0f), wmma::fill_fragment(v2[i][j], 0.0f);
        for (int k = 0; k < kTalkK; k += kFragment) {
            FragmentA a[2];
            for (int i = 0; i < 2; ++i)
                wmma::load_matrix_sync(a[i], &stream.x[stage][warp_row + i * kFragment][k],
                                       kTalkK + kPad);
            for (int j = 0; j < 2; ++j) {
                FragmentB w1, w2;
                wmma::load_matrix_sync(w1, &stream.W1[k][warp_col + j * kFragment], kTalkH + kPad);
                wmma::load_matrix_sync(w2, &stream.W2[k][warp_col + j * kFragment], kTalkH + kPad);
                for (int i = 0; i < 2; ++i) {
                    wmma::mma_sync(v1[i][j], a[i], w1, v1[i][j]);
                    wmma::mma_sync(v2[i][j], a[i], w2, v2[i][j]);
                }
            }
        }
        for (int j = 0; j < 2; ++j) {
            const int col = warp_col + j * kFragment;
            const Half8 bias1 = load(&b1[col + patch_col()]), bias2 = load(&b2[col + patch_col()]);
            for (int i = 0; i < 2; ++i) {
                const size_t row = tile * kStreamRows + warp_row + i * kFragment;
                store_gates(v1[i][j], v2[i][j], stream.patches[warp][0], bias1, bias2,
                            &out[row * kTalkH + col], kTalkH);
            }
        }
        stage = (stage + 1) % kStreamStages;
    }
}

}  // namespace gating_fused

// --- Running ------------------------------------------------------------------------------------

static void run(demo::Session& session) {
    using namespace gating_fused;
    const demo::Gating g(session);  // x, W1, b1, W2, b2, out, and the reference
    const size_t M = g.shape.M, K = g.shape.K, H = g.shape.H;
    const gating_unfused::Unfused unfused(g);

    auto basic = [&] {
        const dim3 block(kTile, kTile), grid(M / kTile, H / kTile);
        fused_basic<<<grid, block>>>(g.x, g.W1, g.b1, g.W2, g.b2, g.out, K, H);
    };
    // Four stages where shared memory has room for them, three on Turing.
    const bool four = session.gpu.shared_per_block >= 4 * sizeof(Stage);
    const auto kernel = four ? fused_wmma<4> : fused_wmma<3>;
    const size_t shared_bytes = (four ? 4 : 3) * sizeof(Stage);
    demo::allow_shared_bytes(kernel, shared_bytes);
    auto wmma = [&] {
        const dim3 grid((M + kBlockM - 1) / kBlockM, (H + kOutN - 1) / kOutN);
        kernel<<<grid, kThreads, shared_bytes>>>(g.x, g.W1, g.b1, g.W2, g.b2, g.out, M, K, H);
    };

    demo::allow_shared_bytes(fused_streamed, sizeof(Stream));
    const int blocks_per_sm =
        demo::blocks_per_multiprocessor(fused_streamed, kThreads, sizeof(Stream));
    auto streamed = [&] {
        const size_t blocks =
            std::min(M / kStreamRows, size_t(blocks_per_sm * session.gpu.multiprocessors));
        fused_streamed<<<blocks, kThreads, sizeof(Stream)>>>(g.x, g.W1, g.b1, g.W2, g.b2, g.out, M);
    };

    const demo::Workload work = g.shape.workload();
    session.run(work, g.check({}),
                {unfused.six_kernels(),
                 unfused.library_best(),
                 {.kernel = "fused_basic", .launch = basic, .moved_bytes = work.least_bytes},
                 {.kernel = "fused_wmma", .launch = wmma, .moved_bytes = work.least_bytes},
                 {.kernel = "fused_streamed",
                  .launch = streamed,
                  .moved_bytes = work.least_bytes,
                  .only = "talk"},
                 demo::copy_contender(session, work, "talk")},
                gating_records(g, session.gpu));
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "6_gating_fused",
                                .summary = "sigmoid(x W1 + b1) * (x W2 + b2) in one kernel",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}
