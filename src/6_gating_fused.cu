// 6: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), in one kernel.
//
// Everything that 5_gating_unfused ships through global memory between its kernels stays where it
// was computed. A warp that holds a tile of x W1 in registers computes the same tile of x W2 beside
// it, from the same tile of x, and then has all it needs for the answer:
//
//                 tiles of W1, W2              accumulators of a warp, in registers
//                 +-------+-------+
//                 |  W1   |  W2   |            v1 = b1 + x W1      v2 = b2 + x W2
//                 +-------+-------+                   \               /
//         +----+  +-------+-------+                  sigmoid(v1) * v2
//  tile   |    |  |  v1   |  v2   |                         |
//  of x   | x  |  |       |       |                     to fp16, to global memory: the only store
//         +----+  +-------+-------+
//
// x is loaded once instead of twice, nothing is stored but the answer, and there is one launch
// instead of six. For that a thread must hold v1 and v2 of the same element. So of the tile of
// weights in shared memory one half is of W1, the other of W2, and a warp multiplies by the same
// columns of both. What follows concerns no other thread.
//
// fused_tiled     any shape. Tiles, stages and main loop are mma_ptx's of bonus_matmul_mma, and
//                 so is what limits it.
// fused_streamed  the talk's shape (--talk S: x[4 S^2, 128], W[128, 64]). The weights are so small
//                 that every warp keeps its half of them in registers while x streams past: a copy
//                 kernel with a little arithmetic, at 80 to 90% of a copy's speed on an H200 from
//                 S = 256 up. What limits it: a thread takes 242 registers, 128 of them for
//                 weights, so an SM has room for 8 warps, and they issue something in 45% of the
//                 cycles. The copies of three tiles per block are on their way meanwhile. Blocks
//                 are small, two warps, so that a barrier holds up few.
//
// fused_hopper    both shapes on compute capability 9.0. The square one: tiles, stages and main
//                 loop are those of bonus_matmul_hopper, unchanged. But where a stage there holds
//                 256 columns of B, here it holds 128 of W1 and the same 128 of W2: TMA puts them
//                 side by side as it copies, and nothing is packed beforehand. So the first half of
//                 a thread's sums is of x W1, and the second of x W2, for the same elements. The
//                 gate takes as long as two to four steps of the main loop, so a block's two
//                 warpgroups take turns at the end of a tile: the second one waits until the first
//                 has started its last step, and then has the tensor cores while the first gates.
//
//                 The talk's shape: a copy kernel with a tensor-core kernel hidden under it. wgmma
//                 reads the weights from shared memory, TMA brings x and takes the answers away, so
//                 nothing waits for memory but the copies. On an H200, from S = 256 up, it takes as
//                 long as a copy of as many bytes, within 4%. That takes three things: blocks draw
//                 their tiles as they go (dealt out beforehand, they take 7% longer from S = 512
//                 up), three warpgroups multiply (with two, 3 to 4% longer), and the loads ask the
//                 L2 cache to evict x last (2%; see 7_gelu). At S = 128 it takes 1.1 to 1.3 times
//                 as long as a copy: the first tile's way through both products and the gate is
//                 longer than a load and a store.
//
// When it pays: the talk's shape does little arithmetic per byte, so its time is its traffic, and
// fusion removes most of that. The square shape does N / 2 operations per byte, the talk's 85: its
// time is the gemms', fusion can only win what the elementwise kernels took, and only with a main
// loop as good as the library's. fused_tiled's runs at 0.5 to 0.7 x cuBLAS, fused_hopper's at
// about its speed.
#define GATING_UNFUSED_NO_MAIN
#include "5_gating_unfused.cu"
#define MATMUL_HOPPER_NO_MAIN
#include "bonus_matmul_hopper.cu"
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/gating.cuh"
#include "hopper.cuh"
#include "kernels/matmul_mma.cuh"
#include "ptx.cuh"

namespace gating_fused {

using namespace matmul_mma;  // the main loop, and how its tiles lie in shared memory

/// sigmoid(v1) * v2. 1.44 = log2(e): what the GPU has an instruction for is 2^x.
__device__ float gate(float v1, float v2) {
    return v2 * ptx::rcp_approx(1.0f + ptx::ex2_approx(-1.44269504f * v1));
}

/// The answers of two neighbours in a row.
__device__ uint32_t gate_pair(const float* v1, const float* v2) {
    return ptx::cvt_rn_x2<half>(gate(v1[0], v2[0]), gate(v1[1], v2[1]));
}

/// Transposes a 4 x 4 matrix of which each of four neighbouring threads t holds a row. mma leaves
/// it sums of scattered pairs of columns; then it holds 8 neighbours, 16 bytes to store:
///
///     v[j]: columns 8 j + 2 t, 8 j + 2 t + 1     ->     v[j]: columns 8 t + 2 j, 8 t + 2 j + 1
///
__device__ void transpose_in_four(uint32_t (&v)[4]) {
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & distance) continue;
            const bool upper = threadIdx.x & distance;
            const uint32_t got = __shfl_xor_sync(~0u, upper ? v[i] : v[i + distance], distance);
            v[i] = upper ? got : v[i];
            v[i + distance] = upper ? v[i + distance] : got;
        }
}

/// A block computes [kM, kN / 2] of out. The left half of W's tile is from W1, the right half from
/// W2, and each warp takes the same 32 columns of both. So a thread holds both sums of the same
/// element: in sums[i][j] and sums[i][j + 4].
template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    gating_tiled(const half* x,   // [M, K] row-major
                 const half* W1,  // [K, H] row-major
                 const half* b1,  // [H]
                 const half* W2,  // [K, H] row-major
                 const half* b2,  // [H]
                 half* out,       // [M, H] row-major
                 size_t M, size_t K, size_t H) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint2 position = block_position((M + T::kM - 1) / T::kM, (2 * H + T::kN - 1) / T::kN);
    const size_t block_row = size_t(position.y) * T::kM, block_col = size_t(position.x) * T::kN / 2;
    const int lane = threadIdx.x % 32;
    const size_t row = block_row + T::warp_row() + lane / 4;  // the first of this thread's
    const size_t col = block_col + T::warp_col() / 2;         // the warp's first

    Sums sums;  // they begin as the biases
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const size_t c = col + j * 8 + lane % 4 * 2 + e % 2;
            const float bias1 = c < H ? float(b1[c]) : 0, bias2 = c < H ? float(b2[c]) : 0;
#pragma unroll
            for (int i = 0; i < kWarp / 16; ++i) sums[i][j][e] = bias1, sums[i][j + 4][e] = bias2;
        }

    const int c = T::copied_col();
    const size_t copied_col = block_col + c % (T::kN / 2);
    multiply<T, true>(sums, reinterpret_cast<typename T::Stage*>(shared), K, &x[block_row * K], K,
                      M - block_row, &(c < T::kN / 2 ? W1 : W2)[copied_col], H, copied_col < H);

#pragma unroll
    for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            uint32_t v[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = gate_pair(&sums[i][j][e], &sums[i][j + 4][e]);
            transpose_in_four(v);
            const size_t r = row + i * 16 + e / 2 * 8, c = col + lane % 4 * 8;
            if (r < M && c < H)  // __stcs: nobody reads it again, so it need not stay in a cache
                __stcs(reinterpret_cast<uint4*>(&out[r * H + c]),
                       make_uint4(v[0], v[1], v[2], v[3]));
        }
}

// --- The talk's shape: K = 128, H = 64 ----------------------------------------------------------

constexpr int kTalkK = 128, kTalkH = 64;
constexpr int kTalkThreads = 64;       // two warps ...
constexpr int kTalkCols = kTalkH / 2;  // ... with half of out's columns each
constexpr int kRows = 32;              // a tile of x is kRows x 128
constexpr int kStreamStages = 4;       // one at work, three on their way

union Stream {
    half W[2][kTalkK * kTalkH];             // [128, 64] each, swizzled; at first
    half x[kStreamStages][kRows * kTalkK];  // [kRows, 128] each, swizzled; from then on
};

/// The weights are small: each warp keeps 32 columns of both in registers for the block's whole
/// life, 128 in every thread. Then x streams past them, and nothing but x and out moves.
__global__ void __launch_bounds__(kTalkThreads)
    gating_streamed(const half* x,   // [M, 128] row-major
                    const half* W1,  // [128, 64] row-major
                    const half* b1,  // [64]
                    const half* W2,  // [128, 64] row-major
                    const half* b2,  // [64]
                    half* out,       // [M, 64] row-major
                    size_t M) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stream& stream = *reinterpret_cast<Stream*>(shared);
    const int lane = threadIdx.x % 32, col = threadIdx.x / 32 * kTalkCols;  // the warp's first

    // The weights, by way of shared memory, as fragments: [k][of W1 or W2][16 columns].
    const int copied = threadIdx.x % (kTalkH / kChunk) * kChunk;
    cp_async_tile<kTalkK, kTalkH, kTalkThreads>(stream.W[0], &W1[copied], kTalkH, kTalkK);
    cp_async_tile<kTalkK, kTalkH, kTalkThreads>(stream.W[1], &W2[copied], kTalkH, kTalkK);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the weights are complete
    uint32_t w[kTalkK / 16][2][kTalkCols / 16][4];
#pragma unroll
    for (int k = 0; k < kTalkK / 16; ++k)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int j = 0; j < kTalkCols / 16; ++j)
                ptx::ldmatrix_x4_trans(
                    w[k][m][j], &stream.W[m][swizzled<kTalkH>(k * 16 + lane % 16,
                                                              col + j * 16 + lane / 16 * kChunk)]);
    half2 bias[2][kTalkCols / 8];  // of the columns of which this thread holds sums
#pragma unroll
    for (int j = 0; j < kTalkCols / 8; ++j) {
        const int c = col + j * 8 + lane % 4 * 2;
        bias[0][j] = *reinterpret_cast<const half2*>(&b1[c]);
        bias[1][j] = *reinterpret_cast<const half2*>(&b2[c]);
    }
    __syncthreads();  // both warps have them: the memory now serves x

    const size_t tiles = M / kRows;
    const int x_col = threadIdx.x % (kTalkK / kChunk) * kChunk;
    auto copy_x = [&](int stage, size_t tile) {
        if (tile < tiles)
            cp_async_tile<kRows, kTalkK, kTalkThreads>(
                stream.x[stage], &x[tile * kRows * kTalkK + x_col], kTalkK, kRows);
        ptx::cp_async_commit_group();  // an empty group counts too, so that the wait stays the same
    };
    for (int t = 0; t < kStreamStages - 1; ++t) copy_x(t, blockIdx.x + size_t(t) * gridDim.x);

    int reading = 0, writing = kStreamStages - 1;  // stages
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        ptx::cp_async_wait_group<kStreamStages -
                                 2>();  // this thread's part of the tile has arrived
        __syncthreads();                // everyone's has, and the one before is used up
        copy_x(writing, tile + size_t(kStreamStages - 1) * gridDim.x);

#pragma unroll 1
        for (int i = 0; i < kRows; i += 16) {
            float sums[2][kTalkCols / 8][4];  // of 16 rows
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int j = 0; j < kTalkCols / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; e += 2) {
                        sums[m][j][e] = __low2float(bias[m][j]);
                        sums[m][j][e + 1] = __high2float(bias[m][j]);
                    }
#pragma unroll
            for (int k = 0; k < kTalkK / 16; ++k) {
                uint32_t a[4];
                ptx::ldmatrix_x4(a, &stream.x[reading][swizzled<kTalkK>(
                                        i + lane % 16, k * 16 + lane / 16 * kChunk)]);
#pragma unroll
                for (int m = 0; m < 2; ++m)
#pragma unroll
                    for (int j = 0; j < kTalkCols / 8; ++j)
                        ptx::mma_m16n8k16(sums[m][j], a, w[k][m][j / 2][j % 2 * 2],
                                          w[k][m][j / 2][j % 2 * 2 + 1]);
            }
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                uint32_t v[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) v[j] = gate_pair(&sums[0][j][e], &sums[1][j][e]);
                transpose_in_four(v);
                const size_t row = tile * kRows + i + e / 2 * 8 + lane / 4;
                *reinterpret_cast<uint4*>(&out[row * kTalkH + col + lane % 4 * 8]) = {v[0], v[1],
                                                                                      v[2], v[3]};
            }
        }
        reading = reading + 1 == kStreamStages ? 0 : reading + 1;
        writing = writing + 1 == kStreamStages ? 0 : writing + 1;
    }
}

}  // namespace gating_fused

// --- Hopper: the square shape -------------------------------------------------------------------

namespace gating_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are dealt out and stored

constexpr int kAlone = 2;  // last steps of a tile that the second warpgroup has to itself

template <int kTileN, int kStages>
struct GatingMemory : Memory<half, kTileN, kStages, kOutPanels> {
    hopper::Barrier last_step;  // the first warpgroup has started a tile's last step
    static_assert(kAlone + 2 <= kStages, "else the last step would need a stage that is held back");
};

/// The gates of what a thread holds of a tile: sums[i] of x W1, and kGates further on of x W2.
template <int kGates>
__device__ void gate_sums(float (&gates)[kGates], const float (&sums)[2 * kGates],
                          const half2 (&bias1)[kGates / 4], const half2 (&bias2)[kGates / 4]) {
#pragma unroll
    for (int i = 0; i < kGates; i += 2) {
        const float2 b1 = __half22float2(bias1[i / 4]), b2 = __half22float2(bias2[i / 4]);
        gates[i] = gating_fused::gate(sums[i] + b1.x, sums[kGates + i] + b2.x);
        gates[i + 1] = gating_fused::gate(sums[i + 1] + b1.y, sums[kGates + i + 1] + b2.y);
    }
}

/// matmul_persistent with tiles of 128 x kTileN sums: those of x W1 and of x W2 for a tile of out,
/// 128 x kTileN / 2.
template <int kTileN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    gating_persistent(const __grid_constant__ CUtensorMap x,    // [N, N] row-major
                      const __grid_constant__ CUtensorMap W1,   // [N, N] row-major
                      const half* b1,                           // [N]
                      const __grid_constant__ CUtensorMap W2,   // [N, N] row-major
                      const half* b2,                           // [N]
                      const __grid_constant__ CUtensorMap out,  // [N, N] row-major
                      int N) {
    constexpr int kCols = kTileN / 2, kPanels = kCols / kPanel;  // of out
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<GatingMemory<kTileN, kStages>*>(shared);
    auto& ring = memory.ring;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const Shares<kCols, kCluster> shares{N, 0};  // no tile is divided
    if (threadIdx.x == 0) {
        hopper::mbarrier_init(&memory.last_step, 1);
        ring.init(4 * kConsumers * kCluster);
    }
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kConsumers) {
        hopper::setmaxnreg_dec<40>();
        if (threadIdx.x == kConsumers * kWarpgroup) {
            shares.for_my_parts(rank, [&](const Part& part) {
                produce(ring, at, shares.steps, [&](auto& stage, auto* full, int t) {
                    const int k = (part.backwards ? shares.steps - 1 - t : t) * kBlockK;
                    hopper::mbarrier_arrive_expect_tx(full, sizeof stage);
                    hopper::tma_load(stage.A, x, part.row, k, full);
                    // The first half of the panels is of W1, the second of the same columns of W2;
                    // each block of a cluster copies its share, for all.
                    for (int p = rank; p < 2 * kPanels; p += kCluster) {
                        const CUtensorMap& W = p < kPanels ? W1 : W2;
                        const int col = part.col + p % kPanels * kPanel;
                        if constexpr (kCluster == 1)
                            hopper::tma_load(stage.B[p], W, k, col, full);
                        else
                            hopper::tma_load_multicast(stage.B[p], W, k, col, full,
                                                       (1 << kCluster) - 1);
                    }
                });
            });
            // This block may leave once the others have freed all stages: nobody arrives any more.
            for (int s = 0; s < kStages; ++s, at.advance())
                hopper::mbarrier_wait(&ring.empty[at.stage], at.parity ^ 1);
        }
    } else {
        hopper::setmaxnreg_inc<232>();
        auto& panels = memory.out[threadIdx.x / 32];
        Outgoing<half, kCols> outgoing;
        // The ring holds the first warpgroup back, kStages steps ahead at most. Where a tile has
        // fewer, it could be two tiles ahead, and a barrier's parity tells only one from the next.
        const bool turns = shares.steps >= kStages;
        uint32_t parity = 0;
        shares.for_my_parts(rank, [&](const Part& part) {
            float sums[kTileN / 2];
            half2 bias1[kCols / 8], bias2[kCols / 8];  // of the columns that the sums are of
            consume(
                sums, ring, at, shares.steps, warpgroup,
                [&](int t) {  // the tile before goes out beside this one's first steps ...
                    if (t < kPanels) outgoing.store(t, panels, out);
                    if (turns && warpgroup == 1 && t + 1 + kAlone == shares.steps)
                        hopper::mbarrier_wait(&memory.last_step, parity), parity ^= 1;
                    const bool last = t + 1 == shares.steps;
                    if (!last) return;
                    if (threadIdx.x == 0) hopper::mbarrier_arrive(&memory.last_step);
#pragma unroll
                    for (int j = 0; j < kCols / 8; ++j) {  // ... and biases come beside its last
                        const int col = part.col + j * 8 + lane % 4 * 2;
                        bias1[j] = bias2[j] = half2{};
                        if (col >= N) continue;
                        bias1[j] = *reinterpret_cast<const half2*>(&b1[col]);
                        bias2[j] = *reinterpret_cast<const half2*>(&b2[col]);
                    }
                },
                [&](int stage) {  // each warp tells all blocks that copy into this one
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = shares.steps; p < kPanels; ++p) outgoing.store(p, panels, out);

            float gates[kTileN / 4];
            gate_sums(gates, sums, bias1, bias2);
            outgoing.take(gates, part.row + threadIdx.x / 32 * 16, part.col);
        });
        outgoing.store_all(panels, out);
    }
}

template <int kTileN, int kStages, int kCluster>
std::function<void()> persistent(const demo::Gating& g) {
    const auto kernel = gating_persistent<kTileN, kStages, kCluster>;
    const size_t bytes = sizeof(GatingMemory<kTileN, kStages>), N = g.shape.M;
    demo::allow_shared_bytes(kernel, bytes);
    const int rows = int(N + kCluster * kBlockM - 1) / (kCluster * kBlockM);
    const int tiles = rows * (int(N + kTileN / 2 - 1) / (kTileN / 2));
    // As few clusters as need no more rounds: they stay in step, and share what the cache holds.
    const int room = demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(kernel);
    const int rounds = (tiles + room - 1) / room, clusters = (tiles + rounds - 1) / rounds;
    const CUtensorMap x = hopper::tensor_map(g.x.data(), N, N, kBlockM),
                      W1 = hopper::tensor_map(g.W1.data(), N, N, kBlockK),
                      W2 = hopper::tensor_map(g.W2.data(), N, N, kBlockK),
                      out = hopper::tensor_map(g.out.data(), N, N, 16);  // what a warp stores
    return [=, b1 = g.b1.data(), b2 = g.b2.data()] {
        kernel<<<kCluster * clusters, kThreads, bytes>>>(x, W1, b1, W2, b2, out, int(N));
    };
}

/// Tiles of half the width where there are multiprocessors enough for all of them. A cluster takes
/// longer to start: that pays where there is more than one tile for each block.
inline std::function<void()> persistent(const demo::Gating& g, const demo::Gpu& gpu) {
    const size_t N = g.shape.M, many = size_t(gpu.multiprocessors);
    auto tiles = [&](size_t width) {
        return (N + kBlockM - 1) / kBlockM * ((N + width - 1) / width);
    };
    if (tiles(64) <= many) return persistent<128, 6, 1>(g);
    if (tiles(128) <= many) return persistent<256, 4, 1>(g);
    return persistent<256, 4, 2>(g);
}

// --- Hopper: the talk's shape -------------------------------------------------------------------

constexpr int kTalkK = gating_fused::kTalkK, kTalkH = gating_fused::kTalkH;
constexpr int kTalkRows = 64;       // of a tile of x and of out: what a warpgroup multiplies
constexpr int kTalkWarpgroups = 3;  // that multiply
constexpr int kTalkStages = 6;      // tiles of x that have arrived, or are on their way
constexpr int kTalkThreads = kTalkWarpgroups * kWarpgroup + 32;
// A stage always goes to the same warpgroup. Another could be a whole round ahead of it, and the
// parity of a barrier would look the same.
static_assert(kTalkStages % kTalkWarpgroups == 0);

struct alignas(1024) TalkMemory {
    half W[2][kTalkK][kTalkH];                                // W1, W2; all rows here are swizzled
    half x[kTalkStages][kTalkK / kPanel][kTalkRows][kPanel];  // in panels of 64 columns
    half out[kTalkWarpgroups][2][kTalkRows][kTalkH];          // one is written, one on its way
    hopper::Barrier weights;                                  // W has arrived
    hopper::Barrier full[kTalkStages], empty[kTalkStages];
    int tile[kTalkStages];  // which one a stage holds; `tiles` where there are no more
};

__device__ unsigned int drawn = 0;  // tiles, by all blocks of a launch; launches must not overlap

/// W1 and W2 stay in shared memory for a block's whole life. One thread starts the copies of x into
/// a ring of stages; the warpgroups take them in turn, and their answers leave through TMA.
__global__ void __launch_bounds__(kTalkThreads)
    gating_talk(const __grid_constant__ CUtensorMap x,    // [M, 128] row-major
                const __grid_constant__ CUtensorMap W1,   // [128, 64] row-major
                const half* b1,                           // [64]
                const __grid_constant__ CUtensorMap W2,   // [128, 64] row-major
                const half* b2,                           // [64]
                const __grid_constant__ CUtensorMap out,  // [M, 64] row-major
                int tiles) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<TalkMemory*>(shared);
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const bool producer = threadIdx.x == kTalkWarpgroups * kWarpgroup;
    Position<kTalkStages> at;

    auto load = [&](int tile) {
        hopper::mbarrier_wait(&memory.empty[at.stage], at.parity ^ 1);
        memory.tile[at.stage] = tile;
        hopper::mbarrier_arrive_expect_tx(&memory.full[at.stage], sizeof memory.x[0]);
        hopper::tma_load_panels(memory.x[at.stage], x, tile * kTalkRows, &memory.full[at.stage]);
        at.advance();
    };
    if (producer) {
        for (int s = 0; s < kTalkStages; ++s) {
            hopper::mbarrier_init(&memory.full[s], 1);
            hopper::mbarrier_init(&memory.empty[s], 4);
        }
        hopper::mbarrier_init(&memory.weights, 1);
        hopper::fence_mbarrier_init();
        load(blockIdx.x);  // the sooner the better
        hopper::mbarrier_arrive_expect_tx(&memory.weights, sizeof memory.W);
        hopper::tma_load(memory.W[0], W1, 0, 0, &memory.weights);
        hopper::tma_load(memory.W[1], W2, 0, 0, &memory.weights);
    }
    __syncthreads();  // the barriers are ready

    if (producer) {
        // The tiles that fill the ring are dealt out. Later ones go to whoever is ready first, and
        // draws one: so all blocks finish together, and what is read at a time lies together.
        const int dealt = kTalkStages * gridDim.x;
        // Each block draws until it finds no tile, and the very last draw of all sets `drawn` back
        // to 0, for the next launch. (Not atomicAdd: the compiler would add once for the warp, and
        // hand out the result by a shuffle, which waits for it.)
        const unsigned int last_draw = max(tiles - dealt, 0) + gridDim.x - 1;
        auto draw = [&] { return dealt + int(atomicInc(&drawn, last_draw)); };
        int next = draw();  // takes as long as a tile: so ahead of its use
        for (int tile = blockIdx.x + gridDim.x; tile < min(tiles, dealt); tile += gridDim.x)
            load(tile);
        while (next < tiles) {
            const int tile = next;
            next = draw();
            load(tile);
        }
        for (int w = 0; w < kTalkWarpgroups; ++w, at.advance()) {  // and each warpgroup is told
            hopper::mbarrier_wait(&memory.empty[at.stage], at.parity ^ 1);
            memory.tile[at.stage] = tiles;
            hopper::mbarrier_arrive(&memory.full[at.stage]);
        }
    } else if (warpgroup < kTalkWarpgroups) {
        half2 bias1[kTalkH / 8], bias2[kTalkH / 8];  // of the columns that the sums are of
#pragma unroll
        for (int j = 0; j < kTalkH / 8; ++j) {
            bias1[j] = reinterpret_cast<const half2*>(b1)[j * 4 + lane % 4];
            bias2[j] = reinterpret_cast<const half2*>(b2)[j * 4 + lane % 4];
        }
        const bool leader = threadIdx.x % kWarpgroup == 0;
        hopper::mbarrier_wait(&memory.weights, 0);
        for (int w = 0; w < warpgroup; ++w) at.advance();  // to this warpgroup's first stage
        for (int t = 0;; ++t) {
            hopper::mbarrier_wait(&memory.full[at.stage], at.parity);
            const int tile = memory.tile[at.stage];
            if (tile == tiles) break;
            float sums[kTalkH];  // one half of x W1, the other of x W2
            hopper::wgmma_fence();
            // One product gives both: B's first 64 columns are W1's, and the next 64, which lie
            // sizeof W[0] further on, W2's.
#pragma unroll
            for (int k = 0; k < kTalkK; k += 16)
                hopper::wgmma_mma_async<half>(
                    sums, hopper::matrix_descriptor(&memory.x[at.stage][k / kPanel][0][k % kPanel]),
                    hopper::matrix_descriptor(memory.W[0][k], sizeof memory.W[0]), k > 0);
            hopper::wgmma_commit_group();
            hopper::wgmma_wait_group<0>();
            if (lane == 0) hopper::mbarrier_arrive(&memory.empty[at.stage]);  // each warp

            float gates[kTalkH / 2];
            gate_sums(gates, sums, bias1, bias2);
            auto& rows = memory.out[warpgroup][t % 2];
#pragma unroll
            for (int c = 0; c < kTalkH / 16; ++c) {
                const float* v = &gates[c * 8];  // of 16 x 16 elements
                const int row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16,
                          chunk = 2 * c + lane / 16;
                hopper::stmatrix_x4(&rows[row][(chunk ^ lane % 8) * 8], pack<half>(v[0], v[1]),
                                    pack<half>(v[2], v[3]), pack<half>(v[4], v[5]),
                                    pack<half>(v[6], v[7]));
            }
            hopper::fence_proxy_async();  // TMA is to see what this thread wrote
            if (leader)
                hopper::cp_async_bulk_wait_group_read<0>();  // of the tile before: its rows are
                                                             // free
            hopper::barrier_sync_warpgroup(warpgroup);
            if (leader) {
                hopper::tma_store(out, tile * kTalkRows, 0, rows);
                hopper::cp_async_bulk_commit_group();
            }
            for (int w = 0; w < kTalkWarpgroups; ++w) at.advance();
        }
        if (leader) hopper::cp_async_bulk_wait_group_read<0>();
    }
}

/// The talk's shape.
inline std::function<void()> talk(const demo::Gating& g, const demo::Gpu& gpu) {
    demo::allow_shared_bytes(gating_talk, sizeof(TalkMemory));
    const size_t M = g.shape.M;
    const int tiles = int(M / kTalkRows);  // 4 S^2 is a multiple of 1024
    const CUtensorMap x = hopper::tensor_map(g.x.data(), M, kTalkK, kTalkRows, kTalkK / kPanel),
                      W1 = hopper::tensor_map(g.W1.data(), kTalkK, kTalkH, kTalkK),
                      W2 = hopper::tensor_map(g.W2.data(), kTalkK, kTalkH, kTalkK),
                      out = hopper::tensor_map(g.out.data(), M, kTalkH, kTalkRows);
    const int blocks = std::min(tiles, gpu.multiprocessors);
    return [=, b1 = g.b1.data(), b2 = g.b2.data()] {
        gating_talk<<<blocks, kTalkThreads, sizeof(TalkMemory)>>>(x, W1, b1, W2, b2, out, tiles);
    };
}

}  // namespace gating_hopper

// --- Launching ----------------------------------------------------------------------------------

namespace gating_fused {

inline demo::Contender tiled(const demo::Gating& g, const demo::Gpu& gpu) {
    return {.kernel = "fused_tiled",
            .setup =
                [&](demo::Contender& self) {
                    self.launch = with_tiles(gpu, g.shape.M, 2 * g.shape.H, [&]<class T>(T) {
                        demo::allow_shared_bytes(gating_tiled<T>, T::kSharedBytes);
                        return std::function<void()>([&g] {
                            const size_t M = g.shape.M, K = g.shape.K, H = g.shape.H;
                            gating_tiled<T><<<T::blocks(M, 2 * H), T::kThreads, T::kSharedBytes>>>(
                                g.x, g.W1, g.b1, g.W2, g.b2, g.out, M, K, H);
                        });
                    });
                },
            .moved_bytes = g.shape.workload().least_bytes};
}

inline demo::Contender streamed(const demo::Gating& g, const demo::Gpu& gpu) {
    return {.kernel = "fused_streamed",
            .setup =
                [&](demo::Contender& self) {
                    demo::allow_shared_bytes(gating_streamed, sizeof(Stream));
                    const int blocks_per_sm = demo::blocks_per_multiprocessor(
                        gating_streamed, kTalkThreads, sizeof(Stream));
                    const size_t blocks =
                        std::min(size_t(blocks_per_sm * gpu.multiprocessors), g.shape.M / kRows);
                    self.launch = [&g, blocks] {
                        gating_streamed<<<blocks, kTalkThreads, sizeof(Stream)>>>(
                            g.x, g.W1, g.b1, g.W2, g.b2, g.out, g.shape.M);
                    };
                },
            .moved_bytes = g.shape.workload().least_bytes,
            .only = "talk"};
}

inline demo::Contender on_hopper(const demo::Gating& g, const demo::Gpu& gpu) {
    return {.kernel = "fused_hopper",
            .setup =
                [&](demo::Contender& self) {
                    self.launch = g.shape.K == kTalkK && g.shape.H == kTalkH
                                      ? gating_hopper::talk(g, gpu)
                                      : gating_hopper::persistent(g, gpu);
                },
            .moved_bytes = g.shape.workload().least_bytes,
            .why_not = hopper::why_not(gpu)};
}

}  // namespace gating_fused

#ifndef GATING_FUSED_NO_MAIN

static void run(demo::Session& session) {
    const demo::Gating gating(session);
    const gating_unfused::Unfused unfused(gating);
    const demo::Workload work = gating.shape.workload();
    session.run(
        work, gating.check({}),
        {unfused.six_kernels(), unfused.library_best(), gating_fused::tiled(gating, session.gpu),
         gating_fused::streamed(gating, session.gpu), gating_fused::on_hopper(gating, session.gpu),
         demo::copy_contender(session, work, "talk")});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "6_gating_fused",
                                .summary = "sigmoid(x W1 + b1) * (x W2 + b2) in one kernel",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}

#endif
