// Bonus: waves. A multiprocessor runs only so many blocks at a time, the others wait. If all take
// equally long, blocks run in waves, and the last wave takes as long as a full one:
//
//     blocks:        132            133            264            265
//                    |####|         |####|#   |    |####|####|    |####|####|#   |
//     time:          1 wave         2 waves        2 waves        3 waves
//
// Three experiments. In the first two, arithmetic comes before the measurement: a line shows the
// time that the constants below predict, then the one that was measured. A line is marked ! where
// they disagree. Change a constant, and see it.
//
//   staircase     blocks of fixed work, 1 to 8 times as many as there are multiprocessors, and one
//                 block more: a staircase, by 3%
//   saw_tooth     C = A B with one tile size, N in steps of the tile: TFLOP/s rise and fall like
//                 the teeth of a saw; by 8% from N = 2048. Beside it a kernel that divides what is
//                 left for the last wave, and cuBLAS
//   block_sizes   GELU with blocks of 32 to 1024 threads: small ones leave a multiprocessor half
//                 empty, since it holds no more than 32 blocks
//
//     ./bonus_waves        ./bonus_waves --show saw_tooth        ./bonus_waves --show block_sizes
//
// N is where it ends: blocks, the matrices' size, or threads. docs/experiments/waves.md explains.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/matmul.cuh"
#include "demo/rows.cuh"
#include "kernels/matmul_record.cuh"

namespace waves {

// What predictions are made of: measured on an NVIDIA H200.
constexpr double kLaunchUs = 3;           // a launch that finds nothing to wait for
constexpr double kBlockCycles = 1000;     // a block starts, loads, stores, and makes room
constexpr double kStepCycles = 4;         // a multiply-add, until the next one may use its result
constexpr double kTileStepCycles = 2200;  // 128 x 256 of C, 64 along k, by mma_ptx
constexpr double kTileCycles = 5000;      // the tile's first loads and its stores
constexpr double kStaircaseWithin = 0.03, kSawToothWithin = 0.08;

/// Milliseconds of a launch whose blocks run in so many waves; 0 where the clock is not known.
static double predicted_ms(const demo::Gpu& gpu, size_t waves, double cycles_of_a_block) {
    if (gpu.boost_ghz == 0) return 0;
    return kLaunchUs / 1e3 + double(waves) * cycles_of_a_block / (gpu.boost_ghz * 1e6);
}

/// How many waves it takes to run `blocks`, if a multiprocessor holds `resident` at a time.
static size_t waves_of(size_t blocks, const demo::Gpu& gpu, int resident) {
    const size_t at_once = std::max<size_t>(1, size_t(gpu.multiprocessors) * size_t(resident));
    return (blocks + at_once - 1) / at_once;
}

static std::string text(size_t number) { return std::to_string(number); }

// --- Staircase ----------------------------------------------------------------------------------

constexpr int kThreads = 128;                           // a warp for each scheduler
constexpr int kSteps = demo::kSimulator ? 256 : 98304;  // 0.2 ms

/// A chain: each multiply-add waits for the one before. `one` is an argument, so that the compiler
/// has to multiply.
__global__ void fixed_work(const float* x, float* out, float one) {  // x, out: [blocks, kThreads]
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    float count = 0;
#pragma unroll 256
    for (int step = 0; step < kSteps; ++step) count = count * one + 1.0f;
    out[i] = count * x[i];
}

struct ExpectWork {
    const float* x;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double value = double(kSteps) * double(x[row * kThreads + col]);
        return {value, demo::kFormat<float>.roundoff * fabs(value)};
    }
};

static void staircase(demo::Session& session) {
    const demo::Gpu& gpu = session.gpu;
    const size_t blocks = session.n(), all_memory = gpu.shared_per_block;
    const demo::Input<float> x(session, "x", {blocks, kThreads});
    const demo::Output<float> out(session, "out", {blocks, kThreads});
    demo::allow_shared_bytes(fixed_work, all_memory);  // so that one block fills a multiprocessor
    const int resident = demo::blocks_per_multiprocessor(fixed_work, kThreads, all_memory);
    const size_t waves = waves_of(blocks, gpu, resident);
    const double cycles = kSteps * kStepCycles + kBlockCycles;
    session.run({.shape = "square",
                 .size = blocks,
                 .dtype = "fp32",
                 .flops = 2.0 * double(blocks) * kThreads * kSteps,
                 .least_bytes = session.least_bytes(),
                 .text = "N = " + text(blocks),
                 .facts = {{"waves", text(waves)}, {"blocks/SM", text(size_t(resident))}}},
                out.check(ExpectWork{x}),
                {{.kernel = "fixed_work",
                  .launch = [&] { fixed_work<<<blocks, kThreads, all_memory>>>(x, out, 1.0f); },
                  .predicted_ms = predicted_ms(gpu, waves, cycles),
                  .within = kStaircaseWithin}});
}

// --- Saw-tooth ----------------------------------------------------------------------------------

static void saw_tooth(demo::Session& session) {
    const demo::Gpu& gpu = session.gpu;
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    using Tile = matmul_mma::Tiles<128, 256, 3>;
    const auto mma = matmul_mma::mma_ptx<Tile>;
    const std::string why_not = demo::try_shared_bytes(mma, Tile::kSharedBytes);
    const size_t tiles = Tile::blocks(N, N), waves = waves_of(tiles, gpu, 1);
    const double steps = double(N) / matmul_mma::kDepth;
    demo::Workload work = demo::matmul_workload<half>(N);
    work.facts = {{"tiles", text(tiles)}, {"waves", text(waves)}};
    session.run(
        work, reference.check(C),
        {{.kernel = "mma_ptx",
          .launch = [=, &A, &B,
                     &C] { mma<<<tiles, Tile::kThreads, Tile::kSharedBytes>>>(A, B, C, N); },
          .why_not = why_not,
          .predicted_ms = predicted_ms(gpu, waves, steps * kTileStepCycles + kTileCycles),
          .within = kSawToothWithin},
         demo::cublas_contender<half>("cublas_fp16", A, B, C, N)},
        matmul_records(A, B, C, N, gpu));
}

// --- Block sizes --------------------------------------------------------------------------------

constexpr size_t kSide = demo::kSimulator ? 64 : 8192;  // of the matrix

__global__ void gelu(const float* x, float* out, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const float v = x[i], a = 0.79788456f * (v + 0.044715f * v * v * v);
    out[i] = v * __fdividef(1.0f, 1.0f + __expf(-2.0f * a));
}

struct ExpectGelu {
    const float* x;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double v = x[row * kSide + col], a = 0.79788456 * (v + 0.044715 * v * v * v);
        return demo::expect_elementwise(v * 0.5 * (1 + tanh(a)), fabs(v), demo::kFormat<float>);
    }
};

static void block_sizes(demo::Session& session) {
    const size_t threads = session.n(), size = kSide * kSide;
    const demo::Input<float> x(session, "x", {kSide, kSide}, {.scale = 6});
    const demo::Output<float> out(session, "out", {kSide, kSide});
    const int resident = demo::blocks_per_multiprocessor(gelu, int(threads), 0);
    session.run({.shape = "square",
                 .size = threads,
                 .dtype = "fp32",
                 .flops = 9.0 * double(size),
                 .least_bytes = session.least_bytes(),
                 .memory_bound = true,
                 .text = "N = " + text(threads),
                 .facts = {{"blocks/SM", text(size_t(resident))},
                           {"threads/SM", text(size_t(resident) * threads)}}},
                out.check(ExpectGelu{x}),
                {{.kernel = "gelu", .launch = [&] {
                      gelu<<<(size + threads - 1) / threads, unsigned(threads)>>>(x, out, size);
                  }}});
}

// --- Which, and how far -------------------------------------------------------------------------

static void run(demo::Session& session) {
    const std::string& show = session.options.choice("--show");
    (show == "staircase" ? staircase : show == "saw_tooth" ? saw_tooth : block_sizes)(session);
}

/// The lines of the table, up to the N on the command line.
static std::vector<size_t> sizes(const demo::Options& options, const demo::Gpu& gpu) {
    const std::string& show = options.choice("--show");
    const size_t step = demo::kSimulator ? 128 : 256;
    std::vector<size_t> all;
    for (size_t i = 1; i <= 8 && show == "staircase"; ++i)
        for (const size_t more : {0, 1}) all.push_back(i * size_t(gpu.multiprocessors) + more);
    for (size_t N = demo::kSimulator ? 128 : 1024; N <= options.n && show == "saw_tooth"; N += step)
        all.push_back(N);
    for (size_t threads = 32; threads <= 1024 && show == "block_sizes"; threads *= 2)
        all.push_back(threads);
    std::erase_if(all, [&](size_t N) { return N > options.n; });
    if (all.empty()) all.push_back(options.n);
    return all;
}

}  // namespace waves

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_waves",
        .summary = "blocks run in waves: the time of a launch, predicted and measured",
        .types = {{"fp32", waves::run}},
        .any_n = true,
        .n_means = "up to N blocks, to matrices of N x N, or to blocks of N threads",
        .options = {{.name = "--show",
                     .help = "which experiment",
                     .choices = {"staircase", "saw_tooth", "block_sizes"}}},
        .sizes = {},
        .sweep = demo::Sweep::kAlways,
        .sweep_sizes = waves::sizes};
    return demo::main_of(program, argc, argv);
}
