// Bonus: the fastest fused gating for GPUs other than Hopper, of any shape, in fp16.
//
// Lesson 6's fused_wmma is held back by WMMA, as lesson 3's wmma_tiled is. Both rungs here have the
// main loop of bonus_matmul_mma's last rung instead, unchanged. Its tile of B is 256 columns; here
// the left half of them is of W1, and the right half is the same columns of W2:
//
//                tile of weights: 64 x 256           accumulators of a warp, in registers
//               +----------+----------+
//               |    W1    |    W2    |             sums[i][j]        sums[i][j + 4]
//               +----------+----------+             = b1 + x W1       = b2 + x W2
//       +----+  +----------+----------+                     \          /
//       | x  |  |    v1    |    v2    |                sigmoid(v1) * v2 -> out
//       +----+  +----------+----------+
//
// What limits them: mma.sync, as in bonus_matmul_mma. Its main loop reaches two thirds of cuBLAS's
// on an H200, and on square matrices fusion saves less than that. bonus_gating_hopper has a main
// loop as fast as cuBLAS's. For tall and skinny matrices see bonus_gating_talk.
//
// ./bonus_gating_mma 4096    ./bonus_gating_mma --talk 1024
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/gating.cuh"
#include "kernels/gating_mma.cuh"
#include "kernels/gating_unfused.cuh"

// --- Rung 1: two weights in one tile ------------------------------------------------------------
// Adds to mma_ptx: half of the tile is of each of the weights, the sums begin as the biases, and
//          each thread gates its own sums: gate_tile() in kernels/gating_mma.cuh.
// Costs:   a block computes half as many columns of out, so it reads x twice as often.
// Limits:  the way out. mma leaves each thread pairs of neighbors, so it stores 4 bytes at a time,
//          in rows of 16 bytes: half of what memory moves at a time is wasted.
// Source:  PTX ISA, "Matrix Fragments for mma.m16n8k16".

template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    fused_pairs(const half* x, const half* W1, const half* b1, const half* W2, const half* b2,
                half* out, size_t M, size_t K, size_t H) {
    gating_mma::gate_tile<T, false>(x, W1, b1, W2, b2, out, M, K, H);
}

// --- Rung 2: fused_mma, 16 bytes at a time (kernels/gating_mma.cuh) -----------------------------
// Adds:    four neighboring threads exchange their pairs by shuffles, transpose_in_four(), so that
//          each stores 8 neighbors, 16 bytes, and the four of them a whole row of 64 bytes.
// Costs:   eight shuffles for every 8 elements; no shared memory and no barrier.
// Limits:  the main loop, mma.sync.
// Source:  PTX ISA, "shfl.sync"; the exchange is a butterfly, as in a transpose by powers of two.

static void run(demo::Session& session) {
    const demo::Gating g(session);
    const gating_unfused::Unfused unfused(g);
    const demo::Workload work = g.shape.workload();
    session.run(
        work, g.check({}),
        {unfused.six_kernels(), unfused.library_best(),
         gating_mma::contender_of(
             "fused_pairs", []<class T>(T) { return fused_pairs<T>; }, g, session.gpu),
         gating_mma::contender(g, session.gpu), demo::copy_contender(session, work, "talk")});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_gating_mma",
                                .summary = "fused gating by mma.sync, for every GPU and shape",
                                .types = {{"fp16", run}},
                                .talk = true};
    return demo::main_of(program, argc, argv);
}
