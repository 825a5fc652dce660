// Bonus: Matrix multiplication on Hopper (compute capability 9.0), at most sizes as fast as the
// library or faster: fp16 or bfloat16 in and out, sums in fp32.
//
// In 3_matmul_tensorcore warps spend their time on loading fragments. Hopper's tensor cores read
// shared memory themselves (wgmma: warpgroup matrix multiply-add), and a copy engine fills it (TMA:
// tensor memory accelerator). A block computes a tile of C, 128 x 256, in steps of 64 along K:
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
// Nine rungs lead from wgmma alone to matmul_hopper, the record that other programs run. From N =
// 2048 on the last four differ by at most 5%, and now one, now another leads.
//
//     matmul/matmul_hopper.cuh         what the rungs are made of, in their order, up to the kernel
//                                      of 7, stream_k
//     matmul/matmul_hopper_record.cuh  the kernels of 8 and 9, and how they are launched
//     matmul/hopper_tiles.cuh          the model that chooses for 9
//
//     ./bonus_matmul_hopper 4096 --dtype bf16
//
// What limits the record: at large N power, at small N the time before a block's first
// multiplication and after its last. bonus_gating_hopper fuses two products in the same main loop.
#include "demo.cuh"
#include "demo/cublaslt.cuh"
#include "hopper.cuh"
#include "matmul/matmul.cuh"
#include "matmul/matmul_hopper.cuh"
#include "matmul/matmul_hopper_record.cuh"

namespace matmul_hopper {

// --- 1: wgmma -----------------------------------------------------------------------------------
//
// Adds    wgmma: 128 threads (a warpgroup) multiply as one. A and B are read from shared memory,
//         and the sums, 64 x 256, are in registers: 128 a thread.
// Costs   a layout: rows in shared memory must be swizzled the way the tensor cores expect.
// Limits  copies: all threads copy, wait, multiply, wait. The tensor cores are active in 10% of
//         the cycles (by the profiler ncu, N = 4096, H200).
// Source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// The swizzle. The tensor cores read 8 rows x 16 bytes (a chunk) at a time. A row has 64 elements,
// 128 bytes, which is all 32 banks: unswizzled, the same chunk of all rows is in the same banks.
// Swizzled, row r keeps chunk c in place c ^ (r % 8), so 8 chunks of a column are in all banks:
//
//     place   0 1 2 3 4 5 6 7
//     row 0   0 1 2 3 4 5 6 7      The hardware makes the pattern from address bits (4 to 6 XOR 7
//     row 1   1 0 3 2 5 4 7 6      to 9), so a tile must begin at a multiple of 8 rows, 1024 bytes.
//     row 2   2 3 0 1 6 7 4 5      For the next 16 columns of A the address is 32 bytes further, as
//     ...                          in an unswizzled row: the XOR is of the final address.
//     row 7   7 6 5 4 3 2 1 0
//
// The matrix descriptor, 64 bits that hopper::matrix_descriptor() packs, tells wgmma where an
// operand is (PTX ISA, "Matrix Descriptor Format"):
//
//     bits  0-13   address / 16
//     bits 16-29   leading dimension byte offset / 16: from 64 columns of B (a panel) to the next.
//                  A has one panel and needs none.
//     bits 32-45   stride dimension byte offset / 16: from 8 rows to the next 8, 1024 bytes
//     bits 62-63   swizzle: 1 stands for this one, of 128 bytes; all other bits are 0
//
// wgmma runs on by itself: a fence before it orders the registers, a commit makes a group of what
// was started, and a wait names how many groups may still run. Ordinary stores to shared memory
// need fence_proxy_async() before wgmma or TMA sees them.

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
            *reinterpret_cast<uint32_t*>(&C[r * N + c]) = ptx::cvt_rn_x2<T>(sums[i], sums[i + 1]);
    }
}

template <class T>
__global__ void __launch_bounds__(kConsumers* kWarpgroup)  // no producer
    wgmma(const T* A,                                      // [N, N] row-major
          const T* B,                                      // [N, N] row-major
          T* C,                                            // [N, N] row-major
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
        hopper::fence_proxy_async();  // makes what these threads wrote visible to wgmma
        __syncthreads();              // the stage is complete
        multiply_stage<T, kBlockN>(sums, stage, warpgroup, k > 0);
        hopper::wgmma_wait_group<0>();
        __syncthreads();  // nobody needs the stage any more
    }
    store_sums(sums, C, N, row + warpgroup * 64, col);
}

// --- 2: tma -------------------------------------------------------------------------------------
//
// Adds    TMA: one thread starts the copies of whole tiles, which run by themselves, into a ring
//         of stages. While one stage is multiplied, the next ones are on their way.
// Costs   shared memory: 48 KiB a stage, so one block fills a multiprocessor.
// Limits  both ends of a block: nothing runs beside its first copies and its last stores. The
//         tensor cores are active in 83% of the cycles (ncu, N = 4096, H200).
// Source  CUDA C++ Programming Guide, "Tensor Memory Accelerator".
//
// The tensor map (CUtensorMap) describes a matrix to TMA. The host makes it, in
// hopper::tensor_map(), by the driver's cuTensorMapEncodeTiled:
//
//     address, size, pitch   Elements outside the matrix are read as 0 and not written, so kernels
//                            need no code for the edges.
//     box                    what one instruction copies: of A 128 x 64, of B 64 x 64 elements
//     swizzle                128 bytes: rows arrive in shared memory as wgmma wants them (rung 1)
//     L2 promotion           128 bytes, what the box asks for of a row: a miss in the L2 cache
//                            fetches no more. (256 take 9% longer at N = 2560 on an H100.)
//
// An mbarrier (memory barrier object) counts arrivals of threads and bytes of copies. When all that
// it expects have come, its phase ends and the next begins. Phases have a parity: 0, 1, 0, ... A
// thread waits for the end of the phase of a given parity, so it must never be two phases behind:
// the phase it waits for would look unfinished again. In the ring it cannot be: "full" ends another
// phase only after the thread has freed the stage. (This rung uses "full" alone.)
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
// Adds    one job for each warpgroup: one copies (a single thread of it), two multiply. mbarriers
//         instead of __syncthreads() connect them, so each can run ahead of the others.
// Costs   a warpgroup that does not multiply. It releases registers for those that do
//         (setmaxnreg): 3 warpgroups x 168 become 40 and 2 x 232.
// Limits  still both ends of a block. Alone this is no faster; the next rungs need it.
// Source  Bauer, Cook, Khailany: CudaDMA, SC 2011, introduces warp specialization.

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
// Adds    blocks that stay: one for each multiprocessor, which computes tile after tile. The
//         producer runs ahead into the next tile while this one is multiplied and stored. And an
//         order of tiles, rasterize(), which matters most at N = 16384.
// Costs   a loop over tiles. With one tile a block (N = 2048) nothing changes.
// Limits  stores: both consumers reach the end of a tile together, and the tensor cores idle while
//         they store.
// Source  Gupta, Stuart, Owens: A Study of Persistent Threads Style GPU Programming, InPar 2012.
//         The order: Triton's tutorial "Matrix Multiplication", on L2 cache optimizations.

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

    // Producer and consumers take the same tiles; `at` goes on around the ring from tile to tile.
    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kConsumers * kWarpgroup) return;
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = rasterize(i, rows, columns);
            const int row = tile.x * kBlockM, col = tile.y * kBlockN;
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                load_stage(stage, full, A, B, row, col, t * kBlockK);
            });
        }
    } else {
        hopper::setmaxnreg_inc<232>();
        for (int i = blockIdx.x; i < rows * columns; i += gridDim.x) {
            const int2 tile = rasterize(i, rows, columns);
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
// Adds    another way out (Outgoing): sums are rounded into spare registers; with each of the next
//         tile's first steps 64 columns go to shared memory, from where TMA stores whole rows of
//         128 bytes. At N = 2048, with one tile a block, only the whole rows help.
// Costs   64 registers a thread, and 32 KiB of shared memory.
// Limits  the main loop, and its energy: each block reads its tiles of A and B alone.
// Source  PTX ISA, "stmatrix" and "cp.async.bulk.tensor"; search for: epilogue overlap.

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
            const int2 tile = rasterize(i, rows, columns);
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
            const int2 tile = rasterize(i, rows, columns);
            float sums[kBlockN / 2];
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // beside this step's wgmma a panel of the tile before leaves
                    if (t < kPanels) outgoing.store(t, out, C);
                },
                [&](int stage) {
                    if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&ring.empty[stage]);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, out, C);  // few steps
            outgoing.take(sums, tile.x * kBlockM + threadIdx.x / 32 * 16, tile.y * kBlockN);
        }
        outgoing.store_all(out, C);
    }
}

// --- 6: multicast -------------------------------------------------------------------------------
//
// Adds    clusters of two blocks. Their tiles are below each other and need the same B, so each
//         block copies half of it into the shared memory of both: a third less to read. (A cluster
//         is blocks on neighboring multiprocessors that reach each other's shared memory.)
// Costs   waiting: a stage is free when the consumers of both blocks have freed it. And a cluster
//         takes longer to start, which does not pay for a single tile. Alone this gains little.
// Limits  a last round in which most blocks have no tile.
// Source  PTX ISA, "cp.async.bulk.tensor" with .multicast::cluster; NVIDIA Hopper Tuning Guide.

// Four would read less, but only 30 such clusters fit an H200: 120 of its 132 multiprocessors.
constexpr int kCluster = 2;

template <class T>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    multicast(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
              const __grid_constant__ CUtensorMap B,  // [N, N] row-major
              const __grid_constant__ CUtensorMap C,  // [N, N] row-major
              int N) {
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
        for (int i = cluster; i < rows * columns; i += clusters) {
            const int2 tile = rasterize(i, rows, columns);
            const int row = tile.x * kRows + rank * kBlockM, col = tile.y * kBlockN;
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                load_stage_multicast<kCluster>(stage, full, A, B, rank, row, col, t * kBlockK);
            });
        }
        wait_until_free(ring, at);  // the other block's consumers arrive at this one's barriers
    } else {
        hopper::setmaxnreg_inc<232>();
        constexpr int kPanels = kBlockN / kPanel;
        auto& out = memory.out[threadIdx.x / 32];  // this warp's
        Outgoing<T, kBlockN> outgoing;
        for (int i = cluster; i < rows * columns; i += clusters) {
            const int2 tile = rasterize(i, rows, columns);
            const int row = tile.x * kRows + rank * kBlockM, col = tile.y * kBlockN;
            float sums[kBlockN / 2];
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // beside this step's wgmma a panel of the tile before leaves
                    if (t < kPanels) outgoing.store(t, out, C);
                },
                [&](int stage) {  // lane 0 tells one block, lane 1 the other
                    const int lane = threadIdx.x % 32;
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, out, C);  // few steps
            outgoing.take(sums, row + threadIdx.x / 32 * 16, col);
        }
        outgoing.store_all(out, C);
    }
}

// --- 7: stream_k --------------------------------------------------------------------------------
//
// Adds    division by steps. The tiles of the last, incomplete round, and those of the round before
//         it, are lined up with all their steps, and each cluster gets an even share of the line
//         (Schedule). A block whose share begins within a tile stores its sums in global memory and
//         sets a flag; the block with the tile's first steps waits for the flags, adds the sums and
//         stores the tile (Exchange, join_parts()). The kernel is multiply_parts(). (Every second
//         whole tile is walked backward, since its last columns are still in L2. On an H200 that
//         gains up to 1%, and in the kernels of gating and LoRA 2% at 4096.)
// Costs   sums that travel through global memory, in the time of some 18 steps; and clusters that
//         are out of step, some 4 steps a tile. So a last round that is nearly full is not divided,
//         nor the last of many. Powers of two do not gain.
// Limits  small N, with fewer tiles than multiprocessors.
// Source  Osama, Merrill, Cecka, Garland, Owens: Stream-K, PPoPP 2023.

// --- 8: eights_and_twos -------------------------------------------------------------------------
//
// Adds    clusters of eight, 4 x 2 tiles: each tile of A is read for two blocks, each of B for
//         four, half as many bytes from L2 as by clusters of two. A GPU at its power limit turns
//         what that saves into a higher clock. On an H100 15 such clusters fit, 120 of 132
//         multiprocessors. So a second launch, in clusters of two, runs beside the first, on 8 of
//         the 12 that are left, or on all where that saves a round.
// Costs   a second launch, some 3 us, which small N feel. And eight blocks wait for each other.
// Limits  power still, and a last round that is not full: tiles are not divided.
// Source  github.com/ademeure/hopperian_tensor has hybrid cluster sizes, of 8 x 1 tiles. CUDA C++
//         Programming Guide, "Streams" and "Events": how two launches run side by side.

// --- 9: matmul_hopper, the record ---------------------------------------------------------------
//
// Adds    tiles of 19 shapes, since at each N others fill the last round. fastest_shape() in
//         matmul/hopper_tiles.cuh chooses among these, by a model of the time:
//
//             multiply_tile       a block computes one tile. Its code is short, and at small N
//                                 fetching code takes time
//             multiply_pingpong   several rounds: a block's two warpgroups have whole tiles in
//                                 turn, and one's tile leaves while the other multiplies
//             rung 7, rung 8      at large N. Where patches leave a narrow edge of C, as 32 rows
//                                 and columns of 12320, a third launch has it in tiles of 64 x 64
//
//         The first two compute C's transpose: so a tile of C can have 80 or 208 rows.
//         matmul_hopper_record.cuh draws that.
// Costs   an instance of a kernel for each shape, or two. Smaller tiles read more per
//         multiplication.
// Limits  at large N power: the tensor cores are active in 95% of the cycles (ncu, N = 4096,
//         H200), and the GPU lowers its clock. At small N both ends of a block again.
// Source  NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization.
//
// The kernels of these three are in the headers, since other programs run them, too.

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

/// As many clusters as run at once, or as there are pairs of tiles.
template <class T>
std::function<void()> prepare_multicast(const Operands<T>& o) {
    const size_t bytes = sizeof(Memory<T, kBlockN, kStages, kOutPanels>);
    demo::allow_shared_bytes(multicast<T>, bytes);
    const int room = demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(multicast<T>);
    const int clusters = std::min(int(count_tiles(o.N, kCluster * kBlockM, kBlockN)), room);
    return [=] {
        multicast<T><<<kCluster * clusters, kThreads, bytes>>>(o.map_A, o.map_B, o.map_C, int(o.N));
    };
}

/// All rungs. Each prepares operands() before it first runs: tensor maps need a driver. `why_not`:
/// why none of them can run here.
template <class T>
std::vector<demo::Contender> contenders(std::function<Operands<T>()> operands, int multiprocessors,
                                        const std::string& why_not) {
    using O = Operands<T>;
    using Count = std::function<size_t(const O&)>;
    const Count one = [](const O&) { return 1; }, two = [](const O&) { return 2; };
    auto rung = [&](const std::string& kernel, const Count& launches, auto prepare_rung) {
        auto setup = [=](demo::Contender& self) {
            const O o = operands();
            self.launch = prepare_rung(o);
            self.launches = launches(o);
        };
        return demo::Contender{.kernel = kernel, .setup = setup, .why_not = why_not};
    };
    const int many = multiprocessors;
    const Count of_record = [=](const O& o) { return count_launches(o.N, {many}); };
    return {
        rung("wgmma", one, prepare_wgmma<T>),
        rung("tma", one, prepare_tma<T>),
        rung("warp_specialized", one, prepare_warp_specialized<T>),
        rung("persistent", one, [=](const O& o) { return prepare_persistent(o, many); }),
        rung("overlapped", one, [=](const O& o) { return prepare_overlapped(o, many); }),
        rung("multicast", one, prepare_multicast<T>),
        rung("stream_k", one, prepare_stream_k<T>),
        rung("eights_and_twos", two, [](const O& o) { return prepare_patches(o); }),
        rung("matmul_hopper", of_record, [=](const O& o) { return prepare(o, {many}); }),
    };
}

}  // namespace matmul_hopper

template <class T>
void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<T> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<T> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);
    const matmul_hopper::ExchangeBuffers exchange(session.gpu.multiprocessors);

    auto contenders = matmul_hopper::contenders<T>(
        [&] {
            return matmul_hopper::Operands<T>{A, B, C, N, exchange};
        },
        session.gpu.multiprocessors, hopper::why_not(session.gpu));
    // The library's own choice, and the fastest of that and of what cuBLASLt proposes.
    const auto cublas = demo::cublas_contender<T>("cublas", A, B, C, N);
    contenders.push_back(cublas);
    contenders.push_back(
        demo::cublas_best_contender<T>("cublas_best", cublas, session.gpu, A, B, C, N));
    session.run(demo::matmul_workload<T>(N), reference.check(C), contenders);
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_matmul_hopper",
        .summary = "matmul Hopper's way: TMA, wgmma, warps with one job each, clusters",
        .types = {{"fp16", run<half>}, {"bf16", run<__nv_bfloat16>}},
        .grid = {{"matmul_hopper", "cublas_best"}, demo::matmul_grid(512, 16384)}};
    return demo::main_of(program, argc, argv);
}
