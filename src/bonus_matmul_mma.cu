// Bonus: C = A B on the tensor cores of any GPU from Turing on, step by step: mma.sync.
//
// 3_matmul_tensorcore ends where WMMA ends: it does not specify which thread holds which element of
// a fragment. The instructions that WMMA is made of, ldmatrix and mma.sync, do. Each kernel here is
// the one before and one thing more:
//
//     mma_swizzled    known places: no padding in shared memory, sums rounded in registers
//     mma_pipelined   order: the next fragments are loaded while these are multiplied
//     mma_grouped     an order of blocks: those that run together share data in the L2 cache
//     mma_ptx         a wider tile where shared memory has room: fewer bytes per multiply-add
//
// All have wmma_tiled's plan: warps that compute 64 x 64 of C each, from stages that asynchronous
// copies fill. A fragment is made of 8 x 8 matrices of 16-bit numbers. ldmatrix loads four at a
// time, and leaves two neighbors of each in every lane (a thread's number within its warp):
//
//     row 0   | lane 0  | lane 1  | lane 2  | lane 3  |      mma.sync multiplies four of them (16 x
//     row 1   | lane 4  | lane 5  | lane 6  | lane 7  |      16 of A) by two (16 x 8 of B), and
//     ...     |         |         |         |         |      leaves its 16 x 8 sums in the same
//     row 7   | lane 28 | lane 29 | lane 30 | lane 31 |      order: two neighbors in a lane.
//
// What limits mma_ptx: mma.sync, which on Hopper does not reach the data sheet's rate, and at large
// N the GPU's power limit. bonus_matmul_hopper goes on with instructions that only Hopper has;
// bonus_gating_mma makes a fused layer of this main loop.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/matmul.cuh"
#include "kernels/matmul_mma.cuh"
#include "ptx.cuh"

namespace matmul_mma {

// --- 1: known places ----------------------------------------------------------------------------
//
// Adds:    ldmatrix and mma.sync instead of WMMA. Since each lane names the row that it reads, rows
//          of shared memory can have their chunks of 16 bytes in different orders, the swizzle:
//
//     chunk  0 1 2 3 4 5 6 7         Without it, the 8 rows of an 8 x 8 matrix begin in the same
//     row 0  a b c d e f g h         banks, and ldmatrix reads them one after the other. With it,
//     row 1  b a d c f e h g         all the a's are in different banks, the b's too, and so on:
//     row 2  c d a b g h e f         ldmatrix reads 8 rows at once, as with padding, but without
//     row 3  d c b a h g f e ...     the memory that padding takes.
//
//          And sums are rounded to fp16 in registers: a thread knows which they are.
// Costs:   rows of 64 numbers, to have 8 chunks: three stages of 32 KiB, where wmma_tiled's four
//          take 74 KiB.
// Limits:  latency. Before each 16 of k a warp waits for its fragments, and each of an SM's four
//          schedulers has only two warps.
// Source:  PTX ISA, ldmatrix and mma.m16n8k16; for the swizzle, CuTe's Swizzle<3, 3, 3>.

template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    mma_swizzled(const half* A,  // [N, N] row-major
                 const half* B,  // [N, N] row-major
                 half* C,        // [N, N] row-major
                 size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];
    typename T::Stage* const stages = reinterpret_cast<typename T::Stage*>(shared);
    const size_t block_row = size_t(blockIdx.y) * T::kM, block_col = size_t(blockIdx.x) * T::kN;
    const int lane = threadIdx.x % 32;

    // Tile t of A and of B, into a stage: each thread copies one column of chunks of both.
    const size_t k_copied = threadIdx.x % (kDepth / kChunk) * kChunk;
    const size_t col_copied = block_col + T::copied_col();
    auto copy = [&](int stage, size_t t) {
        const size_t k = t * kDepth;
        cp_async_tile<T::kM, kDepth, T::kThreads>(stages[stage].A, &A[block_row * N + k + k_copied],
                                                  N, k + k_copied < N ? N - block_row : 0);
        cp_async_tile<kDepth, T::kN, T::kThreads>(stages[stage].B, &B[k * N + col_copied], N,
                                                  k < N && col_copied < N ? N - k : 0);
        ptx::cp_async_commit_group();
    };

    Sums sums = {};
    for (int t = 0; t < T::kStages - 1; ++t) copy(t, t);
    int reading = 0, writing = T::kStages - 1;  // stages
#pragma unroll 1
    for (size_t t = 0; t * kDepth < N; ++t) {
        ptx::cp_async_wait_group<T::kStages - 2>();  // this thread's part of tile t has arrived
        __syncthreads();                             // everyone's has, and tile t - 1 is used up
        copy(writing, t + T::kStages - 1);           // past the last tile, zeros
        const typename T::Stage& stage = stages[reading];
#pragma unroll
        for (int k = 0; k < kDepth; k += 16) {
            // Four 8 x 8 matrices form 16 x 16. Lane i gives the address of row i % 16, of the left
            // half where i < 16, else of the right.
            Fragments a, b;
#pragma unroll
            for (int i = 0; i < kWarp / 16; ++i)
                ptx::ldmatrix_x4(a[i], &stage.A[swizzled<kDepth>(T::warp_row() + i * 16 + lane % 16,
                                                                 k + lane / 16 * kChunk)]);
#pragma unroll
            for (int j = 0; j < kWarp / 16; ++j)  // of B mma.sync wants neighbors of a column
                ptx::ldmatrix_x4_trans(
                    b[j], &stage.B[swizzled<T::kN>(k + lane % 16,
                                                   T::warp_col() + j * 16 + lane / 16 * kChunk)]);
            multiply_fragments(sums, a, b);
        }
        reading = reading + 1 == T::kStages ? 0 : reading + 1;
        writing = writing + 1 == T::kStages ? 0 : writing + 1;
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the stages are used up
    store_sums<T>(sums, reinterpret_cast<half*>(shared), C, N, block_row, block_col);
}

// --- 2: order -----------------------------------------------------------------------------------
//
// Adds:    a second set of fragments, in multiply() of kernels/matmul_mma.cuh. While one is
//          multiplied, the other is loaded for the next 16 of k. The barrier between two tiles
//          comes once the last fragments of the first are in registers, so that each warp leaves it
//          with fragments to multiply.
// Costs:   32 registers per thread.
// Limits:  at N = 8192 memory. The blocks that run together take whole rows of blocks of C, one
//          after the other: for these few rows of A they read all of B.
// Source:  CUTLASS, Efficient GEMM in CUDA, "Pipelining".

template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    mma_pipelined(const half* A,  // [N, N] row-major
                  const half* B,  // [N, N] row-major
                  half* C,        // [N, N] row-major
                  size_t N) {
    compute_tile<T>(A, B, C, N, size_t(blockIdx.y) * T::kM, size_t(blockIdx.x) * T::kN);
}

// --- 3: groups of blocks ------------------------------------------------------------------------
//
// Adds:    block_position(), an order of blocks. Those that run together make up nearly a square of
//          C, which needs the fewest rows of A and columns of B, and these stay in the L2 cache.
// Costs:   two integer divisions per block. At N = 2048 and 4096 the order hardly matters.
// Limits:  in part the L2 cache: for 64 multiply-adds, a block of 128 x 128 reads 2 bytes from it.
// Source:  CUTLASS, Efficient GEMM in CUDA, "Threadblock Rasterization".

template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    mma_grouped(const half* A,  // [N, N] row-major
                const half* B,  // [N, N] row-major
                half* C,        // [N, N] row-major
                size_t N) {
    const uint2 position = block_position((N + T::kM - 1) / T::kM, (N + T::kN - 1) / T::kN);
    compute_tile<T>(A, B, C, N, size_t(position.y) * T::kM, size_t(position.x) * T::kN);
}

// --- 4: the wide tile ---------------------------------------------------------------------------
//
// mma_ptx is at the end of kernels/matmul_mma.cuh, since 3_matmul_tensorcore runs it, too.

}  // namespace matmul_mma

static void run(demo::Session& session) {
    using namespace matmul_mma;
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    std::function<void()> swizzled, pipelined, grouped;
    with_square_tiles(session.gpu, [&]<class T>(T) {
        auto prepare = [&](auto kernel, dim3 grid) {
            demo::allow_shared_bytes(kernel, T::kSharedBytes);
            return
                [&, kernel, grid] { kernel<<<grid, T::kThreads, T::kSharedBytes>>>(A, B, C, N); };
        };
        const dim3 rectangle((N + T::kN - 1) / T::kN, (N + T::kM - 1) / T::kM);
        swizzled = prepare(mma_swizzled<T>, rectangle);
        pipelined = prepare(mma_pipelined<T>, rectangle);
        grouped = prepare(mma_grouped<T>, T::blocks(N, N));
    });

    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {{"mma_swizzled", demo::Role::kOurs, swizzled},
                 {"mma_pipelined", demo::Role::kOurs, pipelined},
                 {"mma_grouped", demo::Role::kOurs, grouped},
                 {"mma_ptx", demo::Role::kOurs, prepare_mma_ptx<half>(A, B, C, N, session.gpu)},
                 demo::cublas_contender<half>("cublas_fp16", A, B, C, N)});
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_matmul_mma",
        .summary = "tensor cores by mma.sync, on any GPU from Turing on, in four steps",
        .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
