// Bonus: a multiprocessor (SM) holds few blocks at a time, and the others wait. Where all blocks
// take equally long, they run in waves, and a last wave of one block takes as long as a full one:
//
//     blocks on 132 SMs:    132            133            264             265
//                           |####|         |####|#   |    |####|####|     |####|####|#   |
//     time:                 1 wave         2 waves        2 waves         3 waves
//
// --show staircase     blocks of fixed work, up to 8 for each SM
// --show saw_tooth     C = A B in tiles of one size: TFLOP/s over N have the teeth of a saw. Beside
//                      it cuBLAS, and the record, whose blocks divide what is left for a last wave
// --show block_sizes   GELU by blocks of 32 to 1024 threads. What starts blocks has a speed, too
//
//     ./bonus_waves        ./bonus_waves --show saw_tooth        ./bonus_waves --show block_sizes
//
// The first two predict each time, from the constants below, and mark a measurement that disagrees
// with a `!`. N is where it ends: at so many blocks, at matrices of N x N, at N threads.
// docs/experiments/waves.md goes on from here.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/experiment.cuh"
#include "matmul/matmul.cuh"
#include "matmul/matmul_record.cuh"
#include "rows/expect_gelu.cuh"
#include "rows/rows.cuh"

namespace waves {

// The prediction is made of these. Change one and see.
constexpr double kLaunchUs = 3.5;         // of a kernel that does nothing
constexpr double kFmaCycles = 4;          // of a multiply-add that waits for the one before
constexpr double kBlockCycles = 3300;     // what a block does besides: start, load, loop, store
constexpr double kTileStepCycles = 2250;  // of mma_ptx on Hopper: 128 x 256 of C, 64 along k
constexpr double kTileFillCycles = 2000;  // until its first tiles have come from memory
constexpr double kStaircaseWithin = 0.03, kSawToothWithin = 0.08;  // how far off it may be

/// Blocks of equal work, of which a multiprocessor holds so many at a time.
struct Waves {
    const demo::Gpu& gpu;
    size_t blocks, resident;

    size_t count() const {
        const size_t at_once = std::max<size_t>(1, size_t(gpu.multiprocessors) * resident);
        return (blocks + at_once - 1) / at_once;
    }
    double cycles_per_ms() const { return gpu.boost_ghz * 1e6; }  // 0 where nobody knows the clock
    double predicted_ms(double cycles_of_a_block) const {
        if (cycles_per_ms() == 0 || cycles_of_a_block == 0) return 0;
        return kLaunchUs / 1e3 + double(count()) * cycles_of_a_block / cycles_per_ms();
    }
    double cycles_of_a_block(double ms) const {
        return (ms - kLaunchUs / 1e3) * cycles_per_ms() / double(count());
    }
};

/// How long a launch should take, and by what part of that it may differ. `within` 0: nobody
/// predicts it; `ms` 0: nobody can here.
struct Prediction {
    double ms = 0, within = 0;

    bool holds(double measured) const { return ms == 0 || std::abs(measured - ms) <= within * ms; }
};

static bool missed = false;   // whether a prediction was
static bool learned = false;  // whether a line was measured to predict the others

/// Measures a line of the table and prints it. Returns the median of the first contender, to which
/// the prediction belongs. `threads`: how many an SM holds; 0: not shown.
static double measure(demo::Session& session, const demo::Workload& work, const demo::Check& check,
                      const Waves& waves, Prediction predicted,
                      const std::vector<demo::Contender>& contenders,
                      const std::vector<demo::Contender>& records = {}, size_t threads = 0) {
    const std::string first = contenders[0].kernel;
    auto columns = [&](const demo::Contender& c, double ms) -> std::string {
        if (c.kernel != first || predicted.ms == 0) return ",,,";
        char text[40];
        std::snprintf(text, sizeof text, "%.6f,%s,,", predicted.ms,
                      ms == 0               ? ""
                      : predicted.holds(ms) ? "yes"
                                            : "no");
        return text;
    };
    const auto measured = demo::measure(session, work, check, contenders, records, columns);
    if (measured.empty()) return 0;

    const size_t width = std::max<size_t>(9, ("N = " + std::to_string(session.n())).size());
    auto number = [](size_t value) { return demo::right(std::to_string(value), 8); };
    const std::string size = "N = " + std::to_string(work.size);
    std::vector<demo::Cell> cells = {
        {demo::kSimulator ? "(CPU) ms" : "ms", demo::left(size, width)},
        {"blocks/SM", number(waves.resident)},
        {"waves", number(waves.count())}};
    if (threads > 0) cells.push_back({"threads/SM", number(threads)});
    double median = 0;
    for (const auto& [c, result] : measured) {
        const double ms = result.median_ms();
        if (c.kernel == first) median = ms;
        const bool is_predicted = c.kernel == first && predicted.within > 0;
        if (is_predicted) cells.push_back({"predicted", demo::figure(predicted.ms)});
        const bool off = is_predicted && ms > 0 && !predicted.holds(ms);
        cells.push_back({c.kernel, demo::figure(ms) + (off ? "!" : "")});
        missed |= off;
    }
    demo::print_row(session, cells);
    return median;
}

// --- Staircase ----------------------------------------------------------------------------------

constexpr int kThreads = 128;                          // a warp for each of an SM's schedulers
constexpr int kFmas = demo::kSimulator ? 192 : 98304;  // 0.2 ms

/// A chain: each multiply-add waits for the one before. The compiler does not know `one`.
__global__ void fixed_work(const float* x,  // [blocks, kThreads]
                           float* out,      // [blocks, kThreads]
                           float one) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    float count = 0;
#pragma unroll 256
    for (int step = 0; step < kFmas; ++step) count = count * one + 1.0f;
    out[i] = count * x[i];
}

struct ExpectWork {
    const float* x;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double value = double(kFmas) * double(x[row * kThreads + col]);
        return {value, 2 * demo::kFormat<float>.roundoff * fabs(value)};
    }
};

static void staircase(demo::Session& session, size_t N) {
    const size_t all_shared = session.gpu.shared_per_block;
    const demo::Input<float> x(session, "x", {N, kThreads});
    const demo::Output<float> out(session, "out", {N, kThreads});
    demo::allow_shared_bytes(fixed_work, all_shared);  // so an SM holds a single block
    const int resident = demo::blocks_per_multiprocessor(fixed_work, kThreads, all_shared);
    const Waves waves{session.gpu, N, size_t(resident)};
    demo::Workload work = demo::MatrixShape{N, kThreads, true}.workload(session, 2.0 * kFmas);
    work.memory_bound = false, work.text = "N = " + std::to_string(N);
    auto launch = [&] { fixed_work<<<N, kThreads, all_shared>>>(x, out, 1.0f); };
    measure(session, work, out.check(ExpectWork{x}), waves,
            {waves.predicted_ms(kFmas * kFmaCycles + kBlockCycles), kStaircaseWithin},
            {{.kernel = "fixed_work", .launch = launch}});
}

// --- Saw-tooth ----------------------------------------------------------------------------------

template <class Tile>
void saw_tooth(demo::Session& session, size_t N) {
    const size_t tiles = Tile::blocks(N, N), bytes = Tile::kSharedBytes;
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);
    const auto kernel = matmul_mma::mma_ptx<Tile>;
    demo::allow_shared_bytes(kernel, bytes);
    const int resident = demo::blocks_per_multiprocessor(kernel, Tile::kThreads, bytes);
    const Waves waves{session.gpu, tiles, size_t(resident)};
    const double steps = double(N) / matmul_mma::kDepth;
    // On other GPUs the first line, which then has no prediction, tells how long a step takes.
    static double measured = 0;
    const double step_cycles = session.gpu.compute_capability == 90 ? kTileStepCycles : measured;
    const double cycles = step_cycles > 0 ? kTileFillCycles + steps * step_cycles : 0;
    auto launch = [&] { kernel<<<tiles, Tile::kThreads, bytes>>>(A, B, C, N); };
    const double ms = measure(session, demo::matmul_workload<half>(N), reference.check(C), waves,
                              {waves.predicted_ms(cycles), kSawToothWithin},
                              {{.kernel = "mma_ptx", .launch = launch},
                               demo::cublas_contender<half>("cublas_fp16", A, B, C, N)},
                              {matmul_records(A, B, C, N, session.gpu)[0]});
    if (step_cycles == 0 && ms > 0)
        measured = (waves.cycles_of_a_block(ms) - kTileFillCycles) / steps, learned = true;
}

// --- Block sizes --------------------------------------------------------------------------------

constexpr size_t kSide = demo::kSimulator ? 64 : 8192;  // of the matrix

__global__ void gelu(const float* x, float* out, size_t size) {  // [size]
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const float v = x[i], a = 0.79788456f * (v + 0.044715f * v * v * v);
    out[i] = v * __fdividef(1.0f, 1.0f + __expf(-2.0f * a));
}

static void block_sizes(demo::Session& session, size_t N) {
    const size_t size = kSide * kSide, blocks = (size + N - 1) / N;
    const demo::Input<float> x(session, "x", {kSide, kSide}, {.scale = 6});
    const demo::Output<float> out(session, "out", {kSide, kSide});
    const int resident = demo::blocks_per_multiprocessor(gelu, int(N), 0);
    demo::Workload work = demo::MatrixShape{kSide, kSide, true}.workload(session, 9);
    work.shape = "block_sizes", work.size = N, work.text = "N = " + std::to_string(N);
    auto launch = [&] { gelu<<<blocks, unsigned(N)>>>(x, out, size); };
    measure(session, work, out.check(demo::ExpectGelu<float>{x, kSide, false}),
            {session.gpu, blocks, size_t(resident)}, {}, {{.kernel = "gelu", .launch = launch}}, {},
            size_t(resident) * N);
}

// --- Which of them, and how far -----------------------------------------------------------------

/// N of the table's lines.
static std::vector<size_t> sizes(const std::string& show, size_t last, const demo::Gpu& gpu) {
    const size_t SMs = demo::kSimulator ? 4 : size_t(gpu.multiprocessors);
    const size_t step = demo::kSimulator ? 32 : 256;
    std::vector<size_t> all = {1};
    for (size_t i = 1; i <= 8; ++i) all.insert(all.end(), {i * SMs, i * SMs + 1});
    if (show == "saw_tooth") all = {4 * step};
    while (show == "saw_tooth" && all.back() < last) all.push_back(all.back() + step);
    if (show == "block_sizes") all = {32, 64, 128, 256, 512, 1024};
    while (all.size() > 1 && all.back() > last) all.pop_back();
    return all;
}

static void run(demo::Session& session) {
    using Wide = matmul_mma::Tiles<128, 256, 3>;
    const std::string& show = session.options.choice("--show");
    const std::vector<size_t> last = {session.n()};
    for (const size_t N : demo::dry_run ? last : sizes(show, session.n(), session.gpu))
        if (show == "staircase")
            staircase(session, N);
        else if (show == "block_sizes")
            block_sizes(session, N);
        else if (Wide::kSharedBytes <= session.gpu.shared_per_block)
            saw_tooth<Wide>(session, N);
        else
            matmul_mma::with_square_tiles(session.gpu,
                                          [&]<class T>(T) { saw_tooth<T>(session, N); });
    if (missed) session.note("! not as predicted");
    if (learned) session.note("not predicted: the first line, which tells how long a step takes");
}

}  // namespace waves

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_waves",
        .summary = "blocks run in waves: the time of a launch, predicted and measured",
        .types = {{"fp32", waves::run}},
        .any_n = true,
        .n_means = "up to N blocks, to matrices of N x N, or to blocks of N threads",
        .options = {{"--show", "which experiment", {"staircase", "saw_tooth", "block_sizes"}}},
        .sizes = {},
        .variants = {"4096 --show staircase", "4096 --show saw_tooth", "4096 --show block_sizes"},
        .sweep = demo::Sweep::kByItself};
    return demo::main_of(program, argc, argv);
}
