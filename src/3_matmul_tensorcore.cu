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
//              What limits it: latency. 64 x 64 sums and the fragments take 232 registers a thread,
//              so only two blocks fit an SM: two warps per scheduler. On an H200 these find
//              something to issue in 40% of the cycles; the rest is waiting for fragments and for
//              the tensor cores to answer. And WMMA offers no way to say otherwise.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/matmul.cuh"
#include "kernels/wmma_tile.cuh"

using namespace wmma_tile;

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

template <int kStages>
__global__ void __launch_bounds__(kThreads) wmma_tiled(const half* A,  // [N, N] row-major
                                                       const half* B,  // [N, N] row-major
                                                       half* C,        // [N, N] row-major
                                                       size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];
    const size_t block_row = size_t(blockIdx.y) * kBlockM, block_col = size_t(blockIdx.x) * kBlockN;

    WarpTile tile;
    multiply_tiles<kStages>(
        tile, reinterpret_cast<Stage*>(shared), N / kBlockK, [&](Stage& stage, size_t t) {
            const size_t k = t * kBlockK;
            copy_tile<kBlockM, kBlockK>(stage.A[0], kBlockK + kPad, &A[block_row * N + k], N,
                                        N - block_row, N - k);
            copy_tile<kBlockK, kBlockN>(stage.B[0], kBlockN + kPad, &B[k * N + block_col], N, N - k,
                                        N - block_col);
        });

    float* const patch = reinterpret_cast<float*>(shared) + threadIdx.x / 32 * kPatch;
    for (int i = 0; i < kWarpM / kFragment; ++i)
        for (int j = 0; j < kWarpN / kFragment; ++j) {
            const size_t row = block_row + tile.row + i * kFragment;
            const size_t col = block_col + tile.col + j * kFragment;
            if (row < N && col < N)  // N is a multiple of 32: a fragment is inside or outside
                store_as_half(tile.sums[i][j], patch, &C[row * N + col], N);
        }
}

static void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    auto launch_global = [&] {
        const dim3 grid(N / 32, N / 32);
        wmma_global<<<grid, 128>>>(A, B, C, N);
    };
    // Four stages where shared memory has room for them, three on Turing.
    const bool four = session.gpu.shared_per_block >= 4 * sizeof(Stage);
    const auto kernel = four ? wmma_tiled<4> : wmma_tiled<3>;
    const size_t shared_bytes = (four ? 4 : 3) * sizeof(Stage);
    demo::allow_shared_bytes(kernel, shared_bytes);
    auto launch_tiled = [&] {
        const dim3 grid((N + kBlockN - 1) / kBlockN, (N + kBlockM - 1) / kBlockM);
        kernel<<<grid, kThreads, shared_bytes>>>(A, B, C, N);
    };

    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {{"wmma_global", demo::Role::kOurs, launch_global},
                 {"wmma_tiled", demo::Role::kOurs, launch_tiled},
                 demo::cublas_contender<half>("cublas_fp16", A, B, C, N)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "3_matmul_tensorcore",
                                .summary = "C = A B on the tensor cores, fp16 with fp32 sums",
                                .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
