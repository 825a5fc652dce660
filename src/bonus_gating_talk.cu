// Bonus: the fastest fused gating of the talk's shape: x[4 S^2, 128], W[128, 64], in fp16.
//
// 85 operations per byte of x and out: at the speed of a copy that is half of what the tensor cores
// reach on square matrices. So the best that a kernel can do is to be a copy, of x in and out out,
// with its arithmetic hidden beneath. The weights are small, 16 KiB each, and stay with the block:
//
//     x: 4 S^2 rows of 128       a block, which stays for many tiles     out: 4 S^2 rows of 64
//     +-----------------+        +-------------------------------+           +--------+
//     |     tile 0      | -----> | W1, W2: loaded once           | --------> |        |
//     +-----------------+        | stages of x: some at work,    |           +--------+
//     |     tile 1      | -----> | the others on their way       | --------> |        |
//     +-----------------+        +-------------------------------+           +--------+
//
// Read bonus_matmul_mma first, for mma.sync, and bonus_matmul_hopper, for TMA and wgmma.
//
// What limits the last rung: at large S the memory: it takes as long as a copy. At small S the
// first tile's way: loading the weights and x, both products, the gate, the store, with nothing
// beside it.
//
//     ./bonus_gating_talk --talk 1024
#include "demo.cuh"
#include "demo/copy.cuh"
#include "gating/gating.cuh"
#include "gating/gating_talk.cuh"
#include "gating/unfused.cuh"

// --- Rung 1: fused_talk_mma, weights in registers (gating/gating_talk.cuh) ----------------------
// Adds    to lesson 6's fused_wmma: a block loads the weights once and streams x past them, as
//         fused_talk_tile does. Their fragments stay in registers, by mma.sync; stores need no
//         patches; and three tiles of x are on their way.
// Costs   242 registers a thread, 128 of them for the weights, so only 8 warps fit.
// Limits  waiting: in half of the cycles a scheduler has no instruction ready from its two warps
//         (ncu, H200).
// Source  PTX ISA, "cp.async" and "Matrix Fragments for mma.m16n8k16".

// --- Rung 2: fused_talk_tma, Hopper's copies and products ---------------------------------------
// Adds    wgmma, which reads the weights from shared memory, and TMA, which brings x and takes out
//         away: stream() in gating/gating_talk.cuh. No warp waits for fragments; while one
//         warpgroup gates, others multiply. (tma_load_panels asks for evict_last, as 7_gelu does.)
// Costs   Hopper alone, and 176 KiB of shared memory.
// Limits  every block gets as many tiles, and the slowest block decides.
// Source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor copy".

__global__ void __launch_bounds__(talk_hopper::kThreads)
    fused_talk_tma(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                   const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                   const __grid_constant__ CUtensorMap out, int tiles) {
    talk_hopper::stream<false>(x, W1, b1, W2, b2, out, tiles);
}

// --- Rung 3: fused_talk_hopper, tiles drawn (gating/gating_talk.cuh) ----------------------------
// Adds    a work queue: a counter in global memory, from which a block draws its next tile. So all
//         blocks finish together, and what is read at one time lies close together in memory.
// Costs   an atomic operation per tile, drawn one tile ahead. Launches must not overlap.
// Limits  memory.
// Source  Tzeng, Patney, Owens: Task Management for Irregular-Parallel Workloads on the GPU, 2010.

static void run(demo::Session& session) {
    const demo::Gating g(session);
    const gating_unfused::Unfused unfused(g);
    const demo::Workload work = g.shape.workload();
    session.run(work, g.check({}),
                {unfused.six_kernels(), unfused.library_best(), talk_mma::contender(g, session.gpu),
                 talk_hopper::contender_of("fused_talk_tma", fused_talk_tma, g, session.gpu),
                 talk_hopper::contender(g, session.gpu), demo::copy_contender(session, work)});
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_gating_talk",
        .summary = "the fastest fused gating of the talk's tall and skinny shape",
        .types = {{"fp16", run}},
        .talk = true,
        .default_talk = demo::kSimulator ? 16 : 1024,
        .sizes = {}};
    return demo::main_of(program, argc, argv);
}
