// 5: Gating, out = sigmoid(x W1 + b1) * (x W2 + b2), as separate kernels (in gating/unfused.cuh).
//
// Each matmul is the library's, as fast as it gets. But a kernel ends by writing its result to
// global memory, and the next one begins by reading it again:
//
//      x  -> [      ]
//      W1 -> [ gemm ] -> t1 -> [add b1] -> t2 -> [sigmoid] -> t1 -> [          ]
//      x  -> [      ]                                               [ multiply ] -> out
//      W2 -> [ gemm ] -> t2 -> [add b2] -> out -------------------> [          ]
//
// t1, t2 and out are buffers of M x H numbers, each used more than once. Each of the 15 arrows is a
// trip of one matrix to or from global memory: 15 N^2 numbers if all are N x N. One kernel for all
// moves 4 N^2. The four kernels beside the gemms do almost no arithmetic: their time is traffic.
//
// six_kernels   the picture above: what a framework launches for this formula, line by line.
// library_best  the library's way. Two gemms that add the bias before they store, and a kernel for
//               the rest, move 3 + 3 + 3 = 9 N^2. One gemm over W1 and W2, placed side by side
//               before, reads x once: 5 + 3 = 8 N^2. The faster way runs (see --verbose).
//
// What limits it: no cuBLAS call multiplies two products, so both go to global memory and back.
// 6_gating_fused keeps them in registers.
//
//     ./5_gating_unfused 4096          N x N: the time is mostly the gemms'
//     ./5_gating_unfused --talk 1024   the talk's own shape: x[4 S^2, 128], W[128, 64]
// H200, S = 1024, ms: six_kernels 1.88, library_best 0.922 (docs/figures.md)
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
