// 6: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), in one kernel.
//
// Everything that 5_gating_unfused ships through global memory between its kernels stays where it
// was computed. A warp that holds a tile of x W1 in registers computes the same tile of x W2 beside
// it, from the same tile of x, and then has all it needs for the answer:
//
//                 tiles of W1, W2              accumulators of a warp, in registers
//                 +-------+-------+
//                 |  W1   |  W2   |            v1 = b1 + x W1      v2 = b2 + x W2
//                 +-------+-------+                   \               /
//         +----+  +-------+-------+                  sigmoid(v1) * v2
//  tile   |    |  |  v1   |  v2   |                         |
//  of x   | x  |  |       |       |                     to fp16, to global memory: the only store
//         +----+  +-------+-------+
//
// x is loaded once instead of twice, nothing is stored but the answer, and there is one launch
// instead of six. The main loop is wmma_tiled's of 3_matmul_tensorcore: tiles in shared memory,
// filled by asynchronous copies while the warps compute with earlier ones.
//
// WMMA does not say which thread holds which element of a fragment. So the biases enter as the
// accumulators' first values, loaded from a tile whose rows are all equal; the sigmoid and the
// product work on fragments of one type, where equal positions mean equal elements; and the
// conversion to fp16 goes through shared memory.
//
// When it pays: the talk's shape (--talk S: x[4 S^2, 128], W[128, 64]) does little arithmetic per
// byte, so its time is its traffic, and fusion removes most of that. The square shape (N) does 2 N
// / 3 operations per number moved: its time is the gemms', and fusion can only win what the
// elementwise kernels took; there the main loop must be as good as the library's.
#include <cuda_pipeline.h>
#include <mma.h>

#define GATING_UNFUSED_NO_MAIN
#include "5_gating_unfused.cu"
#include "demo.cuh"
#include "demo/gating.cuh"

namespace gating_fused {

namespace wmma = nvcuda::wmma;

constexpr int kFragment = 16;  // fragments are 16 x 16 x 16
using FragmentX = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentW = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

constexpr int kPatchPitch = 20;  // floats; a fragment on its way out is 16 x 16, padded to 20
constexpr int kPatch = kFragment * kPatchPitch;

constexpr int kBlockM = 128, kBlockH = 64,
              kBlockK = 32;              // a block's tiles: of x, of each W, of out
constexpr int kWarpM = 64, kWarpH = 32;  // a warp's part of out
constexpr int kStages = 3;
constexpr int kThreads = 32 * (kBlockM / kWarpM) * (kBlockH / kWarpH);
constexpr int kPad = 8;  // halfs behind each row, so that rows below each other lie in other banks

struct Stage {
    half x[kBlockM][kBlockK + kPad];
    half W1[kBlockK][kBlockH + kPad];
    half W2[kBlockK][kBlockH + kPad];
};
constexpr int kSharedBytes = kStages * sizeof(Stage);

/// A bias as a matrix: every row is b. Its height is a fragment's.
struct BiasTile {
    float v1[kFragment][kBlockH];
    float v2[kFragment][kBlockH];
};
static_assert(sizeof(BiasTile) <= sizeof(Stage));

/// Starts the asynchronous copy of a tile from[kRows, kColumns] into shared memory, 16 bytes at a
/// time. `rows` and `columns` say how much of the matrix there is from this corner on: what lies
/// outside becomes 0.
template <int kRows, int kColumns>
__device__ void copy_tile(half (*to)[kColumns + kPad], const half* from, size_t pitch, size_t rows,
                          size_t columns) {
    constexpr int kChunks = kColumns / 8;  // per row
    for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
        const int row = i / kChunks, col = i % kChunks * 8;
        const bool inside = size_t(row) < rows && size_t(col) < columns;
        __pipeline_memcpy_async(&to[row][col], inside ? &from[row * pitch + col] : from, 16,
                                inside ? 0 : 16);
    }
}

/// Stores a fragment as fp16. It goes through `patch` (kPatch floats of shared memory, this warp's
/// own): there every thread knows which elements it converts, 8 neighbours of one row.
__device__ void store_as_half(const Accumulator& accumulator, float* patch,
                              half* out,  // [16, 16] row-major, of a matrix with `pitch` columns
                              size_t pitch) {
    wmma::store_matrix_sync(patch, accumulator, kPatchPitch, wmma::mem_row_major);
    __syncwarp();
    const int lane = threadIdx.x % 32, row = lane / 2, col = lane % 2 * 8;
    alignas(16) half converted[8];
    for (int i = 0; i < 8; ++i) converted[i] = __float2half(patch[row * kPatchPitch + col + i]);
    *reinterpret_cast<uint4*>(&out[row * pitch + col]) = *reinterpret_cast<uint4*>(converted);
    __syncwarp();  // the patch may be overwritten
}

__device__ float sigmoid(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }

__global__ void __launch_bounds__(kThreads) gating_wmma(const half* x,   // [M, K] row-major
                                                        const half* W1,  // [K, H] row-major
                                                        const half* b1,  // [H]
                                                        const half* W2,  // [K, H] row-major
                                                        const half* b2,  // [H]
                                                        half* out,       // [M, H] row-major
                                                        size_t M, size_t K, size_t H) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* const stages = reinterpret_cast<Stage*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlockM, block_col = size_t(blockIdx.y) * kBlockH;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / (kBlockH / kWarpH) * kWarpM;
    const int warp_col = warp % (kBlockH / kWarpH) * kWarpH;

    auto copy_stage = [&](size_t t) {  // tile t of x, W1 and W2, into its stage
        Stage& stage = stages[t % kStages];
        const size_t k = t * kBlockK, rows = K - k, columns = H - block_col;
        copy_tile<kBlockM, kBlockK>(stage.x, &x[block_row * K + k], K, M - block_row, K - k);
        copy_tile<kBlockK, kBlockH>(stage.W1, &W1[k * H + block_col], H, rows, columns);
        copy_tile<kBlockK, kBlockH>(stage.W2, &W2[k * H + block_col], H, rows, columns);
    };
    const size_t tiles = K / kBlockK;
    for (size_t t = 0; t < kStages - 1; ++t) {
        if (t < tiles) copy_stage(t);
        __pipeline_commit();  // an empty group counts too, so that the wait below stays the same
    }

    // The accumulators begin as the biases. Their tile lies in the last stage, which is still free.
    BiasTile& bias = reinterpret_cast<BiasTile&>(stages[kStages - 1]);
    for (int i = threadIdx.x; i < kFragment * kBlockH; i += kThreads) {
        const int row = i / kBlockH, col = i % kBlockH;
        const bool inside = block_col + col < H;
        bias.v1[row][col] = inside ? __half2float(b1[block_col + col]) : 0;
        bias.v2[row][col] = inside ? __half2float(b2[block_col + col]) : 0;
    }
    __syncthreads();  // the biases are complete
    Accumulator v1[kWarpM / kFragment][kWarpH / kFragment];
    Accumulator v2[kWarpM / kFragment][kWarpH / kFragment];
    for (int i = 0; i < kWarpM / kFragment; ++i)
        for (int j = 0; j < kWarpH / kFragment; ++j) {
            const int col = warp_col + j * kFragment;
            wmma::load_matrix_sync(v1[i][j], &bias.v1[0][col], kBlockH, wmma::mem_row_major);
            wmma::load_matrix_sync(v2[i][j], &bias.v2[0][col], kBlockH, wmma::mem_row_major);
        }

    for (size_t t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's part of tile t has arrived
        __syncthreads();                     // everyone's has, and tile t - 1 is used up
        if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);
        __pipeline_commit();

        const Stage& stage = stages[t % kStages];
        for (int k = 0; k < kBlockK; k += kFragment) {
            FragmentX a[kWarpM / kFragment];
            for (int i = 0; i < kWarpM / kFragment; ++i)
                wmma::load_matrix_sync(a[i], &stage.x[warp_row + i * kFragment][k], kBlockK + kPad);
            for (int j = 0; j < kWarpH / kFragment; ++j) {
                FragmentW w1, w2;
                const int col = warp_col + j * kFragment;
                wmma::load_matrix_sync(w1, &stage.W1[k][col], kBlockH + kPad);
                wmma::load_matrix_sync(w2, &stage.W2[k][col], kBlockH + kPad);
                for (int i = 0; i < kWarpM / kFragment; ++i) {
                    wmma::mma_sync(v1[i][j], a[i], w1, v1[i][j]);
                    wmma::mma_sync(v2[i][j], a[i], w2, v2[i][j]);
                }
            }
        }
    }

    __syncthreads();  // the stages are used up: their memory serves the way out
    float* const patch = reinterpret_cast<float*>(shared) + warp * kPatch;
    for (int i = 0; i < kWarpM / kFragment; ++i)
        for (int j = 0; j < kWarpH / kFragment; ++j) {
            Accumulator& v = v1[i][j];
            for (int e = 0; e < v.num_elements; ++e) v.x[e] = sigmoid(v.x[e]) * v2[i][j].x[e];
            const size_t row = block_row + warp_row + i * kFragment;
            const size_t col = block_col + warp_col + j * kFragment;
            if (row < M && col < H)  // multiples of 32: a fragment is inside or outside
                store_as_half(v, patch, &out[row * H + col], H);
        }
}

/// How to launch it, for those who measure it.
inline demo::Contender contender(const demo::Gating& g) {
    // More than 48 KiB of shared memory per block must be asked for.
    DEMO_CHECK(cudaFuncSetAttribute(gating_wmma, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    kSharedBytes));
    auto launch = [&g] {
        const auto [M, K, H, name, size] = g.shape;
        const dim3 grid((M + kBlockM - 1) / kBlockM, (H + kBlockH - 1) / kBlockH);
        gating_wmma<<<grid, kThreads, kSharedBytes>>>(
            g.x.data(), g.W1.data(), g.b1.data(), g.W2.data(), g.b2.data(), g.out.data(), M, K, H);
    };
    return {.kernel = "fused_wmma",
            .check = g.check({}),
            .launch = launch,
            .moved_bytes = g.shape.workload().least_bytes};
}

}  // namespace gating_fused

#ifndef GATING_FUSED_NO_MAIN

int main(int argc, char** argv) {
    const demo::Options options =
        demo::parse_command_line(argc, argv,
                                 {.name = "6_gating_fused",
                                  .summary = "sigmoid(x W1 + b1) * (x W2 + b2) in one kernel",
                                  .kernels = {"fused_wmma", "six_kernels", "library_best"},
                                  .talk = true});
    const demo::Gpu gpu(options);
    demo::require_memory(options, [&](size_t size) {
        const auto shape = demo::GatingShape::of(options, size);
        return demo::saturating_sum(shape.bytes(), gating_unfused::Unfused::bytes(shape),
                                    gpu.flush_bytes());
    });
    const auto shape = demo::GatingShape::of(options);
    demo::Report report(options, gpu, shape.text());

    const demo::Gating gating(shape, options.seed);
    const gating_unfused::Unfused unfused(gating);
    report.run(shape.workload(), {gating_fused::contender(gating), unfused.six_kernels.contender(),
                                  unfused.library_best.contender()});
    report.ratio("fused_wmma", "six_kernels");
    report.ratio("fused_wmma", "library_best");
    return report.exit_code();
}

#endif
