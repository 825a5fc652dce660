// Bonus: Matrix multiplication on Hopper (compute capability 9.0), on a level with the library:
// fp16 or bfloat16 in and out, sums in fp32.
//
// 3_matmul_tensorcore's warps spend their time loading fragments and waiting. Hopper's tensor cores
// read shared memory themselves (wgmma), and its copy engine fills shared memory by itself (TMA).
// All rungs compute a tile of C, 128 x 256, by two warpgroups of 128 threads, 64 rows each:
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
// wgmma        Threads copy A and B into shared memory, swizzled as wgmma wants them. The tensor
//              cores are at work in 10% of the cycles: the rest is waiting for copies.
// tma          One thread starts the copies of four stages, which run by themselves: 83%. The rest
//              goes at the ends, where a block's first copies and its stores have no company.
// specialised  One warpgroup copies, two multiply, and nobody waits for all threads any more. Not
//              faster by itself, but now the parts can go on at their own pace:
// persistent   A block stays on its multiprocessor for many tiles. The next tile's copies begin
//              while this one is multiplied; the sums are rounded into spare registers, and are
//              stored beside the next tile's first steps. Two blocks (a cluster) share their copies
//              of B. Tiles that do not come out even are divided among all blocks. 95%. Where N is
//              small, so are the tiles: 64 x 128 at N = 1024, of which there are 128.
//
// (Percentages by ncu, N = 4096, on an H200.) What limits persistent is power: an H200 that runs
// nothing else turns its clock down from N = 4096 up, from 1.98 to 1.5 GHz, so that whatever saves
// energy saves time. That is why the order of the tiles matters at all: "tma" at N = 8192 keeps the
// tensor cores at work in 91% of the cycles, but reads 1.6 times as much from L2 and 3 times as
// much from memory; its clock falls to 1.33 GHz, and it takes 1.2 times as long. (A cluster of four
// would read even less, but only 30 of them fit, on 120 of the 132 SMs.) At N = 2048 there is one
// tile for each block, and nothing to hide its beginning and end behind: of some 39,000 cycles
// 3,000 pass until the first stage is there, 33,000 in the main loop, which is as long as the
// tensor cores take, and then 3,000 while all blocks store at once.
#include <functional>

#include "demo.cuh"
#include "demo/cublaslt.cuh"
#include "demo/matmul.cuh"
#include "hopper.cuh"

namespace matmul_hopper {

constexpr int kBlockM = 128, kBlockK = 64;  // a stage holds kBlockM x kBlockK of A
constexpr int kPanel = 64;                  // a row of 64 elements is 128 bytes: wgmma's layout
constexpr int kConsumers = kBlockM / 64;    // warpgroups that multiply: 64 rows of the tile each
constexpr int kWarpgroup = 128;             // threads

/// A step's share of A and B in shared memory.
template <class T, int kBlockN, int kTileM = kBlockM>
struct alignas(1024) Stage {
    T A[kTileM][kBlockK];                    // rows swizzled
    T B[kBlockN / kPanel][kBlockK][kPanel];  // panels of 64 columns, rows swizzled
};

/// The number of this thread's warpgroup; the shuffle tells the compiler that a warp agrees on it.
__device__ int warpgroup_index() { return __shfl_sync(~0u, threadIdx.x / kWarpgroup, 0); }

/// Starts a warpgroup's 64 rows of  sums[kTileM, kBlockN] (+)= stage.A stage.B.
template <class T, int kBlockN, int kTileM>
__device__ void multiply_stage(float (&sums)[kBlockN / 2], const Stage<T, kBlockN, kTileM>& stage,
                               int warpgroup, bool keep) {
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlockK; k += 16)
        hopper::wgmma_mma_async<T>(sums, hopper::matrix_descriptor(&stage.A[64 * warpgroup][k]),
                                   hopper::matrix_descriptor(&stage.B[0][k][0], sizeof stage.B[0]),
                                   keep || k > 0);
    hopper::wgmma_commit_group();
}

/// Two neighbouring elements of C, rounded.
template <class T>
__device__ uint32_t pack(float low, float high) {
    if constexpr (std::is_same_v<T, half>) {
        const __half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
}

/// Stores a warpgroup's sums straight from the registers, 4 bytes at a time.
template <class T, int kBlockN>
__device__ void store_sums(const float (&sums)[kBlockN / 2],
                           T* C,  // [N, N] row-major
                           size_t N, size_t row, size_t col) {
    row += threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlockN / 2; i += 2) {
        const size_t r = row + i / 2 % 2 * 8, c = col + i / 4 * 8;
        if (r < N && c < N)
            *reinterpret_cast<uint32_t*>(&C[r * N + c]) = pack<T>(sums[i], sums[i + 1]);
    }
}

// --- 1: wgmma alone -----------------------------------------------------------------------------

constexpr int kBlockN = 256;  // a tile of C is 128 x 256

/// Copies from[kRows, 64] into swizzled rows, 16 bytes at a time; what lies outside becomes 0.
template <int kRows, class T>
__device__ void copy_swizzled(T (*to)[kPanel], const T* from, size_t pitch, size_t rows,
                              size_t columns) {
    const int chunk = threadIdx.x % 8;  // of 8 elements
    for (int row = threadIdx.x / 8; row < kRows; row += kConsumers * kWarpgroup / 8) {
        const bool inside = size_t(row) < rows && size_t(chunk * 8) < columns;
        uint4 values = {0, 0, 0, 0};
        if (inside) values = *reinterpret_cast<const uint4*>(&from[row * pitch + chunk * 8]);
        *reinterpret_cast<uint4*>(&to[row][(chunk ^ row % 8) * 8]) = values;
    }
}

template <class T>
__global__ void __launch_bounds__(kConsumers* kWarpgroup)
    matmul_wgmma(const T* A,  // [N, N] row-major
                 const T* B,  // [N, N] row-major
                 T* C,        // [N, N] row-major
                 size_t N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& stage = *reinterpret_cast<Stage<T, kBlockN>*>(shared);
    const size_t row = size_t(blockIdx.y) * kBlockM, col = size_t(blockIdx.x) * kBlockN;
    const int warpgroup = warpgroup_index();

    float sums[kBlockN / 2];
    for (size_t k = 0; k < N; k += kBlockK) {
        copy_swizzled<kBlockM>(stage.A, &A[row * N + k], N, N - row, N - k);
        for (size_t p = 0; p < kBlockN / kPanel && col + p * kPanel < N; ++p)
            copy_swizzled<kBlockK>(stage.B[p], &B[k * N + col + p * kPanel], N, N - k,
                                   N - (col + p * kPanel));
        hopper::fence_proxy_async();  // wgmma is to see what these threads wrote
        __syncthreads();              // the stage is complete
        multiply_stage<T, kBlockN>(sums, stage, warpgroup, k > 0);
        hopper::wgmma_wait_group<0>();
        __syncthreads();  // nobody needs the stage any more
    }
    store_sums<T, kBlockN>(sums, C, N, row + warpgroup * 64, col);
}

// --- 2: TMA and a pipeline ----------------------------------------------------------------------

/// Stages in a ring, with the barriers that say who may use them.
template <class T, int kBlockN, int kStages, int kTileM = kBlockM>
struct Ring {
    Stage<T, kBlockN, kTileM> stages[kStages];
    hopper::Barrier full[kStages];   // the stage's bytes have arrived
    hopper::Barrier empty[kStages];  // nobody needs them any more

    /// One thread prepares the barriers; `readers` warps will free each stage.
    __device__ void init(int readers) {
        for (int s = 0; s < kStages; ++s) {
            hopper::mbarrier_init(&full[s], 1);
            hopper::mbarrier_init(&empty[s], readers);
        }
        hopper::fence_mbarrier_init();
    }
};

/// Where a walk around the ring stands: the stage, and the parity of its barriers' phase.
template <int kStages>
struct Position {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void advance() {
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
};

/// One thread starts the copies of a stage: columns k ... of A, rows k ... of B.
template <class T, int kBlockN, int kTileM>
__device__ void load_stage(Stage<T, kBlockN, kTileM>& stage, hopper::Barrier* full,
                           const CUtensorMap& A, const CUtensorMap& B, int row, int col, int k) {
    hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
    hopper::tma_load(stage.A, A, row, k, full);
    for (int p = 0; p < kBlockN / kPanel; ++p)
        hopper::tma_load(stage.B[p], B, k, col + p * kPanel, full);
}

template <class T, int kStages>
__global__ void __launch_bounds__(kConsumers* kWarpgroup)
    matmul_tma(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
               const __grid_constant__ CUtensorMap B,  // [N, N] row-major
               T* C,                                   // [N, N] row-major
               int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& ring = *reinterpret_cast<Ring<T, kBlockN, kStages>*>(shared);
    const int row = blockIdx.y * kBlockM, col = blockIdx.x * kBlockN;
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    if (threadIdx.x == 0) ring.init(1);
    __syncthreads();

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
    store_sums<T, kBlockN>(sums, C, N, row + warpgroup * 64, col);
}

// --- 3: Warps with one job each -----------------------------------------------------------------

/// The producer, one thread: fills the ring with a tile's `steps` as stages become free.
/// load(stage, full, t) starts the copies of step t.
template <class T, int kBlockN, int kStages, int kTileM, class Load>
__device__ void produce(Ring<T, kBlockN, kStages, kTileM>& ring, Position<kStages>& at, int steps,
                        Load load) {
    for (int t = 0; t < steps; ++t, at.advance()) {
        hopper::mbarrier_wait(&ring.empty[at.stage],
                              at.parity ^ 1);  // the first round finds all free
        load(ring.stages[at.stage], &ring.full[at.stage], t);
    }
}

/// A consumer, one warpgroup: the sums of its 64 rows over all steps. One step's wgmma are under
/// way while the next ones are started; meanwhile(t) runs beside step t; release(stage) frees a
/// stage.
template <class T, int kBlockN, int kStages, int kTileM, class Meanwhile, class Release>
__device__ void consume(float (&sums)[kBlockN / 2], Ring<T, kBlockN, kStages, kTileM>& ring,
                        Position<kStages>& at, int steps, int warpgroup, Meanwhile meanwhile,
                        Release release) {
    int previous = 0;
    for (int t = 0; t < steps; ++t, at.advance()) {
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        multiply_stage<T, kBlockN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        meanwhile(t);
        hopper::wgmma_wait_group<1>();
        if (t > 0) release(previous);
        previous = at.stage;
    }
    hopper::wgmma_wait_group<0>();
    release(previous);
}

constexpr int kStages = 4;

/// Of a block with tiles of that many rows: its consumers and a producer.
constexpr int threads(int rows) { return (rows / 64 + 1) * kWarpgroup; }
constexpr int kThreads = threads(kBlockM);

template <class T, int kStages>
__global__ void __launch_bounds__(kThreads, 1)
    matmul_specialised(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                       const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                       T* C,                                   // [N, N] row-major
                       int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& ring = *reinterpret_cast<Ring<T, kBlockN, kStages>*>(shared);
    const int row = blockIdx.y * kBlockM, col = blockIdx.x * kBlockN;
    const int warpgroup = warpgroup_index(), steps = (N + kBlockK - 1) / kBlockK;
    if (threadIdx.x == 0) ring.init(4 * kConsumers);
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
                if (threadIdx.x % 32 == 0)
                    hopper::mbarrier_arrive(&ring.empty[stage]);  // each warp
            });
        store_sums<T, kBlockN>(sums, C, N, row + warpgroup * 64, col);
    }
}

// --- 4: Clusters, even shares, an epilogue beside the next tile ---------------------------------

/// Tile i of rows x columns: down 8 rows, then on to the next column, so that the tiles at work at
/// any time form a square, whose rows of A and columns of B the L2 cache holds.
__device__ int2 walk(int i, int rows, int columns) {
    constexpr int kGroup = 8;
    int first = 0;
    for (; i >= kGroup * columns; i -= kGroup * columns) first += kGroup;
    // The first copy waits for this: nothing is divided that does not have to be.
    if (first + kGroup <= rows) return {first + i % kGroup, i / kGroup};
    return {first + i % (rows - first), i / (rows - first)};
}

/// What a block computes at a time: steps first ... last - 1 of a tile's sums.
struct Part {
    int tile;  // its number
    int row, col;
    int first, last;
    bool backwards;  // from the last step to the first
};

/// How tiles are dealt out. A cluster's blocks take tiles below each other, which need the same
/// part of B: together they are one tile here. Tiles 0 ... divided - 1 do not come out even, and
/// are cut up: all their steps, one tile's after the other's, are shared out evenly.
template <int kBlockN, int kCluster, int kTileM = kBlockM>
struct Shares {
    int N, divided;
    int steps = (N + kBlockK - 1) / kBlockK;
    int rows = (N + kCluster * kTileM - 1) / (kCluster * kTileM);
    int columns = (N + kBlockN - 1) / kBlockN, tiles = rows * columns;
    int clusters = gridDim.x / kCluster, cluster = blockIdx.x / kCluster;

    /// The first of the divided tiles' steps that is cluster c's.
    __device__ int first_step(int c) const {
        return divided == 0 ? 0 : int(int64_t(c) * divided * steps / clusters);
    }

    /// Calls work(part) for all that this block computes.
    template <class Work>
    __device__ void for_my_parts(int rank, Work work) const {
        auto part = [&](int i, int first, int last, bool backwards) {
            const int2 tile = walk(i, rows, columns);
            const int row = (tile.x * kCluster + rank) * kTileM, col = tile.y * kBlockN;
            work(Part{i, row, col, first, last, backwards});
        };
        for (int s = first_step(cluster), end = first_step(cluster + 1); s < end;) {
            const int first = s % steps, last = min(steps, first + end - s);
            part(s / steps, first, last, false);
            s += last - first;
        }
        // Every other whole tile backwards: it finds the end of its row of A still cached.
        bool backwards = true;
        for (int i = divided + cluster; i < tiles; i += clusters, backwards = !backwards)
            part(i, 0, steps, backwards);
    }
};

/// Sums of divided tiles on their way from block to block. Threads with the same number hold the
/// same elements: each hands its own over, and each warp has a flag.
struct Exchange {
    float4* sums;  // [blocks, kBlockN / 8, threads]
    int* ready;    // [blocks, warps], 0 between launches

    static constexpr int kThreads = kConsumers * kWarpgroup, kWarps = kThreads / 32;

    /// Lays this block's sums down.
    template <int kSums>
    __device__ void give(const float (&mine)[kSums]) const {
        float4* const to = &sums[size_t(blockIdx.x) * (kSums / 4) * kThreads + threadIdx.x];
#pragma unroll
        for (int i = 0; i < kSums / 4; ++i)
            to[i * kThreads] = {mine[4 * i], mine[4 * i + 1], mine[4 * i + 2], mine[4 * i + 3]};
        __threadfence();  // the sums first, then the flag
        __syncwarp();
        if (threadIdx.x % 32 == 0) atomicExch(&ready[blockIdx.x * kWarps + threadIdx.x / 32], 1);
    }

    /// Adds the sums of `block`, once they are there. All blocks run at once, so they will be; and
    /// they are added in the same order each time.
    template <int kSums>
    __device__ void add(float (&mine)[kSums], int block) const {
        int* const flag = &ready[block * kWarps + threadIdx.x / 32];
        if (threadIdx.x % 32 == 0) {
            while (atomicAdd(flag, 0) == 0) {
            }
            *flag = 0;
            __threadfence();
        }
        __syncwarp();
        const float4* const from = &sums[size_t(block) * (kSums / 4) * kThreads + threadIdx.x];
#pragma unroll
        for (int i = 0; i < kSums / 4; ++i) {
            const float4 theirs = from[i * kThreads];
            mine[4 * i] += theirs.x, mine[4 * i + 1] += theirs.y;
            mine[4 * i + 2] += theirs.z, mine[4 * i + 3] += theirs.w;
        }
    }
};

constexpr int kOutPanels = 2;  // on their way out, 64 columns each

template <class T, int kBlockN, int kStages, int kOutPanels, int kTileM = kBlockM>
struct Memory {
    Ring<T, kBlockN, kStages, kTileM> ring;
    alignas(1024) T out[kTileM / 16][kOutPanels][16][kPanel];  // of each warp; rows swizzled
};

/// A warp's 16 rows of a finished tile: rounded, which frees the sums' registers for the next tile.
template <class T, int kBlockN>
struct Outgoing {
    static constexpr int kPanels = kBlockN / kPanel;
    uint32_t pairs[kBlockN / 4];
    int row, col;
    bool pending = false;

    __device__ void take(const float (&sums)[kBlockN / 2], int new_row, int new_col) {
#pragma unroll
        for (int i = 0; i < kBlockN / 4; ++i) pairs[i] = pack<T>(sums[2 * i], sums[2 * i + 1]);
        row = new_row, col = new_col, pending = true;
    }

    /// Stores panel p, beside other work, where there is one.
    template <int kOutPanels>
    __device__ void store(int p, T (&out)[kOutPanels][16][kPanel], const CUtensorMap& C) {
        if (!pending) return;
#pragma unroll
        for (int q = 0; q < kPanels; ++q)  // registers have no index at run time
            if (p == q) store_panel(q, out, C);
        pending = p + 1 < kPanels;
    }

    /// Stores all panels of the last tile, and waits until shared memory is free to go.
    template <int kOutPanels>
    __device__ void store_all(T (&out)[kOutPanels][16][kPanel], const CUtensorMap& C) const {
        if (pending) {
#pragma unroll
            for (int p = 0; p < kPanels; ++p) store_panel(p, out, C);
        }
        if (threadIdx.x % 32 == 0) hopper::cp_async_bulk_wait_group_read<0>();
    }

  private:
    /// Through shared memory; TMA reads that while the warp goes on.
    template <int kOutPanels>
    __device__ void store_panel(int p, T (&out)[kOutPanels][16][kPanel],
                                const CUtensorMap& C) const {
        const int lane = threadIdx.x % 32;
        T(&panel)[16][kPanel] = out[p % kOutPanels];
        constexpr int kInUse = kPanels < kOutPanels ? kPanels : kOutPanels;  // in turn
        if (lane == 0) hopper::cp_async_bulk_wait_group_read<kInUse - 1>();
        __syncwarp();  // the panel may be overwritten
#pragma unroll
        for (int c = 0; c < kPanel / 16; ++c) {
            const uint32_t* v = &pairs[(p * kPanel / 16 + c) * 4];  // 16 x 16 elements
            const int chunk = 2 * c + lane / 16;
            hopper::stmatrix_x4(&panel[lane % 16][(chunk ^ lane % 8) * 8], v[0], v[1], v[2], v[3]);
        }
        hopper::fence_proxy_async();  // TMA is to see what this thread wrote
        __syncwarp();
        if (lane == 0) {
            hopper::tma_store(C, row, col + p * kPanel, panel);
            hopper::cp_async_bulk_commit_group();
        }
    }
};

template <class T, int kTileM, int kBlockN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(threads(kTileM), 1)
    matmul_persistent(const __grid_constant__ CUtensorMap A,  // [N, N] row-major
                      const __grid_constant__ CUtensorMap B,  // [N, N] row-major
                      const __grid_constant__ CUtensorMap C,  // [N, N] row-major
                      int N, int divided, Exchange exchange) {
    constexpr int kConsumers = kTileM / 64;
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<T, kBlockN, kStages, kOutPanels, kTileM>*>(shared);
    auto& ring = memory.ring;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const Shares<kBlockN, kCluster, kTileM> shares{N, divided};
    if (threadIdx.x == 0) ring.init(4 * kConsumers * kCluster);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        if constexpr (kConsumers > 1) hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup) {
            shares.for_my_parts(rank, [&](const Part& part) {
                produce(ring, at, part.last - part.first, [&](auto& stage, auto* full, int t) {
                    const int k = (part.backwards ? part.last - 1 - t : part.first + t) * kBlockK;
                    if constexpr (kCluster == 1) {
                        load_stage(stage, full, A, B, part.row, part.col, k);
                    } else {  // each block copies its share of B, for all
                        hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
                        hopper::tma_load(stage.A, A, part.row, k, full);
                        for (int p = rank; p < kBlockN / kPanel; p += kCluster)
                            hopper::tma_load_multicast(stage.B[p], B, k, part.col + p * kPanel,
                                                       full, (1 << kCluster) - 1);
                    }
                });
            });
            // This block may leave once the others have freed all stages: nobody arrives any more.
            for (int s = 0; s < kStages; ++s, at.advance())
                hopper::mbarrier_wait(&ring.empty[at.stage], at.parity ^ 1);
        }
    } else {
        if constexpr (kConsumers > 1) hopper::setmaxnreg_inc<232>();
        constexpr int kPanels = kBlockN / kPanel;
        auto& out = memory.out[threadIdx.x / 32];
        Outgoing<T, kBlockN> outgoing;
        shares.for_my_parts(rank, [&](const Part& part) {
            float sums[kBlockN / 2];
            const int steps = part.last - part.first;
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // the tile before goes out beside this one's first steps
                    if (t < kPanels) outgoing.store(t, out, C);
                },
                [&](int stage) {  // each warp tells all blocks that copy into this one
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, out, C);

            if (part.first > 0) {  // the block that has the tile's first steps wants these sums
                exchange.give(sums);
                return;
            }
            for (int c = shares.cluster + 1, last = part.last; last < shares.steps; ++c) {
                exchange.add(sums, c * kCluster + rank);
                last = min(shares.steps, shares.first_step(c + 1) - part.tile * shares.steps);
            }
            outgoing.take(sums, part.row + threadIdx.x / 32 * 16, part.col);
        });
        outgoing.store_all(out, C);
    }
}

// --- Launching ----------------------------------------------------------------------------------

/// The memory of an Exchange: the same for all N.
class ExchangeMemory {
  public:
    explicit ExchangeMemory(int blocks)
        : sums_(size_t(blocks) * kBlockM * kBlockN / 4), ready_(size_t(blocks), Exchange::kWarps) {
        DEMO_CHECK(cudaMemset(ready_.data(), 0, ready_.bytes()));
    }

    operator Exchange() const { return {sums_.data(), ready_.data()}; }

  private:
    demo::Buffer<float4> sums_;
    demo::Buffer<int> ready_;
};

/// A, B and C, as the kernels take them.
template <class T>
struct Operands {
    const T *A, *B;  // [N, N] row-major
    T* C;            // [N, N] row-major
    size_t N;
    Exchange exchange;
    // TMA copies 64 columns at a time, of these many rows:
    CUtensorMap map_A = hopper::tensor_map(A, N, N, kBlockM);
    CUtensorMap map_B = hopper::tensor_map(B, N, N, kBlockK);
    CUtensorMap map_C = hopper::tensor_map(C, N, N, 16);  // what a warp stores

    dim3 grid() const { return dim3((N + kBlockN - 1) / kBlockN, (N + kBlockM - 1) / kBlockM); }
};

template <class T>
std::function<void()> wgmma(const Operands<T>& o) {
    const size_t bytes = sizeof(Stage<T, kBlockN>);
    demo::allow_shared_bytes(matmul_wgmma<T>, bytes);
    return [=] { matmul_wgmma<<<o.grid(), kConsumers * kWarpgroup, bytes>>>(o.A, o.B, o.C, o.N); };
}

template <class T>
std::function<void()> tma(const Operands<T>& o) {
    const auto kernel = matmul_tma<T, kStages>;
    const size_t bytes = sizeof(Ring<T, kBlockN, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    return [=] {
        kernel<<<o.grid(), kConsumers * kWarpgroup, bytes>>>(o.map_A, o.map_B, o.C, int(o.N));
    };
}

template <class T>
std::function<void()> specialised(const Operands<T>& o) {
    const auto kernel = matmul_specialised<T, kStages>;
    const size_t bytes = sizeof(Ring<T, kBlockN, kStages>);
    demo::allow_shared_bytes(kernel, bytes);
    return [=] { kernel<<<o.grid(), kThreads, bytes>>>(o.map_A, o.map_B, o.C, int(o.N)); };
}

template <class T, int kTileM, int kTileN, int kStages, int kCluster>
std::function<void()> persistent(const Operands<T>& o) {
    const auto kernel = matmul_persistent<T, kTileM, kTileN, kStages, kCluster>;
    const size_t bytes = sizeof(Memory<T, kTileN, kStages, kOutPanels, kTileM>);
    demo::allow_shared_bytes(kernel, bytes);
    const int rows = int(o.N + kCluster * kTileM - 1) / (kCluster * kTileM);
    const int tiles = rows * (int(o.N + kTileN - 1) / kTileN), steps = int(o.N / kBlockK);
    const int room = demo::ClusterLaunch(1, kCluster, threads(kTileM), bytes).at_once(kernel);
    int clusters = std::min(tiles, room), divided = tiles % clusters;
    // Dividing tiles keeps all clusters busy to the end, and passing sums on costs what 20 steps
    // do.
    if ((clusters - divided) * steps <= 20 * clusters) {
        // As few clusters as need no more rounds: they stay in step, and share what the cache
        // holds.
        const int rounds = (tiles + room - 1) / room;
        clusters = (tiles + rounds - 1) / rounds, divided = 0;
    }
    const CUtensorMap map_A = hopper::tensor_map(o.A, o.N, o.N, kTileM);
    return [=] {
        kernel<<<kCluster * clusters, threads(kTileM), bytes>>>(map_A, o.map_B, o.map_C, int(o.N),
                                                                divided, o.exchange);
    };
}

/// The largest tiles of which there are enough for most multiprocessors, and as many stages as fit.
/// A cluster takes longer to start: that pays where there is more than one tile for each block.
template <class T>
std::function<void()> persistent(const Operands<T>& o, int multiprocessors) {
    const size_t many = size_t(multiprocessors), enough = 3 * many / 4;
    auto tiles = [&](size_t width) {
        return (o.N + kBlockM - 1) / kBlockM * ((o.N + width - 1) / width);
    };
    if (tiles(256) > many) return persistent<T, 128, 256, 4, 2>(o);
    if (tiles(256) >= enough) return persistent<T, 128, 256, 4, 1>(o);
    if (tiles(128) >= enough) return persistent<T, 128, 128, 6, 1>(o);
    return persistent<T, 64, 128, 8, 1>(o);
}

/// All rungs: each is `launch` of these operands, which it prepares. `why_not`: why none of them
/// can run here.
template <class T>
std::vector<demo::Contender> contenders(std::function<Operands<T>()> operands, int multiprocessors,
                                        const std::string& why_not) {
    using Launch = std::function<void()>;
    auto rung = [&](const std::string& name, std::function<Launch(const Operands<T>&)> prepare) {
        return demo::Contender{
            .kernel = name,
            .setup = [=](demo::Contender& self) { self.launch = prepare(operands()); },
            .why_not = why_not};
    };
    return {
        rung("wgmma", wgmma<T>), rung("tma", tma<T>), rung("specialised", specialised<T>),
        rung("persistent", [=](const Operands<T>& o) { return persistent(o, multiprocessors); })};
}

}  // namespace matmul_hopper

#ifndef MATMUL_HOPPER_NO_MAIN

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

#endif
