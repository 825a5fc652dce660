// 11: A layer with LoRA, out = act(x W + s (x A) B + b), as one more tile of its product.
//
// LoRA (Hu et al., arXiv 2106.09685; see 9_bias_activation) adapts a large frozen W[N, N] by
// two thin matrices, A[N, r] and B[r, N] with r = 8 to 64. They add 2 r / N to the operations, next
// to nothing. But as a framework runs it, line by line, each product and each sum goes through
// memory: seven launches, and 13 M N elements of traffic beside the weights, where 2 M N would do.
//
// With u = s x A, a thin matrix [M, r], the rest is a single product with a longer inner dimension:
//
//                            +---------+        The sums begin as b. Lesson 3's main loop takes
//                            |    W    |        the rows of W in tiles of 32, and goes on with
//            +-------+---+   |         |        those of B: for r numbers one tile more, or two.
//     act(   |   x   | u | * +---------+ + b)   Activations are computed in registers.
//            +-------+---+   |    B    |
//                            +---------+        Nothing is copied to put x and u side by side.
//
// chain         the formula, line by line: three gemms and four elementwise kernels
// library_best  t = x A, out = x W + b, out = act(out + s t B), the rest in epilogues: 5 M N
// appended      u by the library, all the rest in one kernel of ours: 3 M N
//
// What limits it: the main loop, lesson 3's, with less than half of the library's speed. That costs
// more time than the saved traffic gives back: on an H200 even the chain is mostly faster. The idea
// is worth what its main loop is worth. The last row, of bonus_lora, has it in the suite's fastest.
//
//     ./11_lora 4096        ./11_lora 4096 --rows 512 --rank 64 --activation gelu
#include "demo.cuh"
#include "lora/lora_recomputed.cuh"
#include "lora/unfused.cuh"
#include "matmul/wmma_tile.cuh"

namespace lora {

using namespace wmma_tile;  // fragments, Stage, copy_tile, multiply, kBlock = 128, kWarp = 64, ...

struct Operands {
    const half *x, *W, *u, *B, *b;  // [M, N], [N, N], [M, r], [r, N], [N], row-major
    half* out;                      // [M, N]
    size_t M, N, r;
};

/// copy_tile, also where rows do not begin at multiples of 16 bytes: one element at a time.
template <bool kAligned, int kRows, int kColumns>
__device__ void load_tile(half (*to)[kColumns + kPad], const half* from, size_t pitch, size_t rows,
                          size_t columns) {
    if constexpr (kAligned)
        copy_tile<kRows, kColumns>(to, from, pitch, rows, columns);
    else
        for (int e = threadIdx.x; e < kRows * kColumns; e += kThreads) {
            const size_t row = e / kColumns, col = e % kColumns;
            const bool inside = row < rows && col < columns;
            to[row][col] = inside ? from[row * pitch + col] : __float2half(0);
        }
}

// --- out = act([x | u] [W ; B] + b) --------------------------------------------------------------
constexpr int kStages = 3;  // Turing's 64 KiB a block have no room for more
struct Tiles {
    Stage stages[kStages];
    float patches[kThreads / 32][kPatch];
    half bias[kBlock];
};

/// Stores a fragment; at the edge only its first `rows` rows and `columns` columns.
template <bool kAligned>
__device__ void store_inside(const Accumulator& fragment, float* patch, half* out, size_t pitch,
                             size_t rows, size_t columns) {
    if (kAligned && rows >= kFragment && columns >= kFragment)
        return store_as_half(fragment, patch, out, pitch);
    to_patch(fragment, patch);
    for (size_t e = threadIdx.x % 32; e < kFragment * kFragment; e += 32) {
        const size_t row = e / kFragment, col = e % kFragment;
        if (row < rows && col < columns)
            out[row * pitch + col] = __float2half(patch[row * kPatchPitch + col]);
    }
    __syncwarp();  // the patch may be overwritten
}

template <class Activation, bool kAligned>
__device__ void compute_block(Operands o) {  // 128 x 128 of out
    extern __shared__ __align__(128) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlock, block_col = size_t(blockIdx.y) * kBlock;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    const size_t of_W = (o.N + kBlockK - 1) / kBlockK, of_B = (o.r + kBlockK - 1) / kBlockK;

    const size_t col = block_col + threadIdx.x;  // as many threads as columns
    tiles.bias[threadIdx.x] = col < o.N ? o.b[col] : __float2half(0);
    __syncthreads();  // the bias is there
    Accumulator sums[kSide][kSide];
    for (int j = 0; j < kSide; ++j) {
        const half* const bias = &tiles.bias[warp_col + j * kFragment];
        const Accumulator first = equal_rows(bias, tiles.patches[warp]);
        for (int i = 0; i < kSide; ++i) sums[i][j] = first;
    }

    auto load = [&](size_t t) {  // after the tiles of x W come one or two of u B
        const bool more = t >= of_W;
        const half *left = more ? o.u : o.x, *right = more ? o.B : o.W;
        const size_t K = more ? o.r : o.N, k = (more ? t - of_W : t) * kBlockK;
        Stage& stage = tiles.stages[t % kStages];
        if (t < of_W + of_B) {
            load_tile<kAligned, kBlock, kBlockK>(stage.A, &left[block_row * K + k], K,
                                                 o.M - block_row, K - k);
            load_tile<kAligned, kBlockK, kBlock>(stage.B, &right[k * o.N + block_col], o.N, K - k,
                                                 o.N - block_col);
        }
        __pipeline_commit();
    };
    for (size_t t = 0; t < kStages - 1; ++t) load(t);
    for (size_t t = 0; t < of_W + of_B; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of tile t have arrived
        __syncthreads();                     // everyone's have, and tile t - 1 is used up
        load(t + kStages - 1);
        const Stage& stage = tiles.stages[t % kStages];
        multiply(sums, &stage.A[warp_row], stage.B, warp_col);
    }

#pragma unroll  // registers have no computed index: in a loop the sums would go to memory
    for (int i = 0; i < kSide; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
            const size_t row = block_row + warp_row + i * kFragment;
            const size_t col = block_col + warp_col + j * kFragment;
            for (float& v : sums[i][j].x) v = Activation::of(v);
            if (row < o.M && col < o.N)
                store_inside<kAligned>(sums[i][j], tiles.patches[warp], &o.out[row * o.N + col],
                                       o.N, o.M - row, o.N - col);
        }
}

template <class Activation>
__global__ void __launch_bounds__(kThreads) appended(Operands o) {
    compute_block<Activation, true>(o);
}
/// Where rows do not begin at multiples of 16 bytes: slower.
template <class Activation>
__global__ void __launch_bounds__(kThreads) appended_unaligned(Operands o) {
    compute_block<Activation, false>(o);
}

template <class Activation>
void run_with(demo::Session& session) {
    const demo::Lora l(session);  // x, W, A, B, b, out, and the reference
    const auto [M, N, r, usual] = l.shape;
    const demo::LoraByLibrary<Activation> library(l);
    const Operands operands{l.x, l.W, library.u(), l.B, l.b, l.out, M, N, r};
    const auto kernel = N % 8 == 0 ? appended<Activation> : appended_unaligned<Activation>;
    demo::allow_shared_bytes(kernel, sizeof(Tiles));
    const dim3 blocks((M + kBlock - 1) / kBlock, (N + kBlock - 1) / kBlock);
    auto setup = [&](demo::Contender& self) {
        const auto thin_gemm = library.thin_gemm(l.s);
        self.launch = [=] {
            (*thin_gemm)();                                         // u = s x A
            kernel<<<blocks, kThreads, sizeof(Tiles)>>>(operands);  // all the rest
        };
    };
    const demo::Workload work = l.shape.workload();
    session.run(work, l.check<Activation>({}),
                {library.chain(),
                 library.library_best(),
                 {.kernel = "appended",
                  .setup = setup,
                  .launches = 2,
                  .repeatable = false,  // cuBLASLt chooses how to compute u
                  .temporary_bytes = library.u_bytes(),
                  .moved_bytes = work.least_bytes + l.x.bytes() + 2 * library.u_bytes()},
                 l.gemm_alone()},
                lora_hopper::records<Activation>(l, session.gpu));  // see bonus_lora
}

static void run(demo::Session& session) {
    demo::with_activation(session, [&](auto act) { run_with<decltype(act)>(session); });
}

}  // namespace lora

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "11_lora",
        .summary = "act(x W + s (x A) B + b), a layer with LoRA: the update as more steps of k",
        .types = {{"fp16", lora::run}},
        .any_n = true,
        .n_means = "W is N x N; x is N x N unless --rows is given",
        .default_n = demo::kSimulator ? 128 : 4096,
        .options = demo::lora_options(),
        .sizes = {1024, 2048, 4096, 8192}};
    return demo::main_of(program, argc, argv);
}
