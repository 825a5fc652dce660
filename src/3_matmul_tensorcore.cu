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
//
// mma_ptx      the same by hand, in the machine's own instructions (ptx.cuh names them). What that
//              buys: known places. It is said which thread holds which element, so sums leave the
//              registers as fp16; and shared memory needs no padding, because each row may keep its
//              16-byte chunks in an order of its own (swizzled(), below):
//
//                  chunk  0 1 2 3 4 5 6 7               Without it, the 8 rows of an 8 x 8 matrix
//                  row 0  a b c d e f g h               begin in the same banks, and ldmatrix has
//                  row 1  b a d c f e h g               to read them one after the other. With it,
//                  row 2  c d a b g h e f               all the a's lie in different banks, the
//                  row 3  d c b a h g f e ...           b's too, and 8 rows are one access.
//
//              And order: while a warp multiplies the fragments of one step of k, those of the next
//              are loaded; the barrier comes where fragments for one more step are at hand. A block
//              takes 128 x 256 of C, where shared memory has room for the stages: it reads 3/4 of
//              the bytes per multiply-add that 128 x 128 reads.
//
// What limits mma_ptx: mma.sync itself. On an H200 one takes the tensor cores of a quarter SM for 6
// cycles; at the rate in the data sheet it would be 4, which only instructions that multiply
// straight from shared memory reach. Of the rate of mma.sync it gets 83%. The other sixth: a
// block's first loads and last stores, and moments in which both warps of a scheduler wait, behind
// a copy or at the barrier; without its copies it would be 92%. At N = 8192, kept busy, the chip is
// at its limit of power and lowers the clock: a loop of nothing but mma.sync is then no faster than
// 0.73 x cuBLAS.
#include <cuda_pipeline.h>
#include <mma.h>

#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/matmul.cuh"
#include "ptx.cuh"

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

// --- By hand ------------------------------------------------------------------------------------

constexpr int kDepth = 64;  // k of a stage
constexpr int kWarp = 64;   // a warp computes 64 x 64 of C: 4 x 8 products of 16 x 8
constexpr int kChunk = 8;   // halfs in 16 bytes, the unit of copies and of the swizzle

/// A thread's part of a warp's 64 x 64 sums. ptx::mma_m16n8k16 says which elements these are.
using Sums = float[kWarp / 16][kWarp / 8][4];

/// The tiles of a block, and its stages in shared memory.
template <int kRows, int kColumns, int kStageCount>
struct Tiles {
    static constexpr int kM = kRows, kN = kColumns, kStages = kStageCount;
    static constexpr int kThreads = 32 * (kM / kWarp) * (kN / kWarp);
    struct Stage {
        half A[kM * kDepth];  // [kM, kDepth], swizzled
        half B[kDepth * kN];  // [kDepth, kN], swizzled
    };

    static constexpr size_t kSharedBytes = kStages * sizeof(Stage);

    /// How many of them cover a matrix [M, N].
    static size_t blocks(size_t M, size_t N) { return ((M + kM - 1) / kM) * ((N + kN - 1) / kN); }
    /// Where this thread's warp stands in the block's tile of C.
    __device__ static int warp_row() { return int(threadIdx.x) / 32 / (kN / kWarp) * kWarp; }
    __device__ static int warp_col() { return int(threadIdx.x) / 32 % (kN / kWarp) * kWarp; }
    /// Which column of B's tile is the first that this thread copies.
    __device__ static int copied_col() { return int(threadIdx.x) % (kN / kChunk) * kChunk; }
};

/// Where [row, col] lies in a swizzled tile; `col` is a multiple of kChunk. Rows below each other
/// begin in the same bank. So each keeps its chunks in an order of its own: chunk c lies in place
/// c ^ (row % 8), and 8 rows, which is what ldmatrix reads at a time, lie in all 32 banks.
template <int kColumns>
__device__ int swizzled(int row, int col) {
    static_assert(kColumns % 64 == 0);
    return row * kColumns + ((col / kChunk) ^ (row % 8)) * kChunk;
}

/// Starts the asynchronous copy of a tile [kRows, kColumns]. Each thread takes one column of
/// chunks, and of that every kStep-th row. `from` is its chunk in the tile's first row; the matrix
/// has `rows` more rows from there on: what lies below becomes 0.
template <int kRows, int kColumns, int kThreads>
__device__ void copy_swizzled(half* to, const half* from, size_t pitch, size_t rows) {
    constexpr int kChunks = kColumns / kChunk, kStep = kThreads / kChunks;
    const int row = threadIdx.x / kChunks, col = threadIdx.x % kChunks * kChunk;
    const int below = int(min(rows, size_t(kRows))) - row;
    from += row * pitch;
#pragma unroll ptx::kCopiesInARow
    for (int i = 0; i < kRows; i += kStep, from += kStep * pitch)
        ptx::cp_async_16(&to[swizzled<kColumns>(row + i, col)], from, i < below);
}

/// The main loop: sums += A[kM, K] B[K, kN] for the warp's part of the block's tile: 64 columns of
/// B, or with kHalves 32 of its tile's left half and the same 32 of the right one.
template <class T, bool kHalves = false>
__device__ void multiply(Sums& sums, typename T::Stage* stages, size_t K,
                         const half* A,  // the block's first row, of `rows`
                         size_t A_pitch, size_t rows,
                         const half* B,  // the first row, at the thread's copied_col() ...
                         size_t B_pitch, bool inside) {  // ... which may lie outside of B
    constexpr int kSteps = kDepth / 16;
    const int lane = threadIdx.x % 32;

    // Tile t of A and of B, into a stage. Past the last tile, zeros.
    const int k_copied = threadIdx.x % (kDepth / kChunk) * kChunk;  // the thread's column of A
    auto copy = [&](typename T::Stage& stage, size_t t) {
        const size_t k = t * kDepth;
        copy_swizzled<T::kM, kDepth, T::kThreads>(stage.A, &A[k + k_copied], A_pitch,
                                                  k + k_copied < K ? rows : 0);
        copy_swizzled<kDepth, T::kN, T::kThreads>(stage.B, &B[k * B_pitch], B_pitch,
                                                  inside && k < K ? K - k : 0);
        ptx::cp_async_commit_group();
    };

    // Fragments for two steps of k: one is multiplied while the other is loaded. Lane i names row
    // i % 16 of a 16 x 16 tile, and its left or right half.
    uint32_t a[2][kWarp / 16][4], b[2][kWarp / 16][4];
    int a_at[kSteps], b_at[kWarp / 16];  // where the lane's rows lie in a stage
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
        a_at[k] = swizzled<kDepth>(T::warp_row() + lane % 16, k * 16 + lane / 16 * kChunk);
#pragma unroll
    for (int j = 0; j < kWarp / 16; ++j) {
        const int col =
            kHalves ? T::warp_col() / 2 + j / 2 * (T::kN / 2) + j % 2 * 16 : T::warp_col() + j * 16;
        b_at[j] = swizzled<T::kN>(lane % 16, col + lane / 16 * kChunk);
    }
    auto load = [&](const typename T::Stage& stage, int k) {
#pragma unroll
        for (int i = 0; i < kWarp / 16; ++i)
            ptx::ldmatrix_x4(a[k % 2][i], &stage.A[a_at[k] + i * 16 * kDepth]);
#pragma unroll
        for (int j = 0; j < kWarp / 16; ++j)
            ptx::ldmatrix_x4_trans(b[k % 2][j], &stage.B[b_at[j] + k * 16 * T::kN]);
    };

    for (int t = 0; t < T::kStages - 1; ++t) copy(stages[t], t);
    ptx::cp_async_wait_group<T::kStages - 2>();
    __syncthreads();  // tile 0 is complete
    load(stages[0], 0);

    int reading = 0, writing = T::kStages - 1;  // stages
#pragma unroll 1
    for (size_t t = 0; t * kDepth < K; ++t) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            if (k + 1 == kSteps) {  // the next fragments are the next tile's
                ptx::cp_async_wait_group<T::kStages - 2>();
                __syncthreads();  // it is complete, and nobody needs this one any more
                reading = reading + 1 == T::kStages ? 0 : reading + 1;
            }
            load(stages[reading], (k + 1) % kSteps);
            if (k == 0) {
                copy(stages[writing], t + T::kStages - 1);
                writing = writing + 1 == T::kStages ? 0 : writing + 1;
            }
#pragma unroll
            for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
                for (int n = 0; n < kWarp / 8; ++n) {
                    const int j = i % 2 ? kWarp / 8 - 1 - n : n;  // back and forth: b is at hand
                    const uint32_t(&pair)[4] = b[k % 2][j / 2];
                    ptx::mma_m16n8k16(sums[i][j], a[k % 2][i], pair[j % 2 * 2],
                                      pair[j % 2 * 2 + 1]);
                }
        }
    }
}

/// Two sums as fp16, in the 32 bits that neighbours in a row take.
__device__ uint32_t pack(float low, float high) {
    const half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

/// The row and column of blocks that this one computes. Blocks that run at the same time shall find
/// each other's rows of A and columns of B in the L2 cache, so they stand in a square, nearly: the
/// walk goes down a group of 16 rows of blocks, then on to the next column.
__device__ uint2 block_position(unsigned int rows, unsigned int columns) {
    constexpr unsigned int kGroup = 16;
    const unsigned int group = blockIdx.x / (kGroup * columns), i = blockIdx.x % (kGroup * columns);
    const unsigned int height = min(kGroup, rows - group * kGroup);
    return {i / height, group * kGroup + i % height};
}

// Two blocks of four warps, or one of eight, share an SM's registers: 255 per thread.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    mma_ptx(const half* A,  // [N, N] row-major
            const half* B,  // [N, N] row-major
            half* C,        // [N, N] row-major
            size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint2 position = block_position((N + T::kM - 1) / T::kM, (N + T::kN - 1) / T::kN);
    const size_t block_row = size_t(position.y) * T::kM, block_col = size_t(position.x) * T::kN;

    Sums sums = {};
    const size_t copied_col = block_col + T::copied_col();
    multiply<T>(sums, reinterpret_cast<typename T::Stage*>(shared), N, &A[block_row * N], N,
                N - block_row, &B[copied_col], N, copied_col < N);

    // The way out: by way of shared memory each thread gets 8 neighbours of a row, 16 bytes.
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the stages are used up: each warp takes 64 x 64 halfs of their memory
    half* const patch = reinterpret_cast<half*>(shared) + threadIdx.x / 32 * (kWarp * kWarp);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarp / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; e += 2)  // sums 2 and 3 are of 8 rows below
                *reinterpret_cast<uint32_t*>(
                    &patch[swizzled<kWarp>(i * 16 + e * 4 + lane / 4, j * 8) + lane % 4 * 2]) =
                    pack(sums[i][j][e], sums[i][j][e + 1]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kWarp; i += 4) {
        const int r = i + lane / 8, c = lane % 8 * kChunk;
        const size_t row = block_row + T::warp_row() + r, col = block_col + T::warp_col() + c;
        if (row < N && col < N)  // N is a multiple of 8: all of them are inside or none
            *reinterpret_cast<uint4*>(&C[row * N + col]) =
                *reinterpret_cast<uint4*>(&patch[swizzled<kWarp>(r, c)]);
    }
}

/// Calls f with the tiles that suit this GPU and an output [M, N]. The wide ones read the fewest
/// bytes per multiply-add; but there has to be room for their stages, 144 KiB, and a block for
/// every SM. On Turing, with 64 KiB, two stages of the others have to do.
template <class F>
auto with_tiles(const demo::Gpu& gpu, size_t M, size_t N, F f) {
    using Wide = Tiles<128, 256, 3>;
    using Square = Tiles<128, 128, 3>;
    if (Wide::kSharedBytes <= gpu.shared_per_block && Wide::kN <= N &&
        Wide::blocks(M, N) >= size_t(gpu.multiprocessors))
        return f(Wide());
    if (Square::kSharedBytes <= gpu.shared_per_block) return f(Square());
    return f(Tiles<128, 128, 2>());
}

}  // namespace matmul_tensorcore

#ifndef MATMUL_TENSORCORE_NO_MAIN

static void run(demo::Session& session) {
    using namespace matmul_tensorcore;
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
    auto launch_ptx = with_tiles(session.gpu, N, N, [&]<class T>(T) {
        demo::allow_shared_bytes(mma_ptx<T>, T::kSharedBytes);
        return std::function<void()>(
            [&] { mma_ptx<T><<<T::blocks(N, N), T::kThreads, T::kSharedBytes>>>(A, B, C, N); });
    });

    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {{"wmma_global", demo::Role::kOurs, launch_global},
                 {"wmma_tiled", demo::Role::kOurs, launch_tiled},
                 {"mma_ptx", demo::Role::kOurs, launch_ptx},
                 demo::cublas_contender<half>("cublas_fp16", A, B, C, N)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "3_matmul_tensorcore",
                                .summary = "C = A B on the tensor cores, fp16 with fp32 sums",
                                .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}

#endif
