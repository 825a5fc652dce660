// 11: A layer with LoRA, out = act(x W + s (x A) B + b), as one more step of its product.
//
// LoRA (Hu et al., arXiv 2106.09685) leaves a large W[N, N] as it is and trains two thin matrices,
// A[N, r] and B[r, N] with r = 8 to 64: at N = 4096 and r = 16, 0.8% more operations. (Adding s A B
// to W would need a W for each of many adapters.) Line by line, as a framework runs it, seven
// launches move 13 M N numbers beside the weights, where 2 M N would do.
//
// With u = s x A, a thin matrix [M, r], the rest is a single product with a longer inner dimension:
//
//                            +---------+        The main loop takes the rows of W a tile at a
//                            |    W    |        time, then the rows of B: one tile more, or two.
//            +-------+---+   |         |        Nothing is copied to put x and u side by side.
//     act(   |   x   | u | * +---------+ + b)
//            +-------+---+   |    B    |        Bias and activation take the sums in registers.
//                            +---------+
//
// chain          the formula, line by line: three gemms and four elementwise kernels
// library_best   t = x A, out = x W + b, out = act(out + s t B), the rest in epilogues: 5 M N
// appended       u by the library, all the rest in one kernel, lesson 3's wmma_tiled: 3 M N
// appended_tile  the same in CUDA Tile C++, with lesson 6's main loop
//     ./11_lora 4096        ./11_lora 4096 --rows 512 --rank 64 --activation gelu
// What limits them: the main loop. wmma_tiled's has 40% of the library's speed, so appended moves
// less than the chain but takes longer. The tile compiler's has 90%. (recomputed: see bonus_lora.)
// H200, N = 4096, ms: chain 0.424, library_best 0.239, appended 0.504, appended_tile 0.231
// (docs/figures.md)
#include "demo.cuh"
#include "lora/lora_recomputed.cuh"
#include "lora/unfused.cuh"
#include "matmul/wmma_tile.cuh"
#include "tile.cuh"

namespace lora {

struct Operands {
    const half *x, *W, *u, *B, *b;  // [M, N], [N, N], [M, r], [r, N], [N], row-major
    half* out;                      // [M, N]
    size_t M, N, r;                 // N and r are multiples of 8: 16 bytes
};

// --- Lesson 3's wmma_tiled, with u B after x W ---------------------------------------------------
using namespace wmma_tile;  // fragments, Stage, copy_tile, multiply, kBlock = 128, kWarp = 64, ...

constexpr int kStages = 3;  // Turing's 64 KiB a block have no room for more
struct Tiles {
    Stage stages[kStages];
    float patches[kThreads / 32][kPatch];
};

/// out = act(sums + b), for 16 x 16 elements from (row, col) on: each thread stores 8 neighbors.
template <class Activation>
__device__ void store_activated(const Accumulator& sums, float* patch, const Operands& o,
                                size_t row, size_t col) {
    to_patch(sums, patch);
    const int lane = threadIdx.x % 32;
    const float* const mine = &patch[lane / 2 * kPatchPitch + lane % 2 * 8];
    row += lane / 2, col += lane % 2 * 8;
    if (row < o.M && col < o.N) {
        alignas(16) half act[8];
        for (int i = 0; i < 8; ++i) act[i] = Activation::of(mine[i] + float(o.b[col + i]));
        *reinterpret_cast<uint4*>(&o.out[row * o.N + col]) = *reinterpret_cast<uint4*>(act);
    }
    __syncwarp();  // the patch may be overwritten
}

template <class Activation>
__global__ void __launch_bounds__(kThreads) appended(Operands o) {  // a block: 128 x 128 of out
    extern __shared__ __align__(128) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlock, block_col = size_t(blockIdx.y) * kBlock;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    const size_t of_W = (o.N + kBlockK - 1) / kBlockK, of_B = (o.r + kBlockK - 1) / kBlockK;

    // Copies the tiles of left[M, K] from column k on and of right[K, N] from row k on.
    auto copy = [&](Stage& stage, const half* left, const half* right, size_t K, size_t k) {
        copy_tile<kBlock, kBlockK>(stage.A, &left[block_row * K + k], K, o.M - block_row, K - k);
        copy_tile<kBlockK, kBlock>(stage.B, &right[k * o.N + block_col], o.N, K - k,
                                   o.N - block_col);
    };
    auto load = [&](size_t t) {  // of_W tiles of x and W, then of_B tiles of u and B
        Stage& stage = tiles.stages[t % kStages];
        if (t < of_W)
            copy(stage, o.x, o.W, o.N, t * kBlockK);
        else if (t < of_W + of_B)
            copy(stage, o.u, o.B, o.r, (t - of_W) * kBlockK);
        __pipeline_commit();
    };
    Accumulator sums[kSide][kSide];
    for (auto& row : sums)
        for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);
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
        for (int j = 0; j < kSide; ++j)
            store_activated<Activation>(sums[i][j], tiles.patches[warp], o,
                                        block_row + warp_row + i * kFragment,
                                        block_col + warp_col + j * kFragment);
}

// --- The same in CUDA Tile C++, as in lesson 6 ---------------------------------------------------
#ifdef __CUDACC_TILE__  // where the compiler knows it: see tile.cuh
template <class Activation>
__tile__ auto activate_tile(auto v) {
    if constexpr (std::is_same_v<Activation, demo::Relu>)
        return ct::select(v < 0.0f, ct::zeros<decltype(v)>(), v);
    else if constexpr (std::is_same_v<Activation, demo::Sigmoid>)
        return tile::logistic(v);
    else if constexpr (std::is_same_v<Activation, demo::Gelu>)
        return ct::max(v, -3.4028235e38f) *
               tile::logistic(1.59576912f * (v + 0.044715f * v * v * v));
    else
        return v;
}

/// r <= 64, so u B is one more step of the same depth: elements outside of u and B are 0.
template <class Activation, int kCols>
[[cutile::hint(0, num_worker_warps_per_cta = 8)]] __tile_global__ void appended_tile(
    tile::In<half> x, tile::In<half> W, tile::In<half> u, tile::In<half> B, tile::In<half> b,
    tile::Out<half> out, size_t M, size_t N, size_t r) {
    const auto [m, n] = tile::place_in_groups(tile::count(M, kBlock), tile::count(N, kCols));
    auto sum = ct::zeros<ct::tile<float, ct::shape<kBlock, kCols>>>();
    for (int k : ct::irange(0, tile::count(N, 64)))
        sum = ct::mma(tile::matrix<kBlock, 64>(x, M, N).load_masked(m, k),
                      tile::matrix<64, kCols>(W, N, N).load_masked(k, n), sum);
    sum = ct::mma(tile::matrix<kBlock, 64>(u, M, r).load_masked(m, 0),
                  tile::matrix<64, kCols>(B, r, N).load_masked(0, n), sum);
    const auto act = activate_tile<Activation>(sum + tile::row<kCols>(b, N, n));
    tile::matrix<kBlock, kCols>(out, M, N).store_masked(ct::element_cast<half>(act), m, n);
}

template <class Activation>
std::function<void()> tile_launch(const demo::Session& session, const Operands& o) {
    auto launch = [=](auto kernel, int columns) {
        const int blocks = tile::count(o.M, kBlock) * tile::count(o.N, columns);
        return [=] { kernel<<<blocks>>>(o.x, o.W, o.u, o.B, o.b, o.out, o.M, o.N, o.r); };
    };
    return demo::faster(session.options,  // narrow tiles make more blocks, for small N
                        launch(appended_tile<Activation, 256>, 256),
                        launch(appended_tile<Activation, 128>, 128));
}
#else
template <class Activation>
std::function<void()> tile_launch(const demo::Session&, const Operands&) {
    return {};
}
#endif

template <class Activation>
void run_with(demo::Session& session) {
    const demo::Lora l(session);  // x, W, A, B, b, out, and the reference
    const auto [M, N, r, usual] = l.shape;
    const demo::LoraByLibrary<Activation> library(l);
    const Operands operands{l.x, l.W, library.u(), l.B, l.b, l.out, M, N, r};
    demo::allow_shared_bytes(appended<Activation>, sizeof(Tiles));
    const dim3 blocks((M + kBlock - 1) / kBlock, (N + kBlock - 1) / kBlock);
    const demo::Workload work = l.shape.workload();
    demo::Contender wmma{.kernel = "appended",
                         .launches = 2,
                         .repeatable = false,  // cuBLASLt chooses how to compute u
                         .temporary_bytes = library.u_bytes(),
                         .moved_bytes = work.least_bytes + l.x.bytes() + 2 * library.u_bytes(),
                         .why_not = N % 8 ? "needs N to be a multiple of 8" : ""};
    demo::Contender tiles = wmma;
    tiles.kernel = "appended_tile";
    if (tiles.why_not.empty()) tiles.why_not = tile::why_not(session.gpu);
    auto thin_gemm = [&] { return library.thin_gemm(l.s); };  // u = s x A
    wmma.setup = [&](demo::Contender& self) {
        self.launch = [=, compute_u = thin_gemm()] {
            (*compute_u)();
            appended<Activation><<<blocks, kThreads, sizeof(Tiles)>>>(operands);
        };
    };
    tiles.setup = [&](demo::Contender& self) {
        self.launch = [compute_u = thin_gemm(), rest = tile_launch<Activation>(session, operands)] {
            (*compute_u)();
            rest();
        };
    };
    session.run(work, l.check<Activation>({}),
                {library.chain(), library.library_best(), wmma, tiles, l.gemm_alone()},
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
