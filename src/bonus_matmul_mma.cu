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
//     mma_tma         Hopper's copies of whole tiles, by one thread: the others only multiply
//
// and mma_alone is as many mma.sync without all else: what none of them can pass. All have
// wmma_tiled's plan: warps that compute 64 x 64 of C each, from stages that asynchronous copies
// fill. A fragment is made of 8 x 8 matrices of 16-bit numbers. ldmatrix loads four at a time, and
// leaves two neighbors of each in every lane (a thread's number within its warp):
//
//     row 0   | lane 0  | lane 1  | lane 2  | lane 3  |      mma.sync multiplies four of them (16 x
//     row 1   | lane 4  | lane 5  | lane 6  | lane 7  |      16 of A) by two (16 x 8 of B), and
//     ...     |         |         |         |         |      leaves its 16 x 8 sums in the same
//     row 7   | lane 28 | lane 29 | lane 30 | lane 31 |      order: two neighbors in a lane.
//
// What limits mma_tma: mma.sync, which on Hopper does not reach the data sheet's rate, and the
// GPU's power limit. bonus_matmul_hopper goes on with wgmma; bonus_gating_mma makes a fused layer
// of the main loop.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "hopper.cuh"
#include "matmul/matmul.cuh"
#include "matmul/matmul_hopper.cuh"
#include "matmul/matmul_mma.cuh"
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
// Adds:    a second set of fragments, in multiply() of matmul/matmul_mma.cuh. While one is
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
// mma_ptx is at the end of matmul/matmul_mma.cuh, since 3_matmul_tensorcore runs it, too.

// --- 5: tiles by TMA, on Hopper -----------------------------------------------------------------
//
// Adds:    a producer: one thread starts TMA's copies of whole tiles into a ring of stages, which
//          bonus_matmul_hopper explains (rungs 2 to 4). TMA swizzles rows of 128 bytes just as
//          ldmatrix wants them. The warps that multiply wait for their stage by its mbarrier, each
//          for itself, instead of meeting in __syncthreads(). Blocks stay and compute tile after
//          tile: while one is stored, the next one's copies are under way.
// Costs:   a warpgroup for that thread. It releases its registers (setmaxnreg).
// Limits:  mma.sync. The tensor cores are active in 90% of the cycles, in mma_alone's 98% (ncu,
//          N = 4096, an H100). By time it is further from mma_alone: at its power limit the GPU
//          lowers the clock, and moving data takes power, too.
// Source:  CUDA C++ Programming Guide, "Tensor Memory Accelerator".

constexpr int kProducer = 128;  // threads that copy: a warpgroup, of which one thread works

/// A block's shared memory: the ring, and where store_sums() sorts a warp's sums.
template <class T>
struct Memory {
    matmul_hopper::Ring<half, T::kN, T::kStages, T::kM> ring;
    half patches[T::kThreads / 32][kWarp * kWarp];
};

template <class T>
__global__ void __launch_bounds__(T::kThreads + kProducer, 1)
    mma_tma(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
            const __grid_constant__ CUtensorMap B,  // [N, N] row-major
            half* C,                                // [N, N] row-major
            int N) {
    extern __shared__ __align__(1024) unsigned char ring_and_patches[];
    auto& memory = *reinterpret_cast<Memory<T>*>(ring_and_patches);
    auto& ring = memory.ring;
    const int rows = (N + T::kM - 1) / T::kM, columns = (N + T::kN - 1) / T::kN;  // of tiles
    const int steps = (N + kDepth - 1) / kDepth, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) ring.init(T::kThreads / 32);  // each warp that multiplies frees a stage
    __syncthreads();

    matmul_hopper::Position<T::kStages> at;
    if (threadIdx.x >= T::kThreads) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x > T::kThreads) return;
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = matmul_hopper::rasterize<16>(i, rows, columns);
            matmul_hopper::produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                hopper::fence_proxy_async();  // ldmatrix reads by another way than TMA writes
                matmul_hopper::load_stage(stage, full, A, B, tile.x * T::kM, tile.y * T::kN,
                                          t * kDepth);
            });
        }
        return;
    }

    hopper::setmaxnreg_inc<232>();
    // As in multiply(): a lane's rows in a stage, and fragments for two steps of k.
    int A_row[kDepth / 16], B_row[kWarp / 16];
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
        A_row[k] = swizzled<kDepth>(T::warp_row() + lane % 16, k * 16 + lane / 16 * kChunk);
#pragma unroll
    for (int j = 0; j < kWarp / 16; ++j)
        B_row[j] = swizzled<kWarp>(lane % 16, j * 16 + lane / 16 * kChunk);
    Fragments a[2], b[2];
    auto load = [&](const auto& stage, int k) {
        const half *const A_tile = stage.A[0], *const B_panel = stage.B[T::warp_col() / kWarp][0];
#pragma unroll
        for (int i = 0; i < kWarp / 16; ++i)
            ptx::ldmatrix_x4(a[k % 2][i], &A_tile[A_row[k] + i * 16 * kDepth]);
#pragma unroll
        for (int j = 0; j < kWarp / 16; ++j)  // the warp's 64 columns are a panel
            ptx::ldmatrix_x4_trans(b[k % 2][j], &B_panel[B_row[j] + k * 16 * kWarp]);
    };
    for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
        Sums sums = {};
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        load(ring.stages[at.stage], 0);
#pragma unroll 1
        for (int t = 0; t < steps; ++t) {
#pragma unroll
            for (int k = 0; k < kDepth / 16; ++k) {
                if (k + 1 < kDepth / 16) {
                    load(ring.stages[at.stage], k + 1);
                } else {
                    __syncwarp();  // all that this warp needs of the stage is in registers
                    if (lane == 0) hopper::mbarrier_arrive(&ring.empty[at.stage]);
                    at.advance();
                    if (t + 1 < steps) {
                        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
                        load(ring.stages[at.stage], 0);
                    }
                }
                multiply_fragments(sums, a[k % 2], b[k % 2]);
            }
        }
        const int2 tile = matmul_hopper::rasterize<16>(i, rows, columns);
        store_sums<T>(sums, &memory.patches[0][0], C, N, size_t(tile.x) * T::kM,
                      size_t(tile.y) * T::kN);
        __syncwarp();  // the patch is free again
    }
}

/// A function that launches mma_tma for C = A B, all [N, N] row-major.
template <class T>
std::function<void()> prepare_mma_tma(const half* A, const half* B, half* C, size_t N,
                                      const demo::Gpu& gpu) {
    demo::allow_shared_bytes(mma_tma<T>, sizeof(Memory<T>));
    const CUtensorMap map_A = hopper::tensor_map(A, N, N, T::kM),
                      map_B = hopper::tensor_map(B, N, N, kDepth);
    const size_t blocks = std::min(T::blocks(N, N), size_t(gpu.multiprocessors));
    constexpr int kThreads = T::kThreads + kProducer;
    return [=] { mma_tma<T><<<blocks, kThreads, sizeof(Memory<T>)>>>(map_A, map_B, C, int(N)); };
}

// --- The limit: mma.sync alone -------------------------------------------------------------------
//
// As many mma.sync as the product takes, and nothing else: no loads, no stores, no waiting. Each
// warp multiplies two sets of fragments in turn, as often as its share of the product needs. They
// are random and differ, because at its power limit a GPU is faster on constants.

constexpr int kAloneWarps = 8;   // of a block, one block per SM: as many as mma_ptx has
constexpr int kAloneDepth = 32;  // k of both sets

__global__ void __launch_bounds__(32 * kAloneWarps, 1)
    mma_alone(const half* A,  // [64 per warp, 32] row-major
              const half* B,  // [64 per warp, 32]: of B's columns
              float* totals,  // [threads]: of all sums that a thread holds
              size_t steps) {
    const int lane = threadIdx.x % 32;
    const size_t thread = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    auto pair_at = [&](const half* matrix, int row, int k) {  // what the lane holds of 8 x 8
        const size_t row_of_all = thread / 32 * kWarp + row + lane / 4;
        return *reinterpret_cast<const uint32_t*>(
            &matrix[row_of_all * kAloneDepth + k + lane % 4 * 2]);
    };
    Fragments a[2], b[2];
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                a[k][i][e] = pair_at(A, i * 16 + e % 2 * 8, k * 16 + e / 2 * 8);
                b[k][i][e] = pair_at(B, i * 16 + e / 2 * 8, k * 16 + e % 2 * 8);
            }
    Sums sums = {};
#pragma unroll 1
    for (size_t step = 0; step < steps; ++step)
#pragma unroll
        for (int k = 0; k < 2; ++k) multiply_fragments(sums, a[k], b[k]);
    float total = 0;  // of all sums, so that the compiler leaves out none
#pragma unroll
    for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarp / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) total += sums[i][j][e];
    totals[thread] = total;
}

/// What lane `lane` of a warp must find: the total of the 128 sums that it holds. These are
/// products of 8 rows of A and 16 columns of B, so their total is the product of the rows' total
/// and the columns' total.
struct ExpectTotal {
    const half *A, *B;
    size_t steps;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t warp, size_t lane) const {
        demo::Product total{0, 0};
        for (int k = 0; k < kAloneDepth; ++k) {
            demo::Product a{0, 0}, b{0, 0};  // the totals, and those of the absolute values
            auto add = [&](demo::Product& sum, const half* matrix, size_t row) {
                const double term = double(float(matrix[row * kAloneDepth + k]));
                sum.value += term, sum.magnitude += fabs(term);
            };
            for (int i = 0; i < kWarp; i += 8) {
                const size_t row = warp * kWarp + i;
                add(a, A, row + lane / 4);
                add(b, B, row + lane % 4 * 2), add(b, B, row + lane % 4 * 2 + 1);
            }
            total.value += a.value * b.value, total.magnitude += a.magnitude * b.magnitude;
        }
        // Equal terms are added over and over, so errors add up, too: 2^-23 of the sum so far, on
        // average half of the last, for each mma.sync. 128 additions make the total.
        const double n = double(steps), additions = 2 * n + 128;
        return {n * total.value, additions * 0x1p-24 * n * total.magnitude};
    }
};

/// mma_alone with its own data.
class MmaAlone {
  public:
    explicit MmaAlone(const demo::Session& session)
        : blocks_(session.gpu.multiprocessors),
          warps_(blocks_ * kAloneWarps),
          steps_(steps(session.n(), warps_)),
          A_(warps_ * kWarp, kAloneDepth),
          B_(warps_ * kWarp, kAloneDepth),
          totals_(warps_, 32),
          rows_(demo::CheckedRows::all(warps_, session.options.seed)) {
        demo::fill_uniform(A_, session.options.seed);
        demo::fill_uniform(B_, session.options.seed + 1);
    }

    demo::Contender contender() const {
        return {.kernel = "mma_alone",
                .role = demo::Role::kLimit,
                .launch =
                    [this] {
                        mma_alone<<<blocks_, 32 * kAloneWarps>>>(A_.data(), B_.data(),
                                                                 totals_.data(), steps_);
                    },
                .check = demo::check_of(totals_.data(), warps_, 32, rows_,
                                        ExpectTotal{A_.data(), B_.data(), steps_}, INFINITY)};
    }

  private:
    /// How often a warp must multiply 64 x 32 by 32 x 64 for its share of N^3. Rounded up: by 3%
    /// at N = 1024 on an H200, less beyond.
    static size_t steps(size_t N, size_t warps) {
        const size_t all = std::max<size_t>(warps, 1) * kWarp * kWarp * kAloneDepth;
        return (N * N * N + all - 1) / all;
    }

    const size_t blocks_, warps_, steps_;
    const demo::Buffer<half> A_, B_;
    const demo::Buffer<float> totals_;
    const demo::CheckedRows rows_;
};

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

    auto tma = [&](demo::Contender& self) {
        self.launch = prepare_mma_tma<Tiles<128, 256, 3>>(A, B, C, N, session.gpu);
    };
    const MmaAlone alone(session);
    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {{"mma_swizzled", demo::Role::kOurs, swizzled},
                 {"mma_pipelined", demo::Role::kOurs, pipelined},
                 {"mma_grouped", demo::Role::kOurs, grouped},
                 {"mma_ptx", demo::Role::kOurs, prepare_mma_ptx<half>(A, B, C, N, session.gpu)},
                 {.kernel = "mma_tma", .setup = tma, .why_not = hopper::why_not(session.gpu)},
                 alone.contender(),
                 demo::cublas_contender<half>("cublas_fp16", A, B, C, N)});
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_matmul_mma",
        .summary = "tensor cores by mma.sync, on any GPU from Turing on, in five steps",
        .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
