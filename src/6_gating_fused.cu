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
// instead of six. The main loop is wmma_tiled's of 3_matmul_tensorcore: tiles in shared memory,
// filled by asynchronous copies while the warps compute with earlier ones.
//
// WMMA does not say which thread holds which element of a fragment. So the biases are the
// accumulators' first values, loaded from a tile whose rows are all equal; the sigmoid and the
// product work on fragments of one type, where equal positions mean equal elements; and the
// conversion to fp16 goes through shared memory.
//
// fused_tiled     any shape. The main loop is wmma_tiled's of 3_matmul_tensorcore.
// fused_streamed  the talk's shape (--talk S: x[4 S^2, 128], W[128, 64]). The weights are so small
//                 that every block keeps them in registers while x streams past: a copy kernel with
//                 a little arithmetic. What limits it: the tensor cores' latency; four blocks per
//                 SM, each with two row groups at once, hide most of it.
//
// When it pays: the talk's shape does little arithmetic per byte, so its time is its traffic, and
// fusion removes most of that. The square shape does N / 2 operations and more per byte: its time
// is the gemms', fusion can only win what the elementwise kernels took, and only with a main loop
// as good as the library's. This portable one is not.
#include <cuda_pipeline.h>
#include <mma.h>

#define GATING_UNFUSED_NO_MAIN
#include "5_gating_unfused.cu"
#include "demo.cuh"
#include "demo/gating.cuh"

namespace gating_fused {

namespace wmma = nvcuda::wmma;

constexpr int kFragment = 16;  // fragments are 16 x 16 x 16
using FragmentX = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentW = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

constexpr int kBlockM = 128, kBlockH = 64,
              kBlockK = 32;              // a block's tiles: of x, of each W, of out
constexpr int kWarpM = 64, kWarpH = 32;  // a warp's part of out
constexpr int kThreads = 32 * (kBlockM / kWarpM) * (kBlockH / kWarpH);
constexpr int kPad = 8;  // halfs behind each row, so that rows below each other lie in other banks

struct Stage {
    half x[kBlockM][kBlockK + kPad];
    half W1[kBlockK][kBlockH + kPad];
    half W2[kBlockK][kBlockH + kPad];
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

/// The biases as matrices, 0 where there is no column: all rows are equal, and as many as a
/// fragment has. Accumulators that are loaded from here begin as the bias.
struct Biases {
    float b1[kFragment][kBlockH];
    float b2[kFragment][kBlockH];
};

__device__ void fill(Biases& biases, const half* b1, const half* b2, size_t columns) {
    for (int i = threadIdx.x; i < kFragment * kBlockH; i += kThreads) {
        const int row = i / kBlockH, col = i % kBlockH;
        const bool inside = size_t(col) < columns;
        biases.b1[row][col] = inside ? __half2float(b1[col]) : 0;
        biases.b2[row][col] = inside ? __half2float(b2[col]) : 0;
    }
}

__device__ float sigmoid(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }

// The answers on their way out, in shared memory. In fragments nobody knows which element is whose;
// from here every thread takes four neighbours, and a warp stores whole rows. Rows are padded so
// that a fragment's rows lie in different banks.
constexpr int kOutPitch = kBlockH + 8;

/// Puts sigmoid(v1) * v2 there.
__device__ void put_gated(float* to, Accumulator& v1, const Accumulator& v2) {
    for (int e = 0; e < v1.num_elements; ++e) v1.x[e] = sigmoid(v1.x[e]) * v2.x[e];
    wmma::store_matrix_sync(to, v1, kOutPitch, wmma::mem_row_major);
}

/// Stores from[kRows, kBlockH] as fp16, as far as the matrix goes: `rows` and `columns`.
template <int kRows>
__device__ void store_tile(
    const float (*from)[kOutPitch],
    half* out,  // [rows, columns] row-major, of a matrix with `pitch` columns
    size_t pitch, size_t rows, size_t columns) {
    constexpr int kChunks = kBlockH / 4;  // per row
    const int col = threadIdx.x % kChunks * 4;
    for (int row = threadIdx.x / kChunks; row < kRows; row += kThreads / kChunks) {
        if (size_t(row) >= rows || size_t(col) >= columns) continue;
        const float4 v = *reinterpret_cast<const float4*>(&from[row][col]);
        half2* const to = reinterpret_cast<half2*>(&out[row * pitch + col]);
        alignas(8)
            const half2 converted[2] = {__floats2half2_rn(v.x, v.y), __floats2half2_rn(v.z, v.w)};
        *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(converted);
    }
}

template <int kStages>
__global__ void __launch_bounds__(kThreads) gating_tiled(const half* x,   // [M, K] row-major
                                                         const half* W1,  // [K, H] row-major
                                                         const half* b1,  // [H]
                                                         const half* W2,  // [K, H] row-major
                                                         const half* b2,  // [H]
                                                         half* out,       // [M, H] row-major
                                                         size_t M, size_t K, size_t H) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* const stages = reinterpret_cast<Stage*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlockM, block_col = size_t(blockIdx.y) * kBlockH;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / (kBlockH / kWarpH) * kWarpM;
    const int warp_col = warp % (kBlockH / kWarpH) * kWarpH;

    auto copy_stage = [&](size_t t) {  // tile t of x, W1 and W2, into its stage
        Stage& stage = stages[t % kStages];
        const size_t k = t * kBlockK, rows = K - k, columns = H - block_col;
        copy_tile<kBlockM, kBlockK>(stage.x, &x[block_row * K + k], K, M - block_row, K - k);
        copy_tile<kBlockK, kBlockH>(stage.W1, &W1[k * H + block_col], H, rows, columns);
        copy_tile<kBlockK, kBlockH>(stage.W2, &W2[k * H + block_col], H, rows, columns);
    };
    const size_t tiles = K / kBlockK;
    for (size_t t = 0; t < kStages - 1; ++t) {
        if (t < tiles) copy_stage(t);
        __pipeline_commit();  // an empty group counts too, so that the wait below stays the same
    }

    // The accumulators begin as the biases. Those lie in the last stage, which is still free.
    static_assert(sizeof(Biases) <= sizeof(Stage));
    Biases& biases = reinterpret_cast<Biases&>(stages[kStages - 1]);
    fill(biases, &b1[block_col], &b2[block_col], H - block_col);
    __syncthreads();  // the biases are complete
    Accumulator v1[kWarpM / kFragment][kWarpH / kFragment];
    Accumulator v2[kWarpM / kFragment][kWarpH / kFragment];
    for (int i = 0; i < kWarpM / kFragment; ++i)
        for (int j = 0; j < kWarpH / kFragment; ++j) {
            const int col = warp_col + j * kFragment;
            wmma::load_matrix_sync(v1[i][j], &biases.b1[0][col], kBlockH, wmma::mem_row_major);
            wmma::load_matrix_sync(v2[i][j], &biases.b2[0][col], kBlockH, wmma::mem_row_major);
        }

    for (size_t t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's part of tile t has arrived
        __syncthreads();                     // everyone's has, and tile t - 1 is used up
        if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);
        __pipeline_commit();

        const Stage& stage = stages[t % kStages];
        for (int k = 0; k < kBlockK; k += kFragment) {
            FragmentX a[kWarpM / kFragment];
            for (int i = 0; i < kWarpM / kFragment; ++i)
                wmma::load_matrix_sync(a[i], &stage.x[warp_row + i * kFragment][k], kBlockK + kPad);
            for (int j = 0; j < kWarpH / kFragment; ++j) {
                FragmentW w1, w2;
                const int col = warp_col + j * kFragment;
                wmma::load_matrix_sync(w1, &stage.W1[k][col], kBlockH + kPad);
                wmma::load_matrix_sync(w2, &stage.W2[k][col], kBlockH + kPad);
                for (int i = 0; i < kWarpM / kFragment; ++i) {
                    wmma::mma_sync(v1[i][j], a[i], w1, v1[i][j]);
                    wmma::mma_sync(v2[i][j], a[i], w2, v2[i][j]);
                }
            }
        }
    }

    __syncthreads();  // the stages are used up: their memory serves the answers
    auto answers = reinterpret_cast<float(*)[kOutPitch]>(shared);
    static_assert(kBlockM * kOutPitch * sizeof(float) <= kStages * sizeof(Stage));
    for (int i = 0; i < kWarpM / kFragment; ++i)
        for (int j = 0; j < kWarpH / kFragment; ++j)
            put_gated(&answers[warp_row + i * kFragment][warp_col + j * kFragment], v1[i][j],
                      v2[i][j]);
    __syncthreads();  // the answers are complete
    store_tile<kBlockM>(answers, &out[block_row * H + block_col], H, M - block_row, H - block_col);
}

// --- The talk's shape: K = 128, H = 64 ----------------------------------------------------------

constexpr int kTalkK = 128, kTalkH = kBlockH;
constexpr int kRows = 32;       // a tile of x is kRows x 128
constexpr int kTileStages = 4;  // one at work, three on their way

struct Stream {
    union {
        half W[2][kTalkK][kTalkH + kPad];           // at first
        half x[kTileStages][kRows][kTalkK + kPad];  // from then on
    };
    union {
        Biases biases;                    // at first
        float answers[kRows][kOutPitch];  // from then on
    };
};

/// The weights are small: each of the 4 warps keeps its 16 columns of both in registers for the
/// block's whole life. Then x streams past them, and nothing but x and out moves.
__global__ void __launch_bounds__(kThreads) gating_streamed(const half* x,   // [M, 128] row-major
                                                            const half* W1,  // [128, 64] row-major
                                                            const half* b1,  // [64]
                                                            const half* W2,  // [128, 64] row-major
                                                            const half* b2,  // [64]
                                                            half* out,       // [M, 64] row-major
                                                            size_t M) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stream& stream = *reinterpret_cast<Stream*>(shared);
    const int warp = threadIdx.x / 32;
    const int col = warp * kFragment;  // the first of this warp's columns
    const size_t tiles = M / kRows;

    copy_tile<kTalkK, kTalkH>(stream.W[0], W1, kTalkH, kTalkK, kTalkH);
    copy_tile<kTalkK, kTalkH>(stream.W[1], W2, kTalkH, kTalkK, kTalkH);
    __pipeline_commit();
    fill(stream.biases, b1, b2, kTalkH);
    __pipeline_wait_prior(0);
    __syncthreads();  // weights and biases are complete
    constexpr int kSteps = kTalkK / kFragment;
    FragmentW w1[kSteps], w2[kSteps];
    for (int k = 0; k < kSteps; ++k) {
        wmma::load_matrix_sync(w1[k], &stream.W[0][k * kFragment][col], kTalkH + kPad);
        wmma::load_matrix_sync(w2[k], &stream.W[1][k * kFragment][col], kTalkH + kPad);
    }
    Accumulator bias1, bias2;
    wmma::load_matrix_sync(bias1, &stream.biases.b1[0][col], kBlockH, wmma::mem_row_major);
    wmma::load_matrix_sync(bias2, &stream.biases.b2[0][col], kBlockH, wmma::mem_row_major);
    __syncthreads();  // every warp has its own: the memory now serves x and the answers

    auto copy_x = [&](size_t t) {  // this block's t-th tile of x, into its stage
        const size_t tile = blockIdx.x + t * gridDim.x;
        if (tile < tiles)
            copy_tile<kRows, kTalkK>(stream.x[t % kTileStages], &x[tile * kRows * kTalkK], kTalkK,
                                     kRows, kTalkK);
        __pipeline_commit();
    };
    for (size_t t = 0; t < kTileStages - 1; ++t) copy_x(t);

    for (size_t t = 0, tile = blockIdx.x; tile < tiles; ++t, tile += gridDim.x) {
        __pipeline_wait_prior(kTileStages - 2);  // this thread's part of tile t has arrived
        __syncthreads();                         // everyone's has, and tile t - 1 is used up
        copy_x(t + kTileStages - 1);

        Accumulator v1[kRows / kFragment], v2[kRows / kFragment];
        for (int i = 0; i < kRows / kFragment; ++i) v1[i] = bias1, v2[i] = bias2;
        for (int k = 0; k < kSteps; ++k)
            for (int i = 0; i < kRows / kFragment; ++i) {
                FragmentX a;
                wmma::load_matrix_sync(a, &stream.x[t % kTileStages][i * kFragment][k * kFragment],
                                       kTalkK + kPad);
                wmma::mma_sync(v1[i], a, w1[k], v1[i]);
                wmma::mma_sync(v2[i], a, w2[k], v2[i]);
            }
        for (int i = 0; i < kRows / kFragment; ++i)
            put_gated(&stream.answers[i * kFragment][col], v1[i], v2[i]);
        __syncthreads();  // the answers are complete
        store_tile<kRows>(stream.answers, &out[tile * kRows * kTalkH], kTalkH, kRows, kTalkH);
    }
}

// --- Launching ----------------------------------------------------------------------------------

/// A kernel's blocks may take more than 48 KiB of shared memory only if that is asked for.
template <class Kernel>
void allow_shared_bytes(Kernel kernel, size_t bytes) {
    DEMO_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}

inline demo::Contender tiled(const demo::Gating& g, const demo::Gpu& gpu) {
    // Four stages where shared memory has room for them, three on Turing.
    const bool four = gpu.shared_per_block >= 4 * sizeof(Stage);
    const auto kernel = four ? gating_tiled<4> : gating_tiled<3>;
    const size_t shared_bytes = (four ? 4 : 3) * sizeof(Stage);
    allow_shared_bytes(kernel, shared_bytes);
    auto launch = [&g, kernel, shared_bytes] {
        const auto [M, K, H, name, size] = g.shape;
        const dim3 grid((M + kBlockM - 1) / kBlockM, (H + kBlockH - 1) / kBlockH);
        kernel<<<grid, kThreads, shared_bytes>>>(g.x.data(), g.W1.data(), g.b1.data(), g.W2.data(),
                                                 g.b2.data(), g.out.data(), M, K, H);
    };
    return {.kernel = "fused_tiled",
            .check = g.check({}),
            .launch = launch,
            .moved_bytes = g.shape.workload().least_bytes};
}

inline demo::Contender streamed(const demo::Gating& g, const demo::Gpu& gpu) {
    allow_shared_bytes(gating_streamed, sizeof(Stream));
    int blocks_per_sm = 0;
    DEMO_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, gating_streamed,
                                                             kThreads, sizeof(Stream)));
    const size_t blocks = std::min(size_t(blocks_per_sm * gpu.multiprocessors), g.shape.M / kRows);
    auto launch = [&g, blocks] {
        gating_streamed<<<blocks, kThreads, sizeof(Stream)>>>(g.x.data(), g.W1.data(), g.b1.data(),
                                                              g.W2.data(), g.b2.data(),
                                                              g.out.data(), g.shape.M);
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
