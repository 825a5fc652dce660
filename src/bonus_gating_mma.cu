// Bonus: the fastest fused gating for GPUs other than Hopper, of any shape, in fp16.
//
// Lesson 6's fused_wmma is held back by WMMA, as lesson 3's wmma_tiled is. This kernel has the main
// loop of bonus_matmul_mma's last rung instead, unchanged. Its tile of B is 256 columns; here the
// left half of them is of W1, and the right half is the same columns of W2:
//
//                tile of weights: 64 x 256           a warp's sums, in registers
//               +----------+----------+
//               |    W1    |    W2    |             sums[i][j]        sums[i][j + 4]
//               +----------+----------+             = b1 + x W1       = b2 + x W2
//       +----+  +----------+----------+                     \          /
//       | x  |  |    v1    |    v2    |                sigmoid(v1) * v2 -> out
//       +----+  +----------+----------+
//
// What limits it: mma.sync, as in bonus_matmul_mma. On an H200 that main loop reaches two thirds of
// the library's, and for square matrices fusion saves less than that. bonus_gating_hopper has a
// main loop as fast as the library's. For tall and skinny matrices see bonus_gating_talk.
//
// ./bonus_gating_mma 4096    ./bonus_gating_mma --talk 1024
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/gating.cuh"
#include "kernels/gating_mma.cuh"
#include "kernels/gating_unfused.cuh"

// --- The one rung: fused_mma (kernels/gating_mma.cuh) --------------------------------------------
// Adds to mma_ptx: half of a tile of weights is of W1, half of W2; the sums begin as the biases;
//          each thread gates its own sums, and passes them to its three neighbors by shuffles
//          (transpose_in_four), so that each stores 8 neighbors of a row, 16 bytes.
// Costs:   a block computes half as many columns of out, so x is read twice as often.
// Limits:  the main loop, mma.sync.
// Source:  PTX ISA, "Matrix Fragments for mma.m16n8k16" and "shfl.sync".

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
                                .summary = "fused gating by mma.sync, for every GPU and shape",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}
