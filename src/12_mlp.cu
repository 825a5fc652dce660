// 12: A multilayer perceptron, L layers of h = gelu(h W + b), in one kernel.
//
// The activations h[N, D] never leave the multiprocessor. A warp takes 32 rows of x, keeps them in
// shared memory from layer to layer, and stores what the last one makes of them. No row needs
// another, so warps wait for no one. All weights lie in shared memory, too, where they fit:
//
//      global       shared memory of a block                                        global
//             +-  32 x D  --[W0 b0]-->  32 x D  --[W1 b1]--> ... -->  32 x D  -+
//       x ----+   ...                   ... (the same place)          ...      +----> out
//             +-  32 x D  ----------->  32 x D  -----------> ... -->  32 x D  -+     8 warps
//
// chain         as a framework: per layer a gemm that adds the bias, then a gelu. 4 L N D numbers
//               to move and 2 L launches.
// library_best  one gemm per layer, which applies gelu, too: 2 L N D, and L launches.
// graph         the faster of the two as a CUDA graph, for little N, where launching is what costs.
// one_kernel    2 N D, and one launch.
//
//     ./12_mlp 1048576        ./12_mlp 131072 --dim 128        ./12_mlp 256 --layers 64
//
// When it pays: where D is small. A layer is 2 D operations per number of h; at D = 64 the library
// waits for memory at every layer. What it costs: the weights must fit beside the activations, and
// each is used for a block's 256 rows only. Where all layers do not fit (two slots are left), every
// block copies them again for each 256 rows; at D = 256 one layer alone is 128 KiB. What limits it:
// the tensor cores, tanh (16 a clock) and shared memory, all of which have much the same to do.
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/mlp_unfused.cuh"
#include "kernels/wmma_tile.cuh"
#include "ptx.cuh"

namespace mlp {

// --- gelu, and as a kernel -----------------------------------------------------------------------

/// v (1 + tanh(0.79788456 (v + 0.044715 v^3))) / 2: tanh is one instruction.
__device__ float gelu_of(float v) {
    const float t = ptx::tanh_approx(v * (0.79788456f + 0.035677408f * v * v));
    return 0.5f * v + 0.5f * v * t;
}

using demo::Vector;  // 16 bytes, 8 numbers

__global__ void gelu(const Vector<half>* v, Vector<half>* h, size_t vectors) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    Vector<half> numbers = v[i];
    for (half& number : numbers.at) number = __float2half(gelu_of(__half2float(number)));
    h[i] = numbers;
}

static void launch_gelu(const half* v, half* h, size_t size, cudaStream_t stream) {
    const size_t vectors = size / Vector<half>::kSize;  // rows are multiples of 16 numbers
    gelu<<<(vectors + 255) / 256, 256, 0, stream>>>(reinterpret_cast<const Vector<half>*>(v),
                                                    reinterpret_cast<Vector<half>*>(h), vectors);
}

// --- All layers in one kernel --------------------------------------------------------------------

using namespace wmma_tile;  // FragmentA, FragmentB, Accumulator, kFragment = 16, kPad

constexpr int kWarpRows = 32, kWarps = 8, kBlockThreads = 32 * kWarps;
constexpr int kRows = kWarps * kWarpRows;  // of x, per block

template <int D>
using Row = half[D + kPad];  // of activations or weights

template <int D>
struct alignas(32) Layer {
    Row<D> W[D];
    half b[D];
};

/// Starts to copy a layer's weights and biases to shared memory, 16 bytes at a time.
template <int D>
__device__ void copy_layer(Layer<D>& to, const half* W, const half* b) {
    for (int i = threadIdx.x * 8; i < D * D; i += kBlockThreads * 8)
        __pipeline_memcpy_async(&to.W[i / D][i % D], &W[i], 16);
    if (threadIdx.x < D / 8)
        __pipeline_memcpy_async(&to.b[threadIdx.x * 8], &b[threadIdx.x * 8], 16);
    __pipeline_commit();
}

/// Where in a fragment the thread's elements x[0], x[1], ... are. That is not specified, but a
/// fragment of the numbers 0 to 255 tells.
struct Places {
    int row[8], column[8];
    __device__ Places() {
        __shared__ float numbers[kFragment * kFragment];
        for (int i = threadIdx.x; i < kFragment * kFragment; i += kBlockThreads) numbers[i] = i;
        __syncthreads();
        Accumulator fragment;
        wmma::load_matrix_sync(fragment, numbers, kFragment, wmma::mem_row_major);
        for (int e = 0; e < 8; ++e) {
            row[e] = int(fragment.x[e]) / kFragment;
            column[e] = int(fragment.x[e]) % kFragment;
        }
    }
};

/// h = gelu(h W + b) for a warp's rows. All of h is read before any of it is overwritten.
template <int D>
__device__ void compute_layer(Row<D>* h, const Layer<D>& layer, const Places& place) {
    constexpr int kSide = D / kFragment, kPitch = D + kPad;
    Accumulator sums[2][kSide];  // 32 x D
#pragma unroll                   // or the sums would not be registers
    for (int j = 0; j < kSide; ++j)
        for (int e = 0; e < 8; ++e)  // they begin as the biases
            sums[0][j].x[e] = sums[1][j].x[e] = layer.b[j * kFragment + place.column[e]];
    for (int k = 0; k < D; k += kFragment) {
        FragmentA a[2];
        for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(a[i], &h[i * kFragment][k], kPitch);
        for (int j = 0; j < kSide; ++j) {
            FragmentB w;
            wmma::load_matrix_sync(w, &layer.W[k][j * kFragment], kPitch);
            for (int i = 0; i < 2; ++i) wmma::mma_sync(sums[i][j], a[i], w, sums[i][j]);
        }
    }
    __syncwarp();  // everyone has read h
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j)
            for (int e = 0; e < 8; ++e)
                h[i * kFragment + place.row[e]][j * kFragment + place.column[e]] =
                    __float2half(gelu_of(sums[i][j].x[e]));
    __syncwarp();  // h is complete
}

/// `slots`: how many layers lie in shared memory at a time, all L or 2. Blocks loop over tiles.
template <int D>
__global__ void __launch_bounds__(kBlockThreads, D <= 64 ? 2 : 1)
    one_kernel(const half* x, const half* W, const half* b, half* out, size_t N, size_t L,
               size_t slots) {
    extern __shared__ __align__(128) unsigned char shared[];
    const auto layers = reinterpret_cast<Layer<D>*>(shared);  // [slots]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Row<D>* const h = reinterpret_cast<Row<D>*>(layers + slots) + warp * kWarpRows;
    auto copy = [=](size_t step) {  // the layer of a step: a block takes L steps per tile
        const size_t l = step % L;
        copy_layer(layers[step % slots], &W[l * D * D], &b[l * D]);
    };
    const bool all = slots == L;
    for (size_t l = 0; l < (all ? L : 1); ++l) copy(l);
    const Places place;
    size_t step = 0;
    for (size_t tile = blockIdx.x; tile * kRows < N; tile += gridDim.x) {
        const size_t row = tile * kRows + warp * kWarpRows;  // the warp's first
        for (int i = lane * 8; i < kWarpRows * D; i += 32 * 8) {
            const bool inside = row + i / D < N;  // else zeros
            __pipeline_memcpy_async(&h[i / D][i % D], &x[inside ? row * D + i : 0], 16,
                                    inside ? 0 : 16);
        }
        __pipeline_commit();
        for (size_t l = 0; l < L; ++l, ++step) {
            if (step == 0 || l == 0 || !all) __pipeline_wait_prior(0);  // own copies have arrived
            if (step == 0 || !all)
                __syncthreads();  // everyone's have, and the layer before is used up
            else
                __syncwarp();
            if (!all) copy(step + 1);
            compute_layer<D>(h, layers[step % slots], place);
        }
        for (int i = lane * 8; i < kWarpRows * D && row + i / D < N; i += 32 * 8)
            reinterpret_cast<uint4&>(out[row * D + i]) = reinterpret_cast<uint4&>(h[i / D][i % D]);
    }
}

template <int D>
demo::Contender contender_of(const demo::Mlp& m, const demo::Gpu& gpu) {
    const size_t N = m.shape.N, L = m.shape.L;
    auto bytes = [](size_t slots) { return slots * sizeof(Layer<D>) + kRows * sizeof(Row<D>); };
    const size_t slots = demo::try_shared_bytes(one_kernel<D>, bytes(L)).empty() ? L : 2;
    auto setup = [=, &m, &gpu](demo::Contender& self) {
        const int blocks = gpu.multiprocessors * demo::blocks_per_multiprocessor(
                                                     one_kernel<D>, kBlockThreads, bytes(slots));
        const unsigned int grid = std::min((N + kRows - 1) / kRows, size_t(blocks));
        self.launch = [=, &m] {
            one_kernel<D><<<grid, kBlockThreads, bytes(slots)>>>(m.x, m.W, m.b, m.out, N, L, slots);
        };
    };
    return {.kernel = "one_kernel",
            .setup = setup,
            .moved_bytes = m.shape.workload().least_bytes,
            .note = slots == L ? "all weights stay in shared memory" : "weights copied per tile",
            .why_not = demo::try_shared_bytes(one_kernel<D>, bytes(slots))};
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
    const demo::UnfusedMlp unfused(m, launch_gelu);
    const demo::Workload work = m.shape.workload();
    std::vector<demo::Contender> contenders{unfused.chain(), unfused.library_best(),
                                            unfused.graph(session.options),
                                            one_kernel_for(m, session.gpu)};
    if (work.memory_bound) contenders.push_back(demo::copy_contender(session, work));
    session.run(work, m.check(false), contenders);
}

}  // namespace mlp

int main(int argc, char** argv) {
    const demo::Numbers dims{.first = 16, .last = 4096, .multiple = 16, .usual = 64};
    const demo::Program program{
        .name = "12_mlp",
        .summary = "L layers of h = gelu(h W + b), in one kernel",
        .types = {{"fp16", mlp::run}},
        .any_n = true,
        .n_means = "rows of x",
        .default_n = demo::kSimulator ? 128 : 1048576,
        .options = {{.name = "--dim", .help = "columns of x", .numbers = dims, .value = "D"},
                    {.name = "--layers",
                     .help = "layers",
                     .numbers = demo::Numbers{.first = 1, .last = 64, .usual = 4},
                     .value = "L"}},
        .sizes = {131072, 1048576}};
    return demo::main_of(program, argc, argv);
}
