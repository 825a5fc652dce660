// 12: A multilayer perceptron, L layers of h = gelu(h W + b), in one kernel.
//
// The activations h[N, D] stay in registers from x to out. A warp loads 32 rows of x, and computes
// all layers of these. What the tensor cores leave in a thread's registers is, after gelu and
// rounding, just what they want there for the next layer's product:
//
//     global                registers of a warp                              global
//       x ---> 32 x D --[W b]--> 32 x D --[W b]--> ... --[W b]--> 32 x D ---> out
//                         ^                 ^                ^
//                         +-----------------+----------------+--- shared memory of a block
//
// chain         as a framework: per layer a gemm that adds the bias, then a gelu. 4 L N D numbers
//               to move, 2 L launches.
// library_best  one gemm per layer, which applies gelu, too: 2 L N D, and L launches.
// graph         the faster of the two as a CUDA graph: for few rows, where launches cost most.
// one_kernel    2 N D, and one launch.
//
//     ./12_mlp 1048576        ./12_mlp 131072 --dim 128        ./12_mlp 256 --layers 64
//
// When it pays: for small D, where the library waits for memory: a layer is 2 D operations per
// number of h, which moves twice. The price: weights lie in shared memory. Where it has no room for
// all layers, a block has two at a time, and copies all of them again for every 256 rows.
// What limits it: tensor cores, tanh and gelu's other instructions. Figures: docs/figures.md.
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

/// A warp's 32 rows of activations, as 2 x D / 16 fragments: 16 x 16 numbers, of which a thread
/// holds four pairs of neighbors. row(r) and column(r): where pair r lies (see ptx::mma_m16n8k16).
template <int D>
struct Activations {
    uint32_t pairs[2][D / 16][4];
    static __device__ int row(int r) { return threadIdx.x % 32 / 4 + r % 2 * 8; }
    static __device__ int column(int r) { return threadIdx.x % 4 * 2 + r / 2 * 8; }

    /// Calls f(pair, row, column) for all of the thread's pairs.
    template <class F>
    __device__ void for_each(F f) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int k = 0; k < D / 16; ++k)
                for (int r = 0; r < 4; ++r) f(pairs[i][k][r], i * 16 + row(r), k * 16 + column(r));
    }

    /// The next layer's: gelu(h W + b). mma leaves 16 x 8 sums. Two of these, side by side, give a
    /// thread just the four pairs of a 16 x 16 fragment that it needs for the next product.
    __device__ Activations next(const Layer<D>& layer) const {
        const int lane = threadIdx.x % 32;
        Activations result;
#pragma unroll
        for (int j = 0; j < D; j += 16) {
            float sums[2][2][4];  // [16 rows each][8 columns each, from j on][this thread's]
            for (int n = 0; n < 2; ++n)
                for (int e = 0; e < 4; ++e)  // they begin as the biases
                    sums[0][n][e] = sums[1][n][e] = layer.b[j + n * 8 + lane % 4 * 2 + e % 2];
#pragma unroll
            for (int k = 0; k < D; k += 16) {
                // W[k .. k + 15][j .. j + 15], as four blocks of 8 x 8. Each lane has the address
                // of a block's row; "trans", since mma wants pairs from two rows of W.
                uint32_t w[4];
                ptx::ldmatrix_x4_trans(w, &layer.W[k + lane % 16][j + lane / 16 * 8]);
                for (int i = 0; i < 2; ++i)
                    for (int n = 0; n < 2; ++n)
                        ptx::mma_m16n8k16(sums[i][n], pairs[i][k / 16], w[2 * n], w[2 * n + 1]);
            }
            for (int i = 0; i < 2; ++i)
                for (int r = 0; r < 4; ++r) {
                    const float* const v = &sums[i][r / 2][r % 2 * 2];
                    result.pairs[i][j / 16][r] = ptx::cvt_rn_x2<half>(gelu_of(v[0]), gelu_of(v[1]));
                }
        }
        return result;
    }
};

/// `all`: all layers stay in shared memory, else two at a time. Blocks loop over tiles of kRows.
template <int D>
__global__ void __launch_bounds__(kThreads, D <= 64 ? 2 : 1)
    one_kernel(const half* x, const half* W, const half* b, half* out, size_t N, int L, bool all) {
    extern __shared__ __align__(128) unsigned char shared[];
    const auto layers = reinterpret_cast<Layer<D>*>(shared);  // [all ? L : 2]
    auto copy = [=](int step) {  // starts to copy a step's layer; a tile takes L steps
        const int l = step % L;
        copy_layer(layers[all ? l : step % 2], &W[l * D * D], &b[l * D]);
    };
    for (int l = 0; l < (all ? L : 1); ++l) copy(l);
    int step = 0;
    for (size_t top = blockIdx.x * kRows; top < N; top += gridDim.x * kRows) {  // rows of tiles
        const size_t first = top + threadIdx.x / 32 * kWarpRows;                // row of the warp
        Activations<D> h;
        h.for_each([&](uint32_t& pair, int row, int column) {
            const bool inside = first + row < N;  // else 0: any number will do
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
