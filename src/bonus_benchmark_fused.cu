// Bonus: the careful benchmark of 5_gating_unfused against 6_gating_fused.
//
// Two tables, each with one row per size: the talk's shape, tall and skinny, where the time is
// memory traffic and fusion wins several-fold; and the square shape, where the time is the matmuls'
// and fusion wins what little the other kernels took.
//
// How the times come about (see include/demo/measure.cuh): random data; every result verified
// before and after; the three versions take turns, one launch each, with the cache emptied before;
// the figure is the median. Temporary memory is what a version needs beside inputs and output.
//
// N caps the square sizes, and S at N / 8; --talk S runs the talk's sizes up to S alone.
#define GATING_FUSED_NO_MAIN
#include "6_gating_fused.cu"

/// first, 2 first, 4 first, ... below `cap`, and `cap` itself.
static std::vector<size_t> doubling_sizes(size_t first, size_t cap) {
    std::vector<size_t> sizes;
    for (size_t size = first; size < cap; size *= 2) sizes.push_back(size);
    sizes.push_back(cap);
    return sizes;
}

/// One table: every size in `shapes`, or a note where it does not fit the GPU.
static void run_table(const demo::Options& options, const demo::Gpu& gpu, demo::Report& report,
                      const std::string& title, const std::vector<demo::GatingShape>& shapes) {
    if (!options.csv) {
        std::printf("\n%s\n", title.c_str());
        std::printf("%7s | %11s %11s %11s | %11s %12s | %9s %10s | %12s %12s\n", "", "six_kernels",
                    "library", "fused", "fused", "", "fused vs.", "fused vs.", "six, library",
                    "fused");
        std::printf("%7s | %11s %11s %11s | %11s %12s | %9s %10s | %12s %12s\n", "size", "ms", "ms",
                    "ms", "TFLOP/s", "verified", "six", "library", "temporary", "temporary");
    }
    for (const demo::GatingShape& shape : shapes) {
        const size_t needed = gating_unfused::bytes_needed(shape, gpu),
                     free_bytes = demo::free_device_memory();
        if (needed > free_bytes) {
            report.note(std::to_string(shape.size) + ": skipped, needs " +
                        demo::human_bytes(double(needed)) + " of GPU memory, " +
                        demo::human_bytes(double(free_bytes)) + " are free");
            continue;
        }
        const demo::Workload work = shape.workload();
        const demo::Gating gating(shape, options.seed);
        const gating_unfused::Unfused unfused(gating);
        const std::vector<demo::Contender> contenders{unfused.six_kernels.contender(),
                                                      unfused.library_best.contender(),
                                                      gating_fused::contenders(gating, gpu).back()};
        const std::vector<demo::Result> results = demo::measure(options, gpu, contenders);
        const demo::Result &six = results[0], &library = results[1], &fused = results[2];
        bool verified = true;
        for (size_t i = 0; i < results.size(); ++i) {
            report.record(work, contenders[i], results[i]);
            verified = verified && results[i].verdict.ok();
        }
        if (options.csv) continue;
        auto figure = [](double value) { return value > 0 ? demo::four_digits(value) : "-"; };
        auto speedup = [&](const demo::Result& slow) {
            const bool timed = slow.median_ms() > 0 && fused.median_ms() > 0;
            return timed ? demo::four_digits(slow.median_ms() / fused.median_ms()) + " x" : "-";
        };
        std::printf("%7zu | %11s %11s %11s | %11s %12s | %9s %10s | %12s %12s\n", shape.size,
                    figure(six.median_ms()).c_str(), figure(library.median_ms()).c_str(),
                    figure(fused.median_ms()).c_str(), figure(fused.tflops(work)).c_str(),
                    verified ? "verified" : "WRONG", speedup(six).c_str(), speedup(library).c_str(),
                    demo::human_bytes(double(contenders[0].temporary_bytes)).c_str(),
                    demo::human_bytes(double(contenders[2].temporary_bytes)).c_str());
        std::fflush(stdout);
    }
}

int main(int argc, char** argv) {
    const demo::Options options = demo::parse_command_line(
        argc, argv,
        {.name = "bonus_benchmark_fused",
         .summary = "gating unfused against fused, over sizes up to N (S up to N / 8)",
         .kernels = {},
         .talk = true,
         .default_n = demo::kCpuLane ? 256 : 16384});
    const demo::Gpu gpu(options);
    demo::Report report(options, gpu, "gating unfused against fused, fp16, fp32 sums");

    const size_t talk_cap =
        options.talk ? options.talk : std::max<size_t>(32, options.n / 8 / 16 * 16);
    std::vector<demo::GatingShape> talk, square;
    for (size_t S : doubling_sizes(std::min<size_t>(32, talk_cap), talk_cap))
        talk.push_back(demo::GatingShape::talk(S));
    for (size_t N : doubling_sizes(std::min<size_t>(1024, options.n), options.n))
        square.push_back(demo::GatingShape::square(N));

    run_table(options, gpu, report, "The talk's shape: x[4 S^2, 128], W1 and W2[128, 64]; by S",
              talk);
    if (!options.talk)
        run_table(options, gpu, report, "Square: x[N, N], W1 and W2[N, N]; by N", square);
    return report.exit_code();
}
