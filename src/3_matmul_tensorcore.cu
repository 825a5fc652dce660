// 3: Matrix multiplication on the tensor cores: fp16 in and out, sums in fp32.
//
// A tensor core multiplies small matrices. Through nvcuda::wmma a warp works as one: its 32 threads
// hold 16 x 16 tiles ("fragments") spread over their registers, and one mma_sync does the 4096
// multiply-adds of  acc[16,16] += a[16,16] b[16,16].  Which thread holds which element is not
// specified, so fragments are loaded, multiplied and stored whole.
//
// wmma_global  the first attempt: every warp loads its fragments straight from global memory. For
//              16 * 16 * 16 multiply-adds it fetches 2 * 16 * 16 numbers, in short rows of 32
//              bytes, and then waits for them. The tensor cores starve.
//
// wmma_tiled   feeds them. A block of 4 warps computes 128 x 128 of C; each warp 64 x 64 of that,
//              as 4 x 4 fragments, so that a fragment, once in registers, is used 4 times:
//
//                     tile of B: 32 x 128                  stages in shared memory:
//                     +--------+--------+
//                     |        |        |                    t      t+1    t+2
//                     +--------+--------+                  +------+------+------+
//              +---+  +--------+--------+                  | A  B | A  B | A  B |
//              |   |  | warp 0 | warp 1 |                  +------+------+------+
//         tile +---+  +--------+--------+                  compute  on their way
//         of A |   |  | warp 2 | warp 3 |
//              +---+  +--------+--------+
//         128 x 32         C: 128 x 128
//
//              While the warps compute with one stage, asynchronous copies fill the next ones
//              straight from global memory, without passing through registers. Rows in shared
//              memory are padded by 16 bytes, so that rows below each other lie in other banks.
//
// What limits wmma_tiled: latency. 64 x 64 sums and the fragments take 232 registers a thread, so
// only two blocks fit an SM: two warps per scheduler. On an H200 these find something to issue in
// 40% of the cycles; the rest is waiting for fragments and for the tensor cores to answer.
#include <cuda_pipeline.h>
#include <mma.h>

#define MATMUL_CUBLAS_NO_MAIN
#include "4_matmul_cublas.cu"
#include "demo.cuh"
#include "demo/matmul.cuh"

namespace matmul_tensorcore {

namespace wmma = nvcuda::wmma;

constexpr int kFragment = 16;  // fragments are 16 x 16 x 16
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

constexpr int kPatchPitch = 20;  // floats; a fragment on its way out is 16 x 16, padded to 20
constexpr int kPatch = kFragment * kPatchPitch;

/// Stores a fragment as fp16. It goes through `patch` (kPatch floats of shared memory, this warp's
/// own): there every thread knows which elements it converts, 8 neighbours of one row.
__device__ void store_as_half(const Accumulator& accumulator, float* patch,
                              half* C,  // [16, 16] row-major, part of a matrix with `pitch` columns
                              size_t pitch) {
    wmma::store_matrix_sync(patch, accumulator, kPatchPitch, wmma::mem_row_major);
    __syncwarp();
    const int lane = threadIdx.x % 32, row = lane / 2, col = lane % 2 * 8;
    alignas(16) half converted[8];
    for (int i = 0; i < 8; ++i) converted[i] = __float2half(patch[row * kPatchPitch + col + i]);
    *reinterpret_cast<uint4*>(&C[row * pitch + col]) = *reinterpret_cast<uint4*>(converted);
    __syncwarp();  // the patch may be overwritten
}

// A block of 2 x 2 warps computes 32 x 32 of C, one fragment per warp.
__global__ void wmma_global(const half* A,  // [N, N] row-major
                            const half* B,  // [N, N] row-major
                            half* C,        // [N, N] row-major
                            size_t N) {
    alignas(32) __shared__ float patches[4][kPatch];
    const int warp = threadIdx.x / 32;
    const size_t row = size_t(blockIdx.y) * 32 + warp / 2 * kFragment;
    const size_t col = size_t(blockIdx.x) * 32 + warp % 2 * kFragment;

    Accumulator accumulator;
    wmma::fill_fragment(accumulator, 0.0f);
    for (size_t k = 0; k < N; k += kFragment) {
        FragmentA a;
        FragmentB b;
        wmma::load_matrix_sync(a, &A[row * N + k], N);
        wmma::load_matrix_sync(b, &B[k * N + col], N);
        wmma::mma_sync(accumulator, a, b, accumulator);
    }
    store_as_half(accumulator, patches[warp], &C[row * N + col], N);
}

constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 32;  // a block's tiles
constexpr int kWarpM = 64, kWarpN = 64;                    // a warp's part of C
constexpr int kThreads = 32 * (kBlockM / kWarpM) * (kBlockN / kWarpN);
constexpr int kPad = 8;  // halfs behind each row

struct Stage {
    half A[kBlockM][kBlockK + kPad];
    half B[kBlockK][kBlockN + kPad];
};

/// Starts the asynchronous copy of a tile from[kRows, kColumns] into shared memory, 16 bytes at a
/// time. `rows` and `columns` say how much of the matrix there is from this corner on: what lies
/// outside becomes 0.
template <int kRows, int kColumns>
__device__ void copy_tile(half (*to)[kColumns + kPad], const half* from, size_t pitch, size_t rows,
                          size_t columns) {
    constexpr int kChunks = kColumns / 8;  // per row
    const int col = threadIdx.x % kChunks * 8;
    for (int row = threadIdx.x / kChunks; row < kRows; row += kThreads / kChunks) {
        const bool inside = size_t(row) < rows && size_t(col) < columns;
        __pipeline_memcpy_async(&to[row][col], &from[inside ? row * pitch + col : 0], 16,
                                inside ? 0 : 16);
    }
}

template <int kStages>
__global__ void __launch_bounds__(kThreads) wmma_tiled(const half* A,  // [N, N] row-major
                                                       const half* B,  // [N, N] row-major
                                                       half* C,        // [N, N] row-major
                                                       size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* const stages = reinterpret_cast<Stage*>(shared);
    const size_t block_row = size_t(blockIdx.y) * kBlockM, block_col = size_t(blockIdx.x) * kBlockN;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / (kBlockN / kWarpN) * kWarpM;
    const int warp_col = warp % (kBlockN / kWarpN) * kWarpN;

    auto copy_stage = [&](size_t t) {  // tile t of A and of B, into its stage
        Stage& stage = stages[t % kStages];
        const size_t k = t * kBlockK;
        copy_tile<kBlockM, kBlockK>(stage.A, &A[block_row * N + k], N, N - block_row, N - k);
        copy_tile<kBlockK, kBlockN>(stage.B, &B[k * N + block_col], N, N - k, N - block_col);
    };

    Accumulator accumulators[kWarpM / kFragment][kWarpN / kFragment];
    for (auto& row : accumulators)
        for (auto& accumulator : row) wmma::fill_fragment(accumulator, 0.0f);

    const size_t tiles = N / kBlockK;
    for (size_t t = 0; t < kStages - 1; ++t) {
        if (t < tiles) copy_stage(t);
        __pipeline_commit();  // an empty group counts too, so that the wait below stays the same
    }
    for (size_t t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's part of tile t has arrived
        __syncthreads();                     // everyone's has, and tile t - 1 is used up
        if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);
        __pipeline_commit();

        const Stage& stage = stages[t % kStages];
        for (int k = 0; k < kBlockK; k += kFragment) {
            FragmentA a[kWarpM / kFragment];
            for (int i = 0; i < kWarpM / kFragment; ++i)
                wmma::load_matrix_sync(a[i], &stage.A[warp_row + i * kFragment][k], kBlockK + kPad);
            for (int j = 0; j < kWarpN / kFragment; ++j) {
                FragmentB b;
                wmma::load_matrix_sync(b, &stage.B[k][warp_col + j * kFragment], kBlockN + kPad);
                for (int i = 0; i < kWarpM / kFragment; ++i)
                    wmma::mma_sync(accumulators[i][j], a[i], b, accumulators[i][j]);
            }
        }
    }

    __syncthreads();  // the stages are used up: their memory serves the way out
    float* const patch = reinterpret_cast<float*>(shared) + warp * kPatch;
    for (int i = 0; i < kWarpM / kFragment; ++i)
        for (int j = 0; j < kWarpN / kFragment; ++j) {
            const size_t row = block_row + warp_row + i * kFragment;
            const size_t col = block_col + warp_col + j * kFragment;
            if (row < N && col < N)  // N is a multiple of 32: a fragment is inside or outside
                store_as_half(accumulators[i][j], patch, &C[row * N + col], N);
        }
}

}  // namespace matmul_tensorcore

#ifndef MATMUL_TENSORCORE_NO_MAIN

int main(int argc, char** argv) {
    using namespace matmul_tensorcore;
    const demo::Options options =
        demo::parse_command_line(argc, argv,
                                 {"3_matmul_tensorcore",
                                  "C = A B on the tensor cores, fp16 with fp32 sums",
                                  {"wmma_global", "wmma_tiled", "cublas_fp16"}});
    const demo::Gpu gpu(options);
    const size_t N = options.n;
    demo::require_memory(options, [&](size_t n) {
        return demo::matmul_bytes<half>(options, gpu, n, demo::kCublasWorkspace);
    });
    demo::Report report(options, gpu, "N = " + std::to_string(N) + ", fp16, fp32 sums");

    demo::Buffer<half> A(N * N), B(N * N), C(N * N);
    demo::fill_uniform(A, options.seed);
    demo::fill_uniform(B, options.seed + 1);
    const demo::MatmulReference reference(A.data(), B.data(), N, N, N, options.seed);

    auto launch_global = [&] {
        const dim3 grid(N / 32, N / 32);
        wmma_global<<<grid, 128>>>(A.data(), B.data(), C.data(), N);
    };
    // Four stages where shared memory has room for them, three on Turing.
    const bool four = gpu.shared_per_block >= 4 * sizeof(Stage);
    const auto kernel = four ? wmma_tiled<4> : wmma_tiled<3>;
    const int shared_bytes = (four ? 4 : 3) * sizeof(Stage);
    DEMO_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shared_bytes));  // more than 48 KiB must be asked for
    auto launch_tiled = [&] {
        const dim3 grid((N + kBlockN - 1) / kBlockN, (N + kBlockM - 1) / kBlockM);
        kernel<<<grid, kThreads, shared_bytes>>>(A.data(), B.data(), C.data(), N);
    };
    const demo::Cublas cublas;
    auto launch_cublas = [&] {
        matmul_cublas::gemm(cublas, CUBLAS_COMPUTE_32F, A.data(), B.data(), C.data(), N);
    };

    const demo::Check check = reference.check(C.data());
    report.run(demo::matmul_workload<half>(N, "fp16"), {{"wmma_global", check, launch_global},
                                                        {"wmma_tiled", check, launch_tiled},
                                                        {"cublas_fp16", check, launch_cublas}});
    report.ratio("wmma_tiled", "cublas_fp16");
    return report.exit_code();
}

#endif
