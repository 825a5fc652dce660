// Bonus: the careful benchmark of 5_gating_unfused against 6_gating_fused.
//
// Two tables, each with one row per size: the talk's shape, tall and skinny, where the time is
// memory traffic and fusion wins several-fold; and the square shape, where the time is the matmuls'
// and fusion wins what little the other kernels took.
//
// Every version is verified and then measured alone, in a turn of its own, on random data and with
// the cache emptied before each launch (docs/measuring.md).
//
// N caps the square sizes, and S at N / 8; --talk S runs the talk's sizes up to S alone.
#define GATING_FUSED_NO_MAIN
#include "6_gating_fused.cu"

/// One line of the table.
static void run(demo::Session& session) {
    const demo::Gating gating(session);
    const gating_unfused::Unfused unfused(gating);
    const bool hopper = hopper::why_not(session.gpu).empty();
    // The best fused kernel for a shape, unless --kernel asks for another.
    auto portable = [&](demo::Contender kernel, const std::string& shape) {
        kernel.only = shape;
        if (hopper && session.options.kernel.empty())
            kernel.why_not = "fused_hopper is faster here";
        return kernel;
    };
    session.run(gating.shape.workload(), gating.check({}),
                {unfused.six_kernels(), unfused.library_best(),
                 portable(gating_fused::tiled(gating, session.gpu), "square"),
                 portable(gating_fused::streamed(gating, session.gpu), "talk"),
                 gating_fused::on_hopper(gating, session.gpu)});
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_benchmark_fused",
        .summary = "gating unfused against fused, over sizes up to N (S up to N / 8)",
        .types = {{"fp16", run}},
        .talk = true,
        .default_n = demo::kSimulator ? 256 : 16384,
        .sizes = {},
        .talk_sizes = {},
        .sweep = demo::Sweep::kAlways};
    return demo::main_of(program, argc, argv);
}
