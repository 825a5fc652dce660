// Bonus: softmax of rows of any length, up to 512 KiB at a copy's speed: 8_softmax, continued.
//
// While a row fits, the kernel `online` of 8_softmax moves each number once in and once out, the
// least there is, and is still slower than a copy: too few bytes are in flight while a block passes
// its row through shared memory, or waits at its barrier. So keep a row in registers, of as few
// threads as can hold it:
//
//     rows of up to             rung               a row is kept in the registers of
//       240 columns, unaligned  by_tile            1 to 16 threads, by way of shared memory
//       1024 columns            by_warp            1 to 32 threads of a warp: no barrier
//       64 KiB                  by_block           up to 16 warps
//       512 KiB                 by_cluster         2 to 8 blocks, a cluster
//       128 KiB per SM          by_grid            all multiprocessors (SM), or some of them
//       any length              by_cluster_twice   nobody, but for its end: it is loaded twice
//
// A row is aligned if it begins at a multiple of 16 bytes, as vectors must. A few long rows are
// by_grid's as well. Every rung runs that can take the row, so try lengths to see where they cross:
//
//     ./bonus_softmax_rows --rows 1000000 --cols 17           ./bonus_softmax_rows 16384
//     ./bonus_softmax_rows --rows 1 --cols 1000000            (and --dtype fp16)
//     ./bonus_softmax_rows --rows 8192 --cols 50257           GPT-2's vocabulary: unaligned
//
// What limits it: the meeting of many multiprocessors, and rows too long to be kept on the chip.
// The kernels: rows/softmax_rows.cuh. How maximum and sum merge: 8_softmax.
#include "demo.cuh"
#include "demo/copy.cuh"
#include "rows/softmax.cuh"
#include "rows/softmax_rows.cuh"

namespace softmax {

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t cols = shape.cols;
    // Numbers of even rows are around 100, of odd ones around -100: e^x would overflow or vanish.
    const demo::Input<T> x(session, "x", shape,
                           {.then = demo::Then::kOffsetRows, .hard = demo::kHardRows<T>});
    const demo::Output<T> out(session, "out", shape);
    const demo::SoftmaxReference<T> reference(session, x);

    const Rows<T> r{x, out, shape.rows, cols};
    // Why a rung that keeps rows of up to `most` columns, or bytes, cannot run. --describe looks
    // for no GPU and lists what not every GPU can run: there the length is no reason.
    auto why_not = [&](size_t length, size_t most, const std::string& unit) -> std::string {
        if (length <= most || session.gpu.arch.empty()) return "";
        return "keeps rows of up to " + std::to_string(most) + unit;
    };
    auto rung = [&](const char* name, auto prepare, const std::string& reason, size_t moves = 2) {
        return demo::Contender{.kernel = name,
                               .setup = [=](demo::Contender& self) { self.launch = prepare(r); },
                               .moved_bytes = moves * x.bytes(),
                               .why_not = reason};
    };
    const demo::Gpu& gpu = session.gpu;
    auto prepare_any_length = [&](const Rows<T>& r) { return prepare_by_cluster_twice(r, gpu); };
    const demo::Workload work = shape.workload(session, 5);  // operations per element, as in 8
    session.run(
        work, reference.check(out, false),
        {rung("by_tile", prepare_by_tile<T>, why_not(cols, kMostPerTile, " columns")),
         rung("by_warp", prepare_by_warp<T>, why_not(cols, kMostPerWarp, " columns")),
         rung(
             "by_block", [&](auto r) { return prepare_by_block(r, gpu); },
             why_not(r.row_bytes(), kMostBlockBytes, " bytes")),
         rung("by_cluster", prepare_by_cluster<T>,
              has_clusters(gpu) ? why_not(r.row_bytes(), kMostClusterBytes, " bytes")
                                : "needs clusters (sm_90)"),
         rung(
             "by_grid", [&](auto r) { return prepare_by_grid(r, gpu); }, "",
             grid_keeps(r.row_bytes(), gpu) ? 2 : 3),
         rung("by_cluster_twice", prepare_any_length, "", 3), demo::copy_contender(session, work)});
}

}  // namespace softmax

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_softmax_rows",
        .summary =
            "softmax at a copy's speed, of rows up to 512 KiB: by tile, warp, block, cluster, grid",
        .types = {{"fp32", softmax::run<float>}, {"fp16", softmax::run<half>}},
        .any_shape = true,
        .sizes = {4096, 8192, 16384},
        // Long rows, short rows, and rows that do not begin at multiples of 16 bytes.
        .shapes = {{4096, 131072}, {262144, 1000}, {8192, 50257}}};
    return demo::main_of(program, argc, argv);
}
