// 3: Matrix multiplication on the tensor cores: fp16 in and out, sums in fp32.
//
// A tensor core is a unit that multiplies small matrices. A block's threads run in warps of 32, and
// a warp uses one as a whole: its threads hold tiles of 16 x 16 ("fragments") together, spread over
// their registers, and one mma_sync does the 4096 multiply-adds of d[16,16] = a b + c. That takes
// few clocks, but global memory takes hundreds to answer. What matters is how the data gets there:
//
//                  for a step of 16 in k a warp                            operations per byte
// wmma_global      loads 2 fragments, waits, multiplies once               8
// wmma_registers   loads 4 + 4, waits, multiplies 16 times: 4 x 4 of C     32
// wmma_tiled       loads 4 + 4 from tiles that 4 warps share (lesson 2)    64
//
// Warps ask global memory for these bytes: the more each byte is used, the less time goes into
// loading. wmma_tiled is three steps in one: its warps share tiles; padding avoids bank conflicts
// (exercise 13); threads start copies to shared memory, and multiply meanwhile (14).
//
// What limits wmma_tiled: shared memory takes some 30 clocks to answer. Other warps could work
// meanwhile, but sums and fragments are 230 registers a thread, and a multiprocessor's 65,536 hold
// 8 such warps. Often none is ready. bonus_matmul_mma goes on, with the instructions below WMMA.
// H200, N = 4096, ms: wmma_global 4.83, wmma_registers 1.27, wmma_tiled 0.453 (docs/figures.md)
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "matmul/matmul.cuh"
#include "matmul/matmul_record.cuh"
#include "matmul/wmma_tile.cuh"

using namespace wmma_tile;  // kFragment = 16, kSide = 4, kWarp = 64, kBlock = 128, kBlockK = 32

// --- Two fragments for each product --------------------------------------------------------------

// A block of 2 x 2 warps computes 32 x 32 of C, one fragment per warp.
__global__ void wmma_global(const half* A,  // [N, N] row-major
                            const half* B,  // [N, N] row-major
                            half* C,        // [N, N] row-major
                            size_t N) {
    alignas(32) __shared__ float patches[4][kPatch];  // one per warp: its sums go to C through it
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

// --- 4 + 4 fragments for 16 products -------------------------------------------------------------

__device__ void fill_with_0(Accumulator (&sums)[kSide][kSide]) {
    for (auto& row : sums)
        for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);
}

/// Stores a warp's 4 x 4 fragments to C, from [row, col] on, as far as they are inside of it. (N is
/// a multiple of 32, so a fragment of 16 x 16 is inside or outside as a whole.)
__device__ void store_sums(const Accumulator (&sums)[kSide][kSide], float* patch, half* C,
                           size_t row, size_t col, size_t N) {
    for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j) {
            const size_t r = row + i * kFragment, c = col + j * kFragment;
            if (r < N && c < N) store_as_half(sums[i][j], patch, &C[r * N + c], N);
        }
}

// A block of 2 x 2 warps computes 128 x 128 of C, 4 x 4 fragments per warp. __launch_bounds__(n)
// promises the compiler that a block has no more than n threads, so it knows how many registers
// each may have. A second number (lesson 12) says how many blocks should fit a multiprocessor.
__global__ void __launch_bounds__(kThreads)
    wmma_registers(const half* A, const half* B, half* C, size_t N) {
    alignas(32) __shared__ float patches[4][kPatch];
    const int warp = threadIdx.x / 32;
    const size_t row = size_t(blockIdx.y) * kBlock + warp / 2 * kWarp;
    const size_t col = size_t(blockIdx.x) * kBlock + warp % 2 * kWarp;
    // At C's edges a fragment may be outside. Its sums are not stored, so any data will do for it:
    // it reads the last fragment that is inside.
    const size_t last = N - kFragment;

    Accumulator sums[kSide][kSide];
    fill_with_0(sums);
    for (size_t k = 0; k < N; k += kFragment) {
        FragmentA a[kSide];
        FragmentB b[kSide];
        for (int i = 0; i < kSide; ++i) {
            wmma::load_matrix_sync(a[i], &A[min(row + i * kFragment, last) * N + k], N);
            wmma::load_matrix_sync(b[i], &B[k * N + min(col + i * kFragment, last)], N);
        }
        for (int i = 0; i < kSide; ++i)
            for (int j = 0; j < kSide; ++j) wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
    }
    store_sums(sums, patches[warp], C, row, col, N);
}

// --- The same from shared memory, in stages ------------------------------------------------------
//
// A block's 4 warps share a tile of A and one of B. There is room for several such pairs, the
// stages: while the warps compute with one, asynchronous copies fill the others.
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
template <int kStages>
__global__ void __launch_bounds__(kThreads)
    wmma_tiled(const half* A, const half* B, half* C, size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];  // of the size given at launch
    Stage* const stages = reinterpret_cast<Stage*>(shared);   // [kStages]
    const size_t block_row = size_t(blockIdx.y) * kBlock, block_col = size_t(blockIdx.x) * kBlock;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    const size_t tiles = N / kBlockK;  // along k

    // Starts this thread's copies for tile t of A and of B. A commit makes them a group, which
    // wait_prior() below can wait for. Past the last tile the group is empty. So tile t is always
    // group t, and the loop needs no special case at its end.
    auto copy_stage = [&](size_t t) {
        if (t < tiles) {
            Stage& stage = stages[t % kStages];
            const size_t k = t * kBlockK;
            const size_t rows = N - block_row, cols = N - block_col, depth = N - k;  // that remain
            copy_tile<kBlock, kBlockK>(stage.A, &A[block_row * N + k], N, rows, depth);
            copy_tile<kBlockK, kBlock>(stage.B, &B[k * N + block_col], N, depth, cols);
        }
        __pipeline_commit();
    };

    Accumulator sums[kSide][kSide];
    fill_with_0(sums);
    for (size_t t = 0; t < kStages - 1; ++t) copy_stage(t);
    // With 4 stages, at tile t the copies up to tile t + 2 have been started. wait_prior(2) waits
    // for all groups but the last two: for tile t, while t + 1 and t + 2 may be on their way.
    for (size_t t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of tile t have arrived
        __syncthreads();                     // everyone's have, and tile t - 1 is used up
        copy_stage(t + kStages - 1);         // over tile t - 1
        const Stage& stage = stages[t % kStages];
        multiply(sums, &stage.A[warp_row], stage.B, warp_col);  // by 4 x 4 fragments
    }

    __syncthreads();  // nobody needs the stages any more: their memory serves as patches
    float* const patch = reinterpret_cast<float*>(shared) + warp * kPatch;
    store_sums(sums, patch, C, block_row + warp_row, block_col + warp_col, N);
}

static void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    const dim3 grid_global(N / 32, N / 32);
    auto launch_global = [&] { wmma_global<<<grid_global, 128>>>(A, B, C, N); };

    const size_t blocks = (N + kBlock - 1) / kBlock;  // in a row of C; the last may end outside
    const dim3 grid_tiled(blocks, blocks);
    auto launch_registers = [&] { wmma_registers<<<grid_tiled, kThreads>>>(A, B, C, N); };

    // Four stages where shared memory has room for them, three on Turing (compute capability 7.5).
    // More than 48 KiB must be asked for first.
    const bool four = session.gpu.shared_per_block >= 4 * sizeof(Stage);
    const auto tiled = four ? wmma_tiled<4> : wmma_tiled<3>;
    const size_t shared_bytes = (four ? 4 : 3) * sizeof(Stage);
    demo::allow_shared_bytes(tiled, shared_bytes);
    auto launch_tiled = [&] { tiled<<<grid_tiled, kThreads, shared_bytes>>>(A, B, C, N); };

    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {{"wmma_global", demo::Role::kOurs, launch_global},
                 {"wmma_registers", demo::Role::kOurs, launch_registers},
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
