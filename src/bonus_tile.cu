// Experiment: how far does CUDA Tile C++ come, and in how many lines?
//
// Matmul, softmax, GELU, and bias and ReLU, written as the code of one thread whose variables hold
// tiles (see tile.cuh). Below each stands the suite's record, or a copy of as many bytes, and how
// many lines the kernel has, without tile.cuh.
//
// Ours to decide: a tile's size, which block computes which, what is read more than once, how exact
// a division is, and two promises: arrays do not overlap, rows begin at multiples of 16 bytes.
//
//     ./bonus_tile 4096        ./bonus_tile --rows 262144 --cols 1000 --dtype fp32
#include <optional>

#include "demo.cuh"
#include "demo/copy.cuh"
#include "matmul/matmul.cuh"
#include "matmul/matmul_record.cuh"
#include "rows/softmax.cuh"
#include "rows/softmax_rows.cuh"
#include "tile.cuh"

namespace tile_experiment {

#ifdef __CUDACC_TILE__                   // where the compiler knows tiles: see tile.cuh
constexpr int kRows = 128, kCols = 256;  // a tile of C
constexpr int kTile = 1024;              // a tile of a row, where that is not one itself
constexpr int kMatmul = __LINE__;        // the line before each kernel, to count its lines
[[cutile::hint(0, num_worker_warps_per_cta = 8)]] __tile_global__ void matmul_tile(
    tile::In<half> A, tile::In<half> B, tile::Out<half> C, size_t N) {
    const auto [m, n] = tile::place_in_groups(tile::count(N, kRows), tile::count(N, kCols));
    auto sum = ct::zeros<ct::tile<float, ct::shape<kRows, kCols>>>();
    for (int k : ct::irange(0, tile::count(N, 64)))
        sum = ct::mma(tile::matrix<kRows, 64>(A, N, N).load_masked(m, k),
                      tile::matrix<64, kCols>(B, N, N).load_masked(k, n), sum);
    tile::matrix<kRows, kCols>(C, N, N).store_masked(ct::element_cast<half>(sum), m, n);
}
constexpr int kSoftmax = __LINE__;
template <int kCols, class T>
[[cutile::hint(0, num_worker_warps_per_cta = 8)]] __tile_global__ void softmax_tile(
    tile::In<T> x, tile::Out<T> out, size_t rows, size_t cols) {
    const int row = ct::bid().x;  // the whole row is one tile, padded with -infinity
    const auto from = tile::matrix<1, kCols>(x, rows, cols);  // TMA is slow here, so not:
    [[cutile::hint(0, allow_tma = false)]] const auto in =
        from.load_masked(tile::kMinusInfinity, row, 0);
    const auto v = ct::element_cast<float>(in);
    const auto e = ct::exp(v - ct::reduce_max<1>(v), ct::round_approximate_t{});
    const auto result = ct::element_cast<T>(e * (1.0f / ct::sum<1>(e)));
    const auto to = tile::matrix<1, kCols>(out, rows, cols);
    [[cutile::hint(0, allow_tma = false)]] to.store_masked(result, row, 0);
}
constexpr int kSoftmaxTiles = __LINE__;
template <class T>
__tile_global__ void softmax_tiles(tile::In<T> x, tile::Out<T> out, size_t rows, size_t cols) {
    // For rows too long for one tile, or not aligned. Reads each twice: for maximum and sum (as
    // `online` of 8_softmax does), then for the result.
    const int row = ct::bid().x, tiles = tile::count(cols, kTile);
    const auto from = tile::matrix<1, kTile, false>(x, rows, cols);
    const auto to = tile::matrix<1, kTile, false>(out, rows, cols);
    auto max = ct::full<ct::tile<float, ct::shape<1, 1>>>(-INFINITY);
    auto sum = ct::zeros<decltype(max)>();
    const ct::round_approximate_t approx;
    for (int t : ct::irange(0, tiles)) {
        const auto v = ct::element_cast<float>(from.load_masked(tile::kMinusInfinity, row, t));
        const auto before = max;
        max = ct::max(max, ct::reduce_max<1>(v));
        sum = sum * ct::exp(before - max, approx) + ct::sum<1>(ct::exp(v - max, approx));
    }
    for (int t : ct::irange(0, tiles)) {
        const auto v = ct::element_cast<float>(from.load_masked(row, t));
        const auto e = ct::exp(v - max, approx);
        to.store_masked(ct::element_cast<T>(e * (1.0f / sum)), row, t);
    }
}
constexpr int kGelu = __LINE__;
template <bool kAligned, class T>
__tile_global__ void gelu_tile(tile::In<T> x, tile::Out<T> out, size_t size) {
    const int t = ct::bid().x;  // of the matrix, which is treated as one long row
    const auto in = tile::matrix<1, kTile, kAligned>(x, 1, size).load_masked(0, t);
    const auto v = ct::element_cast<float>(in), a = 0.79788456f * (v + 0.044715f * v * v * v);
    const auto divisor = 1.0f + ct::exp(-2.0f * a, ct::round_approximate_t{});
    const auto gelu = ct::div(ct::max(v, -3.4028235e38f), divisor, ct::round_approximate_t{});
    tile::matrix<1, kTile, kAligned>(out, 1, size).store_masked(ct::element_cast<T>(gelu), 0, t);
}
constexpr int kBiasRelu = __LINE__;
template <bool kAligned, class T>
__tile_global__ void bias_relu_tile(tile::In<T> x, tile::In<T> b, tile::Out<T> out, size_t rows,
                                    size_t cols) {
    const int tiles = tile::count(cols, kTile), row = ct::bid().x / tiles, t = ct::bid().x % tiles;
    const auto in = tile::matrix<1, kTile, kAligned>(x, rows, cols).load_masked(row, t);
    const auto bias = tile::matrix<1, kTile, kAligned>(b, 1, cols).load_masked(0, t);
    const auto v = ct::element_cast<float>(in) + ct::element_cast<float>(bias);
    const auto relu = ct::element_cast<T>(ct::select(v < 0.0f, ct::zeros<decltype(v)>(), v));
    tile::matrix<1, kTile, kAligned>(out, rows, cols).store_masked(relu, row, t);
}
constexpr int kEnd = __LINE__;

// --- Running each beside the best ----------------------------------------------------------------

static demo::Contender contender(const demo::Session& session, const char* name,
                                 std::function<void()> launch) {
    const auto shape = demo::MatrixShape::of(session.options);
    std::string why_not = tile::why_not(session.gpu);
    const size_t tiles = (shape.cols - 1) / kTile + 1;  // of a row
    if (shape.rows > INT_MAX / tiles) why_not = "takes fewer than 2^31 tiles";
    return {.kernel = name, .launch = launch, .why_not = why_not};
}

static void say_lines(const demo::Session& session, const std::string& kernel, int lines) {
    if (session.wants(kernel)) session.note(kernel + ": " + std::to_string(lines) + " lines");
}

static void run_matmul(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);
    const int blocks = tile::count(N, kRows) * tile::count(N, kCols);
    auto launch = [&] { matmul_tile<<<blocks>>>(A, B, C, N); };
    session.run(demo::matmul_workload<half>(N), reference.check(C),
                {contender(session, "matmul_tile", launch)},
                matmul_records(A, B, C, N, session.gpu));
    say_lines(session, "matmul_tile", kSoftmax - kMatmul - 1);
}

template <class T>
void run_softmax(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t rows = shape.rows, cols = shape.cols;
    const demo::Input<T> x(session, "x", shape,
                           {.then = demo::Then::kOffsetRows, .hard = demo::kHardRows<T>});
    const demo::Output<T> out(session, "out", shape);
    const demo::SoftmaxReference<T> reference(session, x);
    const bool fits = cols * sizeof(T) % 16 == 0 && cols <= 16384;  // one tile
    const auto kernel = !fits          ? softmax_tiles<T>
                        : cols <= 1024 ? softmax_tile<1024, T>
                        : cols <= 4096 ? softmax_tile<4096, T>
                        : cols <= 8192 ? softmax_tile<8192, T>
                                       : softmax_tile<16384, T>;
    const int lines = fits ? kSoftmaxTiles - kSoftmax - 1 : kGelu - kSoftmaxTiles - 1;
    auto launch = [&] { kernel<<<rows>>>(x, out, rows, cols); };
    session.run(shape.workload(session, 5), reference.check(out, false),
                {contender(session, "softmax_tile", launch)},
                softmax::records<T>(x, out, rows, cols, session.gpu));
    say_lines(session, "softmax_tile", lines);
}

/// GELU, or bias and ReLU, beside a copy.
template <class T>
void run_elementwise(demo::Session& session, bool has_bias) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t rows = shape.rows, cols = shape.cols, size = shape.size();
    const demo::Input<T> x(session, "x", shape,
                           {.scale = has_bias ? 1.0f : 6.0f, .hard = demo::kHardRows<T>});
    std::optional<demo::Input<T>> b;
    if (has_bias) b.emplace(session, "b", std::vector{cols});
    const demo::Output<T> out(session, "out", shape);
    const demo::Workload work = shape.workload(session, has_bias ? 2 : 9);  // operations
    const T* const bias = has_bias ? b->data() : nullptr;
    const auto add = cols * sizeof(T) % 16 ? bias_relu_tile<false, T> : bias_relu_tile<true, T>;
    const auto gelu = size * sizeof(T) % 16 ? gelu_tile<false, T> : gelu_tile<true, T>;
    auto run_add = [&] { add<<<rows * tile::count(cols, kTile)>>>(x, bias, out, rows, cols); };
    auto run_gelu = [&] { gelu<<<tile::count(size, kTile)>>>(x, out, size); };
    const demo::Check gelu_check =
        out.check(demo::ExpectActivation<demo::ExactGelu, T>{x, 0, nullptr, nullptr, cols, false});
    const demo::Check add_check =
        out.check(demo::ExpectActivation<demo::ExactRelu, T>{x, 0, nullptr, bias, cols, false});
    session.run(work, has_bias ? add_check : gelu_check,
                {has_bias ? contender(session, "bias_relu_tile", run_add)
                          : contender(session, "gelu_tile", run_gelu),
                 demo::copy_contender(session, work)});
    if (has_bias)
        say_lines(session, "bias_relu_tile", kEnd - kBiasRelu - 1);
    else
        say_lines(session, "gelu_tile", kBiasRelu - kGelu - 1);
}

template <class T>
void run(demo::Session& session) {
    const auto [rows, cols, square] = demo::MatrixShape::of(session.options);
    if (sizeof(T) == 2 && square && cols % 32 == 0) run_matmul(session);
    run_softmax<T>(session);
    run_elementwise<T>(session, false);
    run_elementwise<T>(session, true);
}
#else
template <class T>
void run(demo::Session& session) {  // runs nothing, and main_of() says why
    for (const char* name : {"matmul_tile", "softmax_tile", "gelu_tile", "bias_relu_tile"})
        session.run(demo::MatrixShape::of(session.options).workload(session, 1), {},
                    {{.kernel = name, .why_not = tile::why_not(session.gpu)}});
}
#endif

}  // namespace tile_experiment

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_tile",
        .summary = "CUDA Tile C++: matmul, softmax, GELU, bias and ReLU in some ten lines each",
        .types = {{"fp16", tile_experiment::run<half>}, {"fp32", tile_experiment::run<float>}},
        .any_shape = true,
        .sizes = {4096, 8192},
        .shapes = {{262144, 1000}}};
    return demo::main_of(program, argc, argv);
}
