// fused_talk_mma for every GPU, fused_talk_hopper for Hopper: the suite's fastest fused gating of
// the talk's shape, x[M, 128], W[128, 64]. They belong to bonus_gating_talk, which explains them;
// lesson 6 and bonus_benchmark_fused run them too.
#pragma once

#include "gating/gating_hopper.cuh"
#include "gating/gating_mma.cuh"

namespace talk {
constexpr int kK = 128, kH = 64;
}

// --- Weights in registers, on every GPU ----------------------------------------------------------

namespace talk_mma {

using namespace gating_mma;  // mma's tiles in shared memory, and the way out
using talk::kH, talk::kK;

constexpr int kThreads = 64;   // two warps: a barrier holds up few
constexpr int kCols = kH / 2;  // of out, of each warp
constexpr int kRows = 32;      // of a tile of x
constexpr int kStages = 4;     // one is multiplied, three are on their way

union Memory {
    half W[2][kK * kH];           // [128, 64] each, swizzled; at first
    half x[kStages][kRows * kK];  // [kRows, 128] each, swizzled; from then on
};

/// Each warp keeps 32 columns of both weights in registers for the block's whole life: 128
/// registers of every thread. Then x streams past them, and nothing but x and out moves.
__global__ void __launch_bounds__(kThreads) fused_talk_mma(const half* x,   // [M, 128] row-major
                                                           const half* W1,  // [128, 64] row-major
                                                           const half* b1,  // [64]
                                                           const half* W2,  // [128, 64] row-major
                                                           const half* b2,  // [64]
                                                           half* out,       // [M, 64] row-major
                                                           size_t M) {
    extern __shared__ __align__(128) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    const int lane = threadIdx.x % 32, col = threadIdx.x / 32 * kCols;  // the warp's first

    // The weights, by way of shared memory, as fragments: [k][of W1 or W2][16 columns].
    const int copied = threadIdx.x % (kH / kChunk) * kChunk;
    cp_async_tile<kK, kH, kThreads>(memory.W[0], &W1[copied], kH, kK);
    cp_async_tile<kK, kH, kThreads>(memory.W[1], &W2[copied], kH, kK);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the weights are complete
    uint32_t w[kK / 16][2][kCols / 16][4];
#pragma unroll
    for (int k = 0; k < kK / 16; ++k)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int j = 0; j < kCols / 16; ++j)
                ptx::ldmatrix_x4_trans(
                    w[k][m][j], &memory.W[m][swizzled<kH>(k * 16 + lane % 16,
                                                          col + j * 16 + lane / 16 * kChunk)]);
    half2 bias[2][kCols / 8];  // for the columns of this thread's sums
#pragma unroll
    for (int j = 0; j < kCols / 8; ++j) {
        const int c = col + j * 8 + lane % 4 * 2;
        bias[0][j] = *reinterpret_cast<const half2*>(&b1[c]);
        bias[1][j] = *reinterpret_cast<const half2*>(&b2[c]);
    }
    __syncthreads();  // both warps have them: the memory now serves x

    const size_t tiles = M / kRows;
    const int x_col = threadIdx.x % (kK / kChunk) * kChunk;
    auto copy_x = [&](int stage, size_t tile) {
        if (tile < tiles)
            cp_async_tile<kRows, kK, kThreads>(memory.x[stage], &x[tile * kRows * kK + x_col], kK,
                                               kRows);
        ptx::cp_async_commit_group();  // an empty group counts too, so that the wait stays the same
    };
    for (int t = 0; t < kStages - 1; ++t) copy_x(t, blockIdx.x + size_t(t) * gridDim.x);

    int reading = 0, writing = kStages - 1;  // stages
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        ptx::cp_async_wait_group<kStages - 2>();  // this thread's part of the tile has arrived
        __syncthreads();                          // everyone's has, and the one before is used up
        copy_x(writing, tile + size_t(kStages - 1) * gridDim.x);

#pragma unroll 1
        for (int i = 0; i < kRows; i += 16) {
            float sums[2][kCols / 8][4];  // of 16 rows
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int j = 0; j < kCols / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; e += 2) {
                        sums[m][j][e] = __low2float(bias[m][j]);
                        sums[m][j][e + 1] = __high2float(bias[m][j]);
                    }
#pragma unroll
            for (int k = 0; k < kK / 16; ++k) {
                uint32_t a[4];
                ptx::ldmatrix_x4(
                    a,
                    &memory.x[reading][swizzled<kK>(i + lane % 16, k * 16 + lane / 16 * kChunk)]);
#pragma unroll
                for (int m = 0; m < 2; ++m)
#pragma unroll
                    for (int j = 0; j < kCols / 8; ++j)
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
                *reinterpret_cast<uint4*>(&out[row * kH + col + lane % 4 * 8]) = {v[0], v[1], v[2],
                                                                                  v[3]};
            }
        }
        reading = reading + 1 == kStages ? 0 : reading + 1;
        writing = writing + 1 == kStages ? 0 : writing + 1;
    }
}

inline demo::Contender contender(const demo::Gating& g, const demo::Gpu& gpu) {
    auto prepare = [&g, &gpu] {
        demo::allow_shared_bytes(fused_talk_mma, sizeof(Memory));
        const int blocks_per_sm =
            demo::blocks_per_multiprocessor(fused_talk_mma, kThreads, sizeof(Memory));
        const size_t M = g.shape.M, tiles = M / kRows;
        const size_t blocks = std::min(size_t(blocks_per_sm * gpu.multiprocessors), tiles);
        return [=, &g] {
            fused_talk_mma<<<blocks, kThreads, sizeof(Memory)>>>(g.x, g.W1, g.b1, g.W2, g.b2, g.out,
                                                                 M);
        };
    };
    return g.fused_prepared("fused_talk_mma", prepare, "talk");
}

}  // namespace talk_mma

// --- Weights in shared memory, on Hopper ---------------------------------------------------------

namespace talk_hopper {

using matmul_hopper::kPanel, matmul_hopper::kWarpgroup, matmul_hopper::Position;
using talk::kH, talk::kK;

constexpr int kRows = 64;       // of a tile of x and of out: what a warpgroup multiplies
constexpr int kWarpgroups = 3;  // that multiply; two are 3 to 4% slower
constexpr int kStages = 6;      // tiles of x that have arrived, or are on their way
constexpr int kThreads = kWarpgroups * kWarpgroup + 32;
// A stage always goes to the same warpgroup. Else one could wait for a stage's next tile while
// another still waits for this one, and parity could not tell the two phases apart.
static_assert(kStages % kWarpgroups == 0);

struct alignas(1024) Memory {
    half W[2][kK][kH];                            // W1, W2; all rows here are swizzled
    half x[kStages][kK / kPanel][kRows][kPanel];  // in panels of 64 columns
    half out[kWarpgroups][2][kRows][kH];          // one is written, one on its way
    hopper::Barrier weights;                      // W has arrived
    hopper::Barrier full[kStages], empty[kStages];
    int tile[kStages];  // the tile in each stage; `tiles`: there are no more
};

__device__ unsigned int drawn = 0;  // tiles, by all blocks of a launch; launches must not overlap

/// W1 and W2 stay in shared memory for a block's whole life. One thread starts the copies of x into
/// a ring of stages; the warpgroups take them in turn, and their answers leave by TMA. kDrawn:
/// blocks draw their tiles as they go, instead of taking every gridDim.x-th.
template <bool kDrawn>
__device__ void stream(const CUtensorMap& x,    // [M, 128] row-major
                       const CUtensorMap& W1,   // [128, 64] row-major
                       const half* b1,          // [64]
                       const CUtensorMap& W2,   // [128, 64] row-major
                       const half* b2,          // [64]
                       const CUtensorMap& out,  // [M, 64] row-major
                       int tiles) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory*>(shared);
    const int warpgroup = matmul_hopper::warpgroup_index(), lane = threadIdx.x % 32;
    const bool producer = threadIdx.x == kWarpgroups * kWarpgroup;
    Position<kStages> at;

    auto load = [&](int tile) {
        hopper::mbarrier_wait(&memory.empty[at.stage], at.parity ^ 1);
        memory.tile[at.stage] = tile;
        hopper::mbarrier_arrive_expect_tx(&memory.full[at.stage], sizeof memory.x[0]);
        hopper::tma_load_panels(memory.x[at.stage], x, tile * kRows, &memory.full[at.stage]);
        at.advance();
    };
    if (producer) {
        for (int s = 0; s < kStages; ++s) {
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
        // The tiles that fill the ring first are dealt out, the others drawn; or all are dealt.
        const int dealt = kDrawn ? kStages * gridDim.x : tiles;
        // Each block draws until no tile is left. atomicInc returns the old count, and sets it back
        // to 0 at last_draw, for the next launch. (The compiler would make of atomicAdd one
        // addition for the whole warp and a shuffle, which waits for its result.)
        const unsigned int last_draw = max(tiles - dealt, 0) + gridDim.x - 1;
        auto draw = [&] { return dealt + int(atomicInc(&drawn, last_draw)); };
        int next = kDrawn ? draw() : tiles;  // a draw takes as long as a tile: one ahead
        for (int tile = blockIdx.x + gridDim.x; tile < min(tiles, dealt); tile += gridDim.x)
            load(tile);
        while (next < tiles) {
            const int tile = next;
            next = draw();
            load(tile);
        }
        for (int w = 0; w < kWarpgroups; ++w, at.advance()) {  // tell each warpgroup to stop
            hopper::mbarrier_wait(&memory.empty[at.stage], at.parity ^ 1);
            memory.tile[at.stage] = tiles;
            hopper::mbarrier_arrive(&memory.full[at.stage]);
        }
    } else if (warpgroup < kWarpgroups) {
        half2 bias1[kH / 8], bias2[kH / 8];  // for the columns of the sums
#pragma unroll
        for (int j = 0; j < kH / 8; ++j) {
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
            float sums[kH];  // one half of x W1, the other of x W2
            hopper::wgmma_fence();
            // One product gives both: B's first 64 columns are W1's, and its next 64, sizeof W[0]
            // further on in shared memory, are W2's.
#pragma unroll
            for (int k = 0; k < kK; k += 16)
                hopper::wgmma_mma_async<half>(
                    sums, hopper::matrix_descriptor(&memory.x[at.stage][k / kPanel][0][k % kPanel]),
                    hopper::matrix_descriptor(memory.W[0][k], sizeof memory.W[0]), k > 0);
            hopper::wgmma_commit_group();
            hopper::wgmma_wait_group<0>();
            if (lane == 0) hopper::mbarrier_arrive(&memory.empty[at.stage]);  // each warp

            float gates[kH / 2];
            gating_hopper::gate_sums(gates, sums, bias1, bias2);
            auto& rows = memory.out[warpgroup][t % 2];
#pragma unroll
            for (int c = 0; c < kH / 16; ++c) {
                const float* v = &gates[c * 8];  // of 16 x 16 elements
                const int row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16,
                          chunk = 2 * c + lane / 16;
                hopper::stmatrix_x4(
                    &rows[row][(chunk ^ lane % 8) * 8], ptx::cvt_rn_x2<half>(v[0], v[1]),
                    ptx::cvt_rn_x2<half>(v[2], v[3]), ptx::cvt_rn_x2<half>(v[4], v[5]),
                    ptx::cvt_rn_x2<half>(v[6], v[7]));
            }
            hopper::fence_proxy_async();  // makes what this thread wrote visible to TMA
            if (leader)
                hopper::cp_async_bulk_wait_group_read<0>();  // of the tile before: its rows are
                                                             // free
            hopper::barrier_sync_warpgroup(warpgroup);
            if (leader) {
                hopper::tma_store(out, tile * kRows, 0, rows);
                hopper::cp_async_bulk_commit_group();
            }
            for (int w = 0; w < kWarpgroups; ++w) at.advance();
        }
        if (leader) hopper::cp_async_bulk_wait_group_read<0>();
    }
}

__global__ void __launch_bounds__(kThreads)
    fused_talk_hopper(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                      const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                      const __grid_constant__ CUtensorMap out, int tiles) {
    stream<true>(x, W1, b1, W2, b2, out, tiles);
}

/// `kernel` runs stream(); `name` is its name.
template <class Kernel>
demo::Contender contender_of(const std::string& name, Kernel kernel, const demo::Gating& g,
                             const demo::Gpu& gpu) {
    auto prepare = [=, &g, &gpu] {
        demo::allow_shared_bytes(kernel, sizeof(Memory));
        const size_t M = g.shape.M;
        const int tiles = int(M / kRows);  // 4 S^2 is a multiple of 1024
        const CUtensorMap x = hopper::tensor_map(g.x.data(), M, kK, kRows, kK / kPanel),
                          W1 = hopper::tensor_map(g.W1.data(), kK, kH, kK),
                          W2 = hopper::tensor_map(g.W2.data(), kK, kH, kK),
                          out = hopper::tensor_map(g.out.data(), M, kH, kRows);
        const int blocks = std::min(tiles, gpu.multiprocessors);
        return [=, b1 = g.b1.data(), b2 = g.b2.data()] {
            kernel<<<blocks, kThreads, sizeof(Memory)>>>(x, W1, b1, W2, b2, out, tiles);
        };
    };
    return g.fused_prepared(name, prepare, "talk", hopper::why_not(gpu));
}

inline demo::Contender contender(const demo::Gating& g, const demo::Gpu& gpu) {
    return contender_of("fused_talk_hopper", fused_talk_hopper, g, gpu);
}

}  // namespace talk_hopper
