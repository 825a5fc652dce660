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
// weights in shared memory one half is of W1, the other of W2, and a warp takes the same columns of
// both: its sums j and j + 4 belong together, and what follows concerns no other thread.
//
// fused_tiled     any shape. Tiles, stages and main loop are mma_ptx's of 3_matmul_tensorcore, and
//                 so is what limits it.
// fused_streamed  the talk's shape (--talk S: x[4 S^2, 128], W[128, 64]). The weights are so small
//                 that every warp keeps its half of them in registers while x streams past: a copy
//                 kernel with a little arithmetic, at 92 to 95% of a copy's speed on an H200. What
//                 limits it: weights and sums take 242 registers a thread, so an SM has room for 8
//                 warps, and they issue something in 45% of the cycles. It is enough because the
//                 copies of three tiles per block are on their way meanwhile. Blocks are small, two
//                 warps, so that a barrier holds up few.
//
// When it pays: the talk's shape does little arithmetic per byte, so its time is its traffic, and
// fusion removes most of that. The square shape does N / 2 operations and more per byte: its time
// is the gemms', fusion can only win what the elementwise kernels took, and only with a main loop
// as good as the library's. This portable one runs at 0.55 to 0.7 x cuBLAS.
#define GATING_UNFUSED_NO_MAIN
#include "5_gating_unfused.cu"
#define MATMUL_TENSORCORE_NO_MAIN
#include "3_matmul_tensorcore.cu"
#include "demo.cuh"
#include "demo/gating.cuh"
#include "ptx.cuh"

namespace gating_fused {

using namespace matmul_tensorcore;  // the main loop, and how its tiles lie in shared memory

/// sigmoid(v1) * v2. 1.44 = log2(e): what the GPU has an instruction for is 2^x.
__device__ float gate(float v1, float v2) {
    return v2 * ptx::rcp_approx(1.0f + ptx::ex2_approx(-1.44269504f * v1));
}

/// The answers of two neighbours in a row.
__device__ uint32_t gate_pair(const float* v1, const float* v2) {
    return pack(gate(v1[0], v2[0]), gate(v1[1], v2[1]));
}

/// Transposes a 4 x 4 matrix of which each of four neighbouring threads holds a row. Of sums as mma
/// leaves them, a thread then holds 8 neighbours: 16 bytes to store.
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
            const size_t r = row + i * 16 + e * 4, c = col + lane % 4 * 8;
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
    copy_swizzled<kTalkK, kTalkH, kTalkThreads>(stream.W[0], &W1[copied], kTalkH, kTalkK);
    copy_swizzled<kTalkK, kTalkH, kTalkThreads>(stream.W[1], &W2[copied], kTalkH, kTalkK);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
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
            copy_swizzled<kRows, kTalkK, kTalkThreads>(
                stream.x[stage], &x[tile * kRows * kTalkK + x_col], kTalkK, kRows);
        ptx::cp_async_commit();  // an empty group counts too, so that the wait stays the same
    };
    for (int t = 0; t < kStreamStages - 1; ++t) copy_x(t, blockIdx.x + size_t(t) * gridDim.x);

    int reading = 0, writing = kStreamStages - 1;  // stages
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        ptx::cp_async_wait<kStreamStages - 2>();  // this thread's part of the tile has arrived
        __syncthreads();                          // everyone's has, and the one before is used up
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
                const size_t row = tile * kRows + i + e * 4 + lane / 4;
                *reinterpret_cast<uint4*>(&out[row * kTalkH + col + lane % 4 * 8]) = {v[0], v[1],
                                                                                      v[2], v[3]};
            }
        }
        reading = reading + 1 == kStreamStages ? 0 : reading + 1;
        writing = writing + 1 == kStreamStages ? 0 : writing + 1;
    }
}

// --- Launching ----------------------------------------------------------------------------------

inline demo::Contender tiled(const demo::Gating& g, const demo::Gpu& gpu) {
    auto launch = with_tiles(gpu, g.shape.M, 2 * g.shape.H, [&]<class T>(T) {
        allow_shared_bytes(gating_tiled<T>, T::kSharedBytes);
        return std::function<void()>([&g] {
            const auto [M, K, H, name, size] = g.shape;
            gating_tiled<T><<<T::blocks(M, 2 * H), T::kThreads, T::kSharedBytes>>>(
                g.x.data(), g.W1.data(), g.b1.data(), g.W2.data(), g.b2.data(), g.out.data(), M, K,
                H);
        });
    });
    return {.kernel = "fused_tiled",
            .check = g.check({}),
            .launch = launch,
            .moved_bytes = g.shape.workload().least_bytes};
}

inline demo::Contender streamed(const demo::Gating& g, const demo::Gpu& gpu) {
    allow_shared_bytes(gating_streamed, sizeof(Stream));
    int blocks_per_sm = 0;
    DEMO_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, gating_streamed,
                                                             kTalkThreads, sizeof(Stream)));
    const size_t blocks = std::min(size_t(blocks_per_sm * gpu.multiprocessors), g.shape.M / kRows);
    auto launch = [&g, blocks] {
        gating_streamed<<<blocks, kTalkThreads, sizeof(Stream)>>>(
            g.x.data(), g.W1.data(), g.b1.data(), g.W2.data(), g.b2.data(), g.out.data(),
            g.shape.M);
    };
    return {.kernel = "fused_streamed",
            .check = g.check({}),
            .launch = launch,
            .moved_bytes = g.shape.workload().least_bytes};
}

/// The fused kernels for a shape, the best one last.
inline std::vector<demo::Contender> contenders(const demo::Gating& g, const demo::Gpu& gpu) {
    std::vector<demo::Contender> kernels{tiled(g, gpu)};
    if (g.shape.K == kTalkK && g.shape.H == kTalkH) kernels.push_back(streamed(g, gpu));
    return kernels;
}

}  // namespace gating_fused

#ifndef GATING_FUSED_NO_MAIN

int main(int argc, char** argv) {
    const demo::Options options = demo::parse_command_line(
        argc, argv,
        {.name = "6_gating_fused",
         .summary = "sigmoid(x W1 + b1) * (x W2 + b2) in one kernel",
         .kernels = {"fused_tiled", "fused_streamed", "six_kernels", "library_best"},
         .talk = true});
    if (options.kernel == "fused_streamed" && !options.talk)
        demo::fail(demo::kUsage, "fused_streamed is for the talk's shape alone; add --talk S");
    const demo::Gpu gpu(options);
    demo::require_memory(options, [&](size_t size) {
        return gating_unfused::bytes_needed(demo::GatingShape::of(options, size), gpu);
    });
    const auto shape = demo::GatingShape::of(options);
    demo::Report report(options, gpu, shape.text());

    const demo::Gating gating(shape, options.seed);
    std::vector<demo::Contender> contenders = gating_fused::contenders(gating, gpu);
    const std::string best = contenders.back().kernel;
    std::optional<gating_unfused::Unfused> unfused;
    if (options.wants("six_kernels") || options.wants("library_best")) {
        unfused.emplace(gating);
        contenders.push_back(unfused->six_kernels.contender());
        contenders.push_back(unfused->library_best.contender());
    }
    report.run(shape.workload(), contenders);
    report.ratio(best, "six_kernels");
    report.ratio(best, "library_best");
    return report.exit_code();
}

#endif
