// 5: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), as separate kernels (in gating/unfused.cuh).
//
// Each matmul is the library's, as fast as it gets. But a kernel ends by writing its result to
// global memory, and the next one begins by reading it again:
//
//      x, W1 -> [gemm] -> t1 -> [add b1] -> t2 -> [sigmoid] -> t1 -----------+
//                                                                            v
//      x, W2 -> [gemm] -> t2 -> [add b2] -> out -------------------> [multiply] -> out
//
// t1, t2 and out are buffers of M x H numbers, and serve again once these are used up. Every arrow
// is a trip through global memory. So these kernels move 3 + 2 + 2 and 3 + 2 + 3 matrices, 15 N^2
// numbers if all are N x N, and one kernel moves 4 N^2. The four that are no gemm do almost no
// arithmetic: their time is the traffic.
//
// six_kernels   the picture above: what a framework launches for this formula, line by line.
// library_best  what the library can do about it. Its gemm can add the bias before it stores, and
//               one gemm over [W1 | W2], placed side by side beforehand, reads x once instead of
//               twice. Two gemms or one: the faster here is kept (--verbose says which).
//
// What limits it: sigmoid and product need a kernel of their own, since no cuBLAS call multiplies
// two products. So both go to global memory and back. 6_gating_fused keeps them in registers.
// Figures: docs/figures.md.
//
//     ./5_gating_unfused 4096          N x N: the time is mostly the gemms'
//     ./5_gating_unfused --talk 1024   the talk's own shape: x[4 S^2, 128], W[128, 64]
#include "demo.cuh"
#include "gating/gating.cuh"
#include "gating/unfused.cuh"

static void run(demo::Session& session) {
    const demo::Gating gating(session);  // x, W1, W2, b1, b2, out, and the reference
    const gating_unfused::Unfused unfused(gating);
    session.run(gating.shape.workload(), {}, {unfused.six_kernels(), unfused.library_best()});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "5_gating_unfused",
                                .summary = "sigmoid(x W1 + b1) * (x W2 + b2) as library calls",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}
