// Bonus: the careful benchmark of gating, unfused against fused.
//
// Two tables, each with one row per size: the talk's shape, tall and skinny, where the time is
// memory traffic and fusion wins several-fold; and the square shape, where the time is the matmuls'
// and fusion wins what little the other kernels took.
//
// Unfused are 5_gating_unfused's six_kernels and library_best, fused is the suite's fastest kernel
// for the shape and the GPU at hand: bonus_gating_mma, bonus_gating_hopper and bonus_gating_talk
// explain these. Each is verified and then measured alone, in a turn of its own, on random data and
// with the cache emptied before each sample (docs/measuring.md).
//
// ./bonus_benchmark_fused 4096         N up to 4096, and S up to N / 8 = 512
// ./bonus_benchmark_fused --talk 1024  the talk's shape alone, S up to 1024
#include "demo.cuh"
#include "gating/gating.cuh"
#include "gating/gating_record.cuh"
#include "gating/unfused.cuh"

/// One line of the table.
static void run(demo::Session& session) {
    const demo::Gating gating(session);
    const gating_unfused::Unfused unfused(gating);
    session.run(gating.shape.workload(), gating.check({}),
                {unfused.six_kernels(), unfused.library_best()},
                gating_records(gating, session.gpu));
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_benchmark_fused",
        .summary = "gating as library calls against the fastest fused kernels, over all sizes",
        .types = {{"fp16", run}},
        .talk = true,
        .default_n = demo::kSimulator ? 256 : 16384,
        .sizes = {},
        .talk_sizes = {},
        .sweep = demo::Sweep::kAlways};
    return demo::main_of(program, argc, argv);
}
