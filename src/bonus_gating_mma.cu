// Bonus: fused gating of square matrices for GPUs other than Hopper, in fp16: mma.sync.
//
// Lesson 6's fused_wmma is held back by WMMA, as lesson 3's wmma_tiled is. This kernel has the main
// loop of bonus_matmul_mma's last rung instead; only which columns a warp takes differs. A tile of
// B is 256 columns there; here its left half is of W1, its right half the same columns of W2:
//
//                tile of weights: 64 x 256           a warp's sums, in registers
//               +----------+----------+
//               |    W1    |    W2    |             sums[i][j]        sums[i][j + 4]
//               +----------+----------+             = b1 + x W1       = b2 + x W2
//       +----+  +----------+----------+                     \          /
//       | x  |  |    v1    |    v2    |                sigmoid(v1) * v2 -> out
//       +----+  +----------+----------+
//
// For square matrices bonus_gating_hopper has a faster main loop, for tall and skinny ones
// (--talk S: x[4 S^2, 128], W[128, 64]) bonus_gating_talk.
//
//     ./bonus_gating_mma 4096        ./bonus_gating_mma --talk 1024
#include "demo.cuh"
#include "demo/copy.cuh"
#include "gating/gating.cuh"
#include "gating/gating_mma.cuh"
#include "gating/unfused.cuh"

// --- The one rung: fused_mma (gating/gating_mma.cuh) ---------------------------------------------
// Adds    to mma_ptx the second weight, and a gate in registers. By shuffles (__shfl_xor_sync:
//         threads of a warp exchange registers) each thread gets 8 neighbors of a row to store.
// Costs   a block computes half as many columns of out: x is read as often as for two products.
// Limits  the main loop, mma.sync: on an H200 two thirds of the library's speed, and for square
//         matrices fusion saves less than the third that is lost.
// Source  PTX ISA, "Matrix Fragments for mma.m16n8k16" and "shfl.sync".

static void run(demo::Session& session) {
    const demo::Gating g(session);
    const gating_unfused::Unfused unfused(g);
    const demo::Workload work = g.shape.workload();
    session.run(
        work, g.check({}),
        {unfused.six_kernels(), unfused.library_best(), gating_mma::contender(g, session.gpu),
         demo::copy_contender(session, work, "talk")});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_gating_mma",
                                .summary = "fused gating, N x N, for GPUs but Hopper: mma.sync",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}
