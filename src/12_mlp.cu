// 12: A multilayer perceptron, L layers of h = gelu(h W + b), in one kernel.
//
// A layer as a launch of its own reads h[N, D] from global memory and writes the next h there. But
// a row of h needs no other row. So a warp takes 32 rows of x and computes all layers for them. The
// rows stay in its registers, and the weights wait in shared memory:
//
//     global              registers of a warp: h is 32 x D                      global
//       x ---> h --[W, b; gelu]--> h --[W, b; gelu]--> ... --[W, b; gelu]--> h ---> out
//                   ^                   ^                     ^
//                   +-------------------+---------------------+--- shared memory of a block
//
//               numbers moved   launches
// chain         4 L N D         2 L   as a framework: a gemm that adds the bias, then a gelu
// library_best  2 L N D         L     a gemm that applies gelu, too
// graph         the faster of these two as a CUDA graph: one call for all of its launches
// one_kernel    2 N D           1
//
//     ./12_mlp 1048576        ./12_mlp 131072 --dim 128        ./12_mlp 256 --layers 64
// When it pays: for small D. A number of h costs the library 2 D operations and 4 bytes; an H200
// does 200 operations while it moves a byte, so below D = 400 the library waits for memory. The
// price: where shared memory has no room for all layers, a block keeps two, and copies each layer
// again for every 256 rows. What limits it: tensor cores, tanh and gelu's other instructions take
// about as long each, one after the other. bonus_mlp makes them overlap.
// H200, N = 1048576, ms: chain 0.556, library_best 0.306, graph 0.306, one_kernel 0.180
// (docs/figures.md)
#include <cuda_pipeline.h>

#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/launch.cuh"
#include "mlp/unfused.cuh"

namespace mlp {

// --- All layers in one kernel --------------------------------------------------------------------

constexpr int kWarpRows = 32, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = kWarps * kWarpRows;  // of x, per block

/// A layer in shared memory. The padding places eight rows of W in different banks: see lesson 3.
template <int D>
struct alignas(16) Layer {
    half W[D][D + 8], b[D];
};

/// Starts to copy a layer's weights and biases to shared memory, 16 bytes at a time.
template <int D>
__device__ void copy_layer(Layer<D>& to, const half* W, const half* b) {
    for (int i = threadIdx.x * 8; i < D * D; i += kThreads * 8)
        __pipeline_memcpy_async(&to.W[i / D][i % D], &W[i], 16);
    for (int i = threadIdx.x * 8; i < D; i += kThreads * 8)
        __pipeline_memcpy_async(&to.b[i], &b[i], 16);
    __pipeline_commit();
}

/// A warp's 32 rows of activations, as 2 x D / 16 fragments of 16 x 16. Its 32 threads, the lanes,
/// hold each of them together. WMMA, in lesson 3, does not say which lane holds what. The
/// instruction below it, ptx::mma_m16n8k16, does. Two of these multiply a fragment by 16 columns of
/// W. Lane 4 g + t holds these pairs of neighbors in a row, of the fragment and of the sums:
///
///                  a fragment of h                the first mma's sums   the second's
///     columns      2t, 2t + 1    2t + 8, 2t + 9   2t, 2t + 1             2t + 8, 2t + 9
///     row g        pairs[0]      pairs[2]         sums[0], sums[1]       sums[0], sums[1]
///     row g + 8    pairs[1]      pairs[3]         sums[2], sums[3]       sums[2], sums[3]
///
/// Both are in the same places. After gelu and rounding, a lane's sums are its part of the next h,
/// so between two layers no number goes to another thread.
template <int D>
struct Activations {
    uint32_t pairs[2][D / 16][4];
    static __device__ int row(int r) { return threadIdx.x % 32 / 4 + r % 2 * 8; }    // of pair r
    static __device__ int column(int r) { return threadIdx.x % 4 * 2 + r / 2 * 8; }  // its first

    /// Calls f(pair, row, column) for the lane's pairs. Unrolled, since registers have no index.
    template <class F>
    __device__ void for_each(F f) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int k = 0; k < D / 16; ++k)
                for (int r = 0; r < 4; ++r) f(pairs[i][k][r], i * 16 + row(r), k * 16 + column(r));
    }

    /// The next h: gelu(h W + b), 16 columns at a time.
    __device__ Activations next(const Layer<D>& layer) const {
        const int lane = threadIdx.x % 32;
        Activations result;
#pragma unroll
        for (int j = 0; j < D; j += 16) {
            float sums[2][2][4];  // [16 rows each][first, second mma][the lane's four]
            for (int n = 0; n < 2; ++n)
                for (int e = 0; e < 4; ++e)  // they begin as the biases of their columns
                    sums[0][n][e] = sums[1][n][e] = layer.b[j + column(2 * n) + e % 2];
#pragma unroll
            for (int k = 0; k < D; k += 16) {
                // Loads 16 x 16 of W, from [k][j] on, as four blocks of 8 x 8: each lane names one
                // of their rows. mma wants pairs of neighbors in a column: hence "trans".
                uint32_t w[4];
                ptx::ldmatrix_x4_trans(w, &layer.W[k + lane % 16][j + lane / 16 * 8]);
                for (int i = 0; i < 2; ++i)
                    for (int n = 0; n < 2; ++n)
                        ptx::mma_m16n8k16(sums[i][n], pairs[i][k / 16], w[2 * n], w[2 * n + 1]);
            }
            for (int i = 0; i < 2; ++i)
                for (int r = 0; r < 4; ++r) {  // pair r is in the table's column r / 2, row r % 2
                    const float* const v = &sums[i][r / 2][r % 2 * 2];
                    result.pairs[i][j / 16][r] = ptx::cvt_rn_x2<half>(gelu_of(v[0]), gelu_of(v[1]));
                }
        }
        return result;
    }
};

/// If `all`, all layers stay in shared memory, else two: while one is used, the next one arrives.
/// A block computes kRows rows, then kRows rows that are gridDim.x * kRows further down, ...
/// Two blocks should fit a multiprocessor; but at D = 128, h and the next h are 128 registers.
template <int D>
__global__ void __launch_bounds__(kThreads, D <= 64 ? 2 : 1)
    one_kernel(const half* x, const half* W, const half* b, half* out, size_t N, int L, bool all) {
    extern __shared__ __align__(128) unsigned char shared[];
    const auto layers = reinterpret_cast<Layer<D>*>(shared);  // [all ? L : 2]
    auto copy = [=](int step) {  // starts to copy a step's layer; kRows rows take L steps
        const int l = step % L;
        copy_layer(layers[all ? l : step % 2], &W[l * D * D], &b[l * D]);
    };
    for (int l = 0; l < (all ? L : 1); ++l) copy(l);
    int step = 0;
    for (size_t top = blockIdx.x * kRows; top < N; top += gridDim.x * kRows) {
        const size_t first = top + threadIdx.x / 32 * kWarpRows;  // of the warp's rows
        Activations<D> h;
        h.for_each([&](uint32_t& pair, int row, int column) {
            const bool inside = first + row < N;  // else 0: these rows are not stored
            pair = inside ? *reinterpret_cast<const uint32_t*>(&x[(first + row) * D + column]) : 0;
        });
        for (int l = 0; l < L; ++l, ++step) {
            if (step == 0 || !all) {
                __pipeline_wait_prior(0);  // this thread's copies have arrived
                __syncthreads();           // everyone's have, and the layer before is used up
                if (!all) copy(step + 1);  // (after the last step, too: simpler)
            }
            h = h.next(layers[all ? l : step % 2]);
        }
        h.for_each([&](uint32_t pair, int row, int column) {
            if (first + row < N)
                *reinterpret_cast<uint32_t*>(&out[(first + row) * D + column]) = pair;
        });
    }
}

template <int D>
demo::Contender contender_of(const demo::Mlp& m, const demo::Gpu& gpu) {
    const size_t N = m.shape.N, L = m.shape.L;
    auto bytes = [](size_t layers) { return layers * sizeof(Layer<D>); };
    const bool all = bytes(L) <= gpu.shared_per_block;
    const size_t shared = bytes(all ? L : 2);
    auto setup = [=, &m, &gpu](demo::Contender& self) {
        const int blocks =
            gpu.multiprocessors * demo::blocks_per_multiprocessor(one_kernel<D>, kThreads, shared);
        const unsigned int grid = std::min((N + kRows - 1) / kRows, size_t(blocks));
        self.launch = [=, &m] {
            one_kernel<D><<<grid, kThreads, shared>>>(m.x, m.W, m.b, m.out, N, L, all);
        };
    };
    return {.kernel = "one_kernel",
            .setup = setup,
            .moved_bytes = m.shape.workload().least_bytes,
            .note = all ? "all weights stay in shared memory" : "weights copied per tile",
            .why_not = demo::try_shared_bytes(one_kernel<D>, shared)};
}

static demo::Contender one_kernel_for(const demo::Mlp& m, const demo::Gpu& gpu) {
    if (m.shape.D == 16) return contender_of<16>(m, gpu);
    if (m.shape.D == 32) return contender_of<32>(m, gpu);
    if (m.shape.D == 64) return contender_of<64>(m, gpu);
    if (m.shape.D == 128) return contender_of<128>(m, gpu);
    return {.kernel = "one_kernel", .why_not = "takes D = 16, 32, 64 or 128"};
}

static void run(demo::Session& session) {
    const demo::Mlp m(session);  // x, W, b, out, and the reference
    const demo::UnfusedMlp unfused(m);
    const demo::Workload work = m.shape.workload();
    std::vector<demo::Contender> contenders{unfused.chain(), unfused.library_best(),
                                            unfused.graph(session.options),
                                            one_kernel_for(m, session.gpu)};
    if (work.memory_bound) contenders.push_back(demo::copy_contender(session, work));
    session.run(work, m.check(false), contenders);
}

}  // namespace mlp

int main(int argc, char** argv) {
    const demo::Program program{.name = "12_mlp",
                                .summary = "L layers of h = gelu(h W + b), in one kernel",
                                .types = {{"fp16", mlp::run}},
                                .any_n = true,
                                .n_means = "rows of x",
                                .default_n = demo::kSimulator ? 128 : 1048576,
                                .options = demo::mlp_options(),
                                .sizes = {131072, 1048576},
                                .variants = {"1048576 --dim 128", "256 --layers 64"}};
    return demo::main_of(program, argc, argv);
}
