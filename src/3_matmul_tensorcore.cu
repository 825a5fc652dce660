// 3: Matrix multiplication on the tensor cores: fp16 in and out, sums in fp32.
//
// A tensor core is a unit that multiplies small matrices. A block's threads run in warps of 32, and
// a warp uses one as a whole: its threads hold tiles of 16 x 16 ("fragments") together, spread over
// their registers, and one mma_sync does the 4096 multiply-adds of d[16,16] = a b + c. wmma_global
// loads two fragments from global memory for each mma_sync and waits for them: the cores starve.
//
// wmma_tiled feeds them. A warp computes 4 x 4 fragments of C, so that each fragment it has loaded
// is used 4 times. A block of 4 warps shares tiles in shared memory, as in 2_matmul_sharedmem. And
// it has several pairs of tiles ("stages"): while the warps compute with one, asynchronous copies
// fill the others.
//
//                  tile of B: 32 x 128              stages in shared memory (3 of 4):
//                  +--------+--------+                t      t+1    t+2
//                  +--------+--------+              +------+------+------+
//           +---+  +--------+--------+              | A  B | A  B | A  B |
//           |   |  | warp 0 | warp 1 |              +------+------+------+
//      tile +---+  +--------+--------+              compute  on their way
//      of A |   |  | warp 2 | warp 3 |
//           +---+  +--------+--------+
//       128 x 32      C: 128 x 128
//
// What limits it: waiting. A multiprocessor hides one warp's waits behind others' work, but 64 x 64
// sums and the fragments take some 230 registers a thread, so only 8 warps fit, and often none is
// ready. bonus_matmul_mma goes on, with the instructions WMMA is made of. Figures: docs/figures.md.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "matmul/matmul.cuh"
#include "matmul/matmul_record.cuh"
#include "matmul/wmma_tile.cuh"

using namespace wmma_tile;  // fragments, Stage, copy_tile, multiply, store_as_half, constants

// A block of 2 x 2 warps computes 32 x 32 of C, one fragment per warp.
__global__ void wmma_global(const half* A,  // [N, N] row-major
                            const half* B,  // [N, N] row-major
                            half* C,        // [N, N] row-major
                            size_t N) {
    alignas(32) __shared__ float patches[4][kPatch];  // scratch, to turn fp32 fragments into fp16
    const int warp = threadIdx.x / 32;
    const size_t row = size_t(blockIdx.y) * 32 + warp / 2 * kFragment;
    const size_t col = size_t(blockIdx.x) * 32 + warp % 2 * kFragment;

    Accumulator sums;
    wmma::fill_fragment(sums, 0.0f);
    for (size_t k = 0; k < N; k += kFragment) {
        FragmentA a;
        FragmentB b;
        wmma::load_matrix_sync(a, &A[row * N + k], N);
        wmma::load_matrix_sync(b, &B[k * N + col], N);
        wmma::mma_sync(sums, a, b, sums);
    }
    store_as_half(sums, patches[warp], &C[row * N + col], N);
}

// Of the same matrices: a block of 2 x 2 warps computes 128 x 128 of C, 4 x 4 fragments per warp.
template <int kStages>
__global__ void __launch_bounds__(kThreads)
    wmma_tiled(const half* A, const half* B, half* C, size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];  // of the size given at launch
    Stage* const stages = reinterpret_cast<Stage*>(shared);
    const size_t block_row = size_t(blockIdx.y) * kBlock, block_col = size_t(blockIdx.x) * kBlock;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;

    auto copy_stage = [&](size_t t) {  // tile t of A and of B, into its stage
        Stage& stage = stages[t % kStages];
        const size_t k = t * kBlockK;
        copy_tile<kBlock, kBlockK>(stage.A, &A[block_row * N + k], N, N - block_row, N - k);
        copy_tile<kBlockK, kBlock>(stage.B, &B[k * N + block_col], N, N - k, N - block_col);
    };

    Accumulator sums[kSide][kSide];
    for (auto& row : sums)
        for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);

    // A commit ends a group of this thread's copies, one group per tile; wait_prior(n) waits for
    // all groups but the last n. At tile t there are t + kStages - 1 groups, kStages - 2 of them
    // after tile t's. Past the last tile come empty groups, so that this stays so.
    const size_t tiles = N / kBlockK;
    for (size_t t = 0; t < kStages - 1; ++t) {
        if (t < tiles) copy_stage(t);
        __pipeline_commit();
    }
    for (size_t t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of tile t have arrived
        __syncthreads();                     // everyone's have, and tile t - 1 is used up
        if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);
        __pipeline_commit();
        const Stage& stage = stages[t % kStages];
        multiply(sums, &stage.A[warp_row], stage.B, warp_col);  // by 4 x 4 fragments
    }

    __syncthreads();  // the stages are used up: their memory serves as patches
    float* const patch = reinterpret_cast<float*>(shared) + warp * kPatch;
    for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j) {
            const size_t row = block_row + warp_row + i * kFragment;
            const size_t col = block_col + warp_col + j * kFragment;
            if (row < N && col < N)  // N is a multiple of 32: a fragment is inside or outside
                store_as_half(sums[i][j], patch, &C[row * N + col], N);
        }
}

static void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    const dim3 grid_global(N / 32, N / 32);
    auto launch_global = [&] { wmma_global<<<grid_global, 128>>>(A, B, C, N); };

    // Four stages where shared memory has room for them, three on Turing (compute capability 7.5).
    // More than 48 KiB must be asked for first.
    const bool four = session.gpu.shared_per_block >= 4 * sizeof(Stage);
    const auto tiled = four ? wmma_tiled<4> : wmma_tiled<3>;
    const size_t shared_bytes = (four ? 4 : 3) * sizeof(Stage);
    demo::allow_shared_bytes(tiled, shared_bytes);
    const dim3 grid_tiled((N + kBlock - 1) / kBlock, (N + kBlock - 1) / kBlock);
    auto launch_tiled = [&] { tiled<<<grid_tiled, kThreads, shared_bytes>>>(A, B, C, N); };

    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {{"wmma_global", demo::Role::kOurs, launch_global},
                 {"wmma_tiled", demo::Role::kOurs, launch_tiled},
                 demo::cublas_contender<half>("cublas_fp16", A, B, C, N)},
                matmul_records(A, B, C, N, session.gpu));  // the suite's fastest: see the bonuses
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "3_matmul_tensorcore",
                                .summary = "tensor cores, why they starve, and what feeds them",
                                .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
