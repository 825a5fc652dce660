// Bonus: Matrix multiplication on Hopper (compute capability 9.0), on a level with the library:
// fp16 or bfloat16 in and out, sums in fp32.
//
// The warps of 3_matmul_tensorcore spend their time on loading fragments. Hopper's tensor cores
// read shared memory themselves (wgmma), and its copy engine fills shared memory by itself (TMA). A
// block computes a tile of C, 128 x 256, in steps of 64 along K:
//
//                      B: 64 x 256 a step                    a ring of stages (A and B of a step):
//                     +----+----+----+----+                     empty -> TMA fills -> full
//                     | panels of 64 cols |                       ^                    |
//                     +----+----+----+----+                       +-- wgmma reads <----+
//        A: 128 x 64  +-------------------+
//           +---+     |   warpgroup 0     |                  Each stage has two barriers, which say
//           |   |     +-------------------+                  that its bytes have arrived, and that
//           |   |     |   warpgroup 1     |                  nobody needs them any more.
//           +---+     +-------------------+
//
// Nine rungs lead from wgmma alone to the record; each adds one thing to the rung before. What they
// share with the record stands in kernels/matmul_hopper.cuh, in the same order.
//
//     ./bonus_matmul_hopper 4096 --dtype bf16
//
// What limits the record is power where N is large, and the time before the first and after the
// last multiplication where it is small. bonus_gating_hopper fuses two products in the same main
// loop.
#include "demo.cuh"
#include "demo/cublaslt.cuh"
#include "demo/matmul.cuh"
#include "hopper.cuh"
#include "kernels/matmul_hopper.cuh"

namespace matmul_hopper {

// --- 1: wgmma -----------------------------------------------------------------------------------
//
// Adds    wgmma: 128 threads (a warpgroup) multiply together. Operands stay in shared memory, and
//         the sums of 64 x 256 elements take 128 registers a thread.
// Costs   a layout: rows in shared memory must be swizzled as the tensor cores expect.
// Limits  copies: all threads copy, wait, multiply, wait. The tensor cores are active in 10% of the
//         cycles (ncu, N = 4096, H200), and idle while copies are on their way.
// Source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// The tensor cores read 8 rows x 16 bytes at a time. A row here is 64 elements, 128 bytes: all 32
// banks. So the same chunk (16 bytes) of all rows would lie in the same banks; swizzled, row r
// keeps chunk c at place c ^ (r % 8), and 8 chunks below each other lie in different banks:
//
//     place   0 1 2 3 4 5 6 7
//     row 0   0 1 2 3 4 5 6 7      8 rows, 1024 bytes, are one pattern. It is made of address bits
//     row 1   1 0 3 2 5 4 7 6      (4 to 6, XORed with 7 to 9), so tiles begin at multiples of 1024
//     row 2   2 3 0 1 6 7 4 5      bytes; the next 16 columns of A begin 32 bytes further on, as
//     ...                          though nothing were swizzled.
//     row 7   7 6 5 4 3 2 1 0
//
// An operand is named by a 64-bit matrix descriptor, which hopper::matrix_descriptor() packs (PTX
// ISA, "Matrix Descriptor Format"):
//
//     bits  0-13   address / 16
//     bits 16-29   "leading dimension byte offset" / 16: from a panel of B, 64 columns, to the
//     next;
//                  A is one panel wide, and needs none
//     bits 32-45   "stride dimension byte offset" / 16: from 8 rows to the next 8, 1024 bytes
//     bits 62-63   the swizzle: 1 for this one, of 128 bytes

/// Copies from[kRows, 64] into a panel, 16 bytes at a time; elements outside the matrix become 0.
template <int kRows, class T>
__device__ void copy_panel(T (*to)[kPanel], const T* from, size_t pitch, size_t rows,
                           size_t columns) {
    const int chunk = threadIdx.x % 8;  // of 8 elements
    for (int row = threadIdx.x / 8; row < kRows; row += kConsumers * kWarpgroup / 8) {
        const bool inside = size_t(row) < rows && size_t(chunk * 8) < columns;
        uint4 values = {0, 0, 0, 0};
        if (inside) values = *reinterpret_cast<const uint4*>(&from[row * pitch + chunk * 8]);
        *reinterpret_cast<uint4*>(&to[row][(chunk ^ row % 8) * 8]) = values;
    }
}

/// Stores a warpgroup's sums straight from the registers, 4 bytes at a time. Which thread holds
/// which element: see hopper::wgmma_mma_async().
template <class T>
__device__ void store_sums(const float (&sums)[kBlockN / 2],
                           T* C,  // [N, N] row-major
                           size_t N, size_t row, size_t col) {
    row += threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlockN / 2; i += 2) {
        const size_t r = row + i / 2 % 2 * 8, c = col + i / 4 * 8;
        if (r < N && c < N)
            *reinterpret_cast<uint32_t*>(&C[r * N + c]) = round_pair<T>(sums[i], sums[i + 1]);
    }
}

template <class T>
__global__ void __launch_bounds__(kConsumers* kWarpgroup) wgmma(const T* A,  // [N, N] row-major
                                                                const T* B,  // [N, N] row-major
                                                                T* C,        // [N, N] row-major
                                                                size_t N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& stage = *reinterpret_cast<Stage<T, kBlockN>*>(shared);
    const size_t row = size_t(blockIdx.y) * kBlockM, col = size_t(blockIdx.x) * kBlockN;
    const int warpgroup = warpgroup_index();

    float sums[kBlockN / 2];
    for (size_t k = 0; k < N; k += kBlockK) {
        copy_panel<kBlockM>(stage.A, &A[row * N + k], N, N - row, N - k);
        for (size_t p = 0; p < kBlockN / kPanel && col + p * kPanel < N; ++p)
            copy_panel<kBlockK>(stage.B[p], &B[k * N + col + p * kPanel], N, N - k,
                                N - (col + p * kPanel));
        hopper::fence_proxy_async();  // wgmma is to see what these threads wrote
        __syncthreads();              // the stage is complete
        multiply_stage<T, kBlockN>(sums, stage, warpgroup, k > 0);
        hopper::wgmma_wait_group<0>();
        __syncthreads();  // nobody needs the stage any more
    }
    store_sums(sums, C, N, row + warpgroup * 64, col);
}

// --- 2: tma -------------------------------------------------------------------------------------
//
// Adds    TMA: one thread starts the copies of whole tiles, which run by themselves, into a ring of
//         stages. While one stage is multiplied, the next ones are on their way.
// Costs   shared memory, 48 KiB a stage: one block fills a multiprocessor.
// Limits  a block's ends: its first copies and its last stores have no company. In between the
// tensor
//         cores are active in 83% of the cycles (ncu, N = 4096, H200).
// Source  CUDA C++ Programming Guide, "Asynchronous Data Copies using the Tensor Memory
// Accelerator".
//
// A tensor map (CUtensorMap), which the host makes with the driver's cuTensorMapEncodeTiled, tells
// TMA all about a matrix; hopper::tensor_map() fills in these fields:
//
//     address, size, pitch   where the matrix is. Elements outside are read as 0 and never written,
//                            so that kernels need no code for edges.
//     box                    what one instruction copies: here some rows of 64 elements
//     swizzle, 128 bytes     rows come to lie in shared memory as wgmma wants them (rung 1)
//     L2 promotion, 256      a miss in the L2 cache fetches 256 bytes where the box wants 128: the
//                            other half is the next step's, or the next panel's
//
// An mbarrier ("memory barrier object") counts down arrivals of threads and bytes of copies. At 0
// its phase ends, and the next one begins with full counts. Phases go by parity: 0, 1, 0, ... A
// thread names the parity of the phase whose end it waits for, and so must never fall two phases
// behind. Here it cannot: the next phase of "full" needs a copy, which needs the stage to be free.
// With four stages:
//
//     full[0]   phase 0, parity 0: step 0 | phase 1, parity 1: step 4 | phase 2, parity 0: step 8
//     full[1]   phase 0, parity 0: step 1 | phase 1, parity 1: step 5 | ...

constexpr int kStages = 4;  // as many as fit shared memory

template <class T>
__global__ void __launch_bounds__(kConsumers* kWarpgroup)
    tma(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
        const __grid_constant__ CUtensorMap B,  // [N, N] row-major
        T* C,                                   // [N, N] row-major
        int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& ring = *reinterpret_cast<Ring<T, kBlockN, kStages>*>(shared);
    const int row = blockIdx.y * kBlockM, col = blockIdx.x * kBlockN;
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    if (threadIdx.x == 0) ring.init(1);
    __syncthreads();  // the barriers are ready

    auto load = [&](int t) {
        const int s = t % kStages;
        if (threadIdx.x == 0 && t < steps)
            load_stage(ring.stages[s], &ring.full[s], A, B, row, col, t * kBlockK);
    };
    for (int t = 0; t < kStages - 1; ++t) load(t);

    float sums[kBlockN / 2];
    Position<kStages> at;
    for (int t = 0; t < steps; ++t, at.advance()) {
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        multiply_stage<T, kBlockN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        hopper::wgmma_wait_group<1>();  // this warpgroup is done with step t - 1
        __syncthreads();                // both are: its stage is free
        load(t + kStages - 1);
    }
    hopper::wgmma_wait_group<0>();
    store_sums(sums, C, N, row + warpgroup * 64, col);
}

// --- 3: warp_specialized ------------------------------------------------------------------------
//
// Adds    one job per warpgroup: one copies (a single thread of it), two multiply. Barriers replace
//         __syncthreads(), so that each goes on at its own pace.
// Costs   a warpgroup that does not multiply; it gives up its registers to those that do
// (setmaxnreg). Limits  still a block's ends: alone this is hardly faster, but the next rungs build
// on it. Source  Bauer, Cook, Khailany: CudaDMA, SC 2011 (where warp specialization comes from).

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    warp_specialized(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                     const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                     T* C,                                   // [N, N] row-major
                     int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& ring = *reinterpret_cast<Ring<T, kBlockN, kStages>*>(shared);
    const int row = blockIdx.y * kBlockM, col = blockIdx.x * kBlockN;
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    if (threadIdx.x == 0) ring.init(4 * kConsumers);  // each of the consumers' warps frees a stage
    __syncthreads();

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup)
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                load_stage(stage, full, A, B, row, col, t * kBlockK);
            });
    } else {
        hopper::setmaxnreg_inc<232>();
        float sums[kBlockN / 2];
        consume(
            sums, ring, at, steps, warpgroup, [](int) {},
            [&](int stage) {
                if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&ring.empty[stage]);
            });
        store_sums(sums, C, N, row + warpgroup * 64, col);
    }
}

// --- 4: persistent ------------------------------------------------------------------------------
//
// Adds    a block that stays on its multiprocessor and computes tile after tile. The producer does
// not
//         stop between tiles: a tile's first copies run while the one before is multiplied and
//         stored.
// Costs   nothing, since the order of tiles is now ours: in walk() neighbors share rows and
// columns. Limits  stores: both consumers store at the same time, and the tensor cores idle
// meanwhile. Source  Gupta, Stuart, Owens: A Study of Persistent Threads Style GPU Programming,
// InPar 2012; the
//         walk: Triton's tutorial "Matrix Multiplication", on L2 cache optimizations.

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    persistent(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
               const __grid_constant__ CUtensorMap B,  // [N, N] row-major
               T* C,                                   // [N, N] row-major
               int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& ring = *reinterpret_cast<Ring<T, kBlockN, kStages>*>(shared);
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    const int rows = (N + kBlockM - 1) / kBlockM, columns = (N + kBlockN - 1) / kBlockN;
    if (threadIdx.x == 0) ring.init(4 * kConsumers);
    __syncthreads();

    // Producer and consumers walk the same tiles; `at` goes on around the ring from tile to tile.
    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kConsumers * kWarpgroup) return;
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = walk(i, rows, columns);
            const int row = tile.x * kBlockM, col = tile.y * kBlockN;
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                load_stage(stage, full, A, B, row, col, t * kBlockK);
            });
        }
    } else {
        hopper::setmaxnreg_inc<232>();
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = walk(i, rows, columns);
            const int row = tile.x * kBlockM, col = tile.y * kBlockN;
            float sums[kBlockN / 2];
            consume(
                sums, ring, at, steps, warpgroup, [](int) {},
                [&](int stage) {
                    if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&ring.empty[stage]);
                });
            store_sums(sums, C, N, row + warpgroup * 64, col);
        }
    }
}

// --- 5: overlapped ------------------------------------------------------------------------------
//
// Adds    stores beside the next tile's first steps: sums are rounded into spare registers, and
//         between steps a panel of 64 columns goes to shared memory (stmatrix), from where TMA
//         stores it (Outgoing).
// Costs   64 registers a thread, and 32 KiB of shared memory.
// Limits  the L2 cache and its energy: each block reads all of its A and B from there.
// Source  PTX ISA, "stmatrix", "cp.async.bulk.tensor"; to search for: epilogue overlap.

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    overlapped(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
               const __grid_constant__ CUtensorMap B,  // [N, N] row-major
               const __grid_constant__ CUtensorMap C,  // [N, N] row-major
               int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<T, kBlockN, kStages, kOutPanels>*>(shared);
    auto& ring = memory.ring;
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    const int rows = (N + kBlockM - 1) / kBlockM, columns = (N + kBlockN - 1) / kBlockN;
    if (threadIdx.x == 0) ring.init(4 * kConsumers);
    __syncthreads();

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kConsumers * kWarpgroup) return;
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = walk(i, rows, columns);
            const int row = tile.x * kBlockM, col = tile.y * kBlockN;
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                load_stage(stage, full, A, B, row, col, t * kBlockK);
            });
        }
    } else {
        hopper::setmaxnreg_inc<232>();
        constexpr int kPanels = kBlockN / kPanel;
        auto& out = memory.out[threadIdx.x / 32];  // this warp's
        Outgoing<T, kBlockN> outgoing;
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = walk(i, rows, columns);
            float sums[kBlockN / 2];
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // the tile before
                    if (t < kPanels) outgoing.store(t, out, C);
                },
                [&](int stage) {
                    if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&ring.empty[stage]);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, out, C);
            outgoing.take(sums, tile.x * kBlockM + threadIdx.x / 32 * 16, tile.y * kBlockN);
        }
        outgoing.store_all(out, C);
    }
}

// --- 6: multicast -------------------------------------------------------------------------------
//
// Adds    clusters of two blocks, whose tiles lie below each other and need the same B: each block
//         copies half of it, into the shared memory of both. That saves a third of the reads.
// Costs   blocks wait for each other: a stage is free when the consumers of both have freed it. And
// a
//         cluster takes longer to start.
// Limits  reads that miss the L2 cache: where a tile begins, A's columns have left it.
// Source  PTX ISA, "cp.async.bulk.tensor", .multicast::cluster; NVIDIA Hopper Tuning Guide.

// Four would read even less, but only 30 such clusters fit an H200: 120 of its 132 multiprocessors.
constexpr int kCluster = 2;

/// The kernel of this rung and of the next, which sets kAlternate.
template <class T, bool kAlternate>
__device__ void multiply_in_clusters(const CUtensorMap& A, const CUtensorMap& B,
                                     const CUtensorMap& C, int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<T, kBlockN, kStages, kOutPanels>*>(shared);
    auto& ring = memory.ring;
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    // A cluster's two tiles count as one here, of twice the rows.
    constexpr int kRows = kCluster * kBlockM;
    const int rows = (N + kRows - 1) / kRows, columns = (N + kBlockN - 1) / kBlockN;
    const int clusters = gridDim.x / kCluster, cluster = blockIdx.x / kCluster;
    const int rank = hopper::cluster_ctarank();
    if (threadIdx.x == 0) ring.init(4 * kConsumers * kCluster);  // both blocks' warps
    hopper::barrier_cluster_sync();                              // both blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kConsumers * kWarpgroup) return;
        bool backward = false;
        for (int i = cluster; i < rows * columns; i += clusters, backward ^= kAlternate) {
            const int2 tile = walk(i, rows, columns);
            const int row = tile.x * kRows + rank * kBlockM, col = tile.y * kBlockN;
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                const int k = (backward ? steps - 1 - t : t) * kBlockK;
                load_stage_multicast<kCluster>(stage, full, A, B, rank, row, col, k);
            });
        }
        wait_until_free(ring, at);
    } else {
        hopper::setmaxnreg_inc<232>();
        constexpr int kPanels = kBlockN / kPanel;
        auto& out = memory.out[threadIdx.x / 32];  // this warp's
        Outgoing<T, kBlockN> outgoing;
        for (int i = cluster; i < rows * columns; i += clusters) {
            const int2 tile = walk(i, rows, columns);
            const int row = tile.x * kRows + rank * kBlockM, col = tile.y * kBlockN;
            float sums[kBlockN / 2];
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // the tile before
                    if (t < kPanels) outgoing.store(t, out, C);
                },
                [&](int stage) {  // lane 0 tells one block, lane 1 the other
                    const int lane = threadIdx.x % 32;
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, out, C);
            outgoing.take(sums, row + threadIdx.x / 32 * 16, col);
        }
        outgoing.store_all(out, C);
    }
}

template <class T>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    multicast(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
              const __grid_constant__ CUtensorMap B,  // [N, N] row-major
              const __grid_constant__ CUtensorMap C,  // [N, N] row-major
              int N) {
    multiply_in_clusters<T, false>(A, B, C, N);
}

// --- 7: backward --------------------------------------------------------------------------------
//
// Adds    an order of steps: a cluster walks every second tile from the last step of K to the
// first.
//         The clusters that computed the same rows just before have left the end of A's rows in the
//         L2 cache, so that is where the next tiles begin.
// Costs   nothing.
// Limits  the last round: where tiles do not come out even, most clusters idle in it.
// Source  to search for: serpentine (or boustrophedon) order.

template <class T>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    backward(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
             const __grid_constant__ CUtensorMap B,  // [N, N] row-major
             const __grid_constant__ CUtensorMap C,  // [N, N] row-major
             int N) {
    multiply_in_clusters<T, true>(A, B, C, N);
}

// --- 8: stream_k --------------------------------------------------------------------------------
//
// Adds    division by steps: the tiles that do not come out even are divided among all clusters,
// each
//         of which computes the same number of steps (Schedule). The block with a tile's first
//         steps adds the others' sums (Exchange) and stores the tile. multiply_parts() is the
//         kernel.
// Costs   sums on their way through global memory; they take the time of some 20 steps, so a short
//         last round is left as it is (prepare_parts).
// Limits  small N, where there are fewer tiles than multiprocessors.
// Source  Osama, Merrill, Cecka, Garland, Owens: Stream-K, PPoPP 2023.

template <class T>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    stream_k(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
             const __grid_constant__ CUtensorMap B,  // [N, N] row-major
             const __grid_constant__ CUtensorMap C,  // [N, N] row-major
             int N, int divided, Exchange exchange) {
    multiply_parts<T, kBlockM, kBlockN, kStages, kCluster>(A, B, C, N, divided, exchange);
}

// --- 9: matmul_hopper, the record ---------------------------------------------------------------
//
// Adds    a choice by N, in prepare(): smaller tiles, so that all multiprocessors have one, and no
//         clusters where a block computes only one tile. The kernel stands in the header.
// Costs   a kernel for each choice; smaller tiles read more for each multiplication.
// Limits  power, where N is large: the tensor cores are active in 95% of the cycles (ncu, N = 4096,
//         H200), the GPU lowers its clock, and what saves energy (rungs 6 and 7) saves time. Where
//         N is small, a block's beginning and end, with nothing beside them.
// Source  NVIDIA's "Matrix Multiplication Background User's Guide", on tile and wave quantization.

// --- Launching ----------------------------------------------------------------------------------

inline dim3 grid_of_tiles(size_t N) {
    return dim3((N + kBlockN - 1) / kBlockN, (N + kBlockM - 1) / kBlockM);
}

template <class T>
std::function<void()> prepare_wgmma(const Operands<T>& o) {
    const size_t bytes = sizeof(Stage<T, kBlockN>);
    demo::allow_shared_bytes(wgmma<T>, bytes);
    return [=] {
        wgmma<T><<<grid_of_tiles(o.N), kConsumers * kWarpgroup, bytes>>>(o.A, o.B, o.C, o.N);
    };
}

template <class T>
std::function<void()> prepare_tma(const Operands<T>& o) {
    const size_t bytes = sizeof(Ring<T, kBlockN, kStages>);
    demo::allow_shared_bytes(tma<T>, bytes);
    return [=] {
        tma<T><<<grid_of_tiles(o.N), kConsumers * kWarpgroup, bytes>>>(o.map_A, o.map_B, o.C,
                                                                       int(o.N));
    };
}

template <class T>
std::function<void()> prepare_warp_specialized(const Operands<T>& o) {
    const size_t bytes = sizeof(Ring<T, kBlockN, kStages>);
    demo::allow_shared_bytes(warp_specialized<T>, bytes);
    return [=] {
        warp_specialized<T>
            <<<grid_of_tiles(o.N), kThreads, bytes>>>(o.map_A, o.map_B, o.C, int(o.N));
    };
}

/// A block for each multiprocessor, or for each tile where there are fewer.
inline int count_blocks(size_t N, int multiprocessors) {
    return std::min(int(count_tiles(N, kBlockM, kBlockN)), multiprocessors);
}

template <class T>
std::function<void()> prepare_persistent(const Operands<T>& o, int multiprocessors) {
    const size_t bytes = sizeof(Ring<T, kBlockN, kStages>);
    demo::allow_shared_bytes(persistent<T>, bytes);
    const int blocks = count_blocks(o.N, multiprocessors);
    return [=] { persistent<T><<<blocks, kThreads, bytes>>>(o.map_A, o.map_B, o.C, int(o.N)); };
}

template <class T>
std::function<void()> prepare_overlapped(const Operands<T>& o, int multiprocessors) {
    const size_t bytes = sizeof(Memory<T, kBlockN, kStages, kOutPanels>);
    demo::allow_shared_bytes(overlapped<T>, bytes);
    const int blocks = count_blocks(o.N, multiprocessors);
    return [=] { overlapped<T><<<blocks, kThreads, bytes>>>(o.map_A, o.map_B, o.map_C, int(o.N)); };
}

/// Of multicast or backward: as many clusters as run at once, or as there are pairs of tiles.
template <class T, class Kernel>
std::function<void()> prepare_clusters(Kernel kernel, const Operands<T>& o) {
    const size_t bytes = sizeof(Memory<T, kBlockN, kStages, kOutPanels>);
    demo::allow_shared_bytes(kernel, bytes);
    const int room = demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(kernel);
    const int clusters = std::min(int(count_tiles(o.N, kCluster * kBlockM, kBlockN)), room);
    return [=] {
        kernel<<<kCluster * clusters, kThreads, bytes>>>(o.map_A, o.map_B, o.map_C, int(o.N));
    };
}

/// All rungs. Each prepares operands() before it first runs: tensor maps need a driver. `why_not`:
/// why none of them can run here.
template <class T>
std::vector<demo::Contender> contenders(std::function<Operands<T>()> operands, int multiprocessors,
                                        const std::string& why_not) {
    auto rung = [&](const std::string& kernel, auto prepare_rung) {
        return demo::Contender{
            .kernel = kernel,
            .setup = [=](demo::Contender& self) { self.launch = prepare_rung(operands()); },
            .why_not = why_not};
    };
    using O = Operands<T>;
    const int many = multiprocessors;
    return {
        rung("wgmma", prepare_wgmma<T>),
        rung("tma", prepare_tma<T>),
        rung("warp_specialized", prepare_warp_specialized<T>),
        rung("persistent", [=](const O& o) { return prepare_persistent(o, many); }),
        rung("overlapped", [=](const O& o) { return prepare_overlapped(o, many); }),
        rung("multicast", [](const O& o) { return prepare_clusters(multicast<T>, o); }),
        rung("backward", [](const O& o) { return prepare_clusters(backward<T>, o); }),
        rung("stream_k",
             [](const O& o) {
                 return prepare_parts<kBlockM, kBlockN, kStages, kCluster>(stream_k<T>, o);
             }),
        rung("matmul_hopper", [=](const O& o) { return prepare(o, many); }),
    };
}

}  // namespace matmul_hopper

template <class T>
void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<T> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<T> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);
    const matmul_hopper::ExchangeMemory exchange(session.gpu.multiprocessors);

    auto contenders = matmul_hopper::contenders<T>(
        [&] {
            return matmul_hopper::Operands<T>{A, B, C, N, exchange};
        },
        session.gpu.multiprocessors, hopper::why_not(session.gpu));
    // The library's own choice, and the fastest of what cuBLASLt proposes.
    contenders.push_back(demo::cublas_contender<T>("cublas", A, B, C, N));
    contenders.push_back(demo::cublaslt_contender<T>("cublaslt_best", A, B, C, N));
    session.run(demo::matmul_workload<T>(N), reference.check(C), contenders);
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_matmul_hopper",
                                .summary = "C = A B by Hopper's TMA and wgmma, with fp32 sums",
                                .types = {{"fp16", run<half>}, {"bf16", run<__nv_bfloat16>}}};
    return demo::main_of(program, argc, argv);
}
