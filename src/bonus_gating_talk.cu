// Bonus: the fastest fused gating of the talk's shape: x[4 S^2, 128], W[128, 64], in fp16.
//
// Tall and skinny: 85 operations per byte of x and out, far fewer than a GPU could do meanwhile. So
// the time is the traffic's, and the best that a kernel can do is to be a copy, of x in and out
// out, with its arithmetic hidden beneath. The weights are small, 16 KiB each, and stay with the
// block:
//
//        x: 4 S^2 rows of 128       a block, which stays for many tiles         out: 4 S^2 rows of
//        64
//        +-----------------+        +-------------------------------+           +--------+
//        |     tile 0      | -----> | W1, W2: loaded once           | --------> |        |
//        +-----------------+        | stages of x: one at work, the |           +--------+
//        |     tile 1      | -----> | others on their way           | --------> |        |
//        +-----------------+        +-------------------------------+           +--------+
//
// What limits the last rung: at large S the memory, it takes as long as a copy. At small S the
// first tile's way: loading the weights and x, both products, the gate, the store, with nothing
// beside it.
//
// ./bonus_gating_talk --talk 1024
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/gating.cuh"
#include "kernels/gating_talk.cuh"
#include "kernels/gating_unfused.cuh"

// --- Rung 1: fused_talk_mma, weights in registers (kernels/gating_talk.cuh) ---------------------
// Adds to lesson 6: blocks that stay, weights that are loaded once, as fragments of mma.sync, and
//          three tiles of x on their way by cp.async while one is multiplied.
// Costs:   242 registers a thread, 128 of them for the weights, so an SM has room for 8 warps.
// Limits:  latency. So few warps find something to issue in half of the cycles only.
// Source:  PTX ISA, "cp.async" and "Matrix Fragments for mma.m16n8k16".

// --- Rung 2: Hopper's copies and products -------------------------------------------------------
// Adds:    wgmma reads the weights from shared memory, TMA brings x and takes out away, and one
//          warp does nothing but start copies: stream() in kernels/gating_talk.cuh. The copies ask
//          the L2 cache to evict x last, as 7_gelu's loads do.
// Costs:   Hopper alone. Three warpgroups, each of which always gets the same stages.
// Limits:  tiles are dealt out beforehand, to each block as many. Some blocks are farther from the
//          memory than others, and the last one decides.
// Source:  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor copy".

__global__ void __launch_bounds__(talk_hopper::kThreads)
    fused_talk_tma(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                   const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                   const __grid_constant__ CUtensorMap out, int tiles) {
    talk_hopper::stream<false>(x, W1, b1, W2, b2, out, tiles);
}

// --- Rung 3: fused_talk_hopper, tiles drawn (kernels/gating_talk.cuh) ---------------------------
// Adds:    a counter in global memory, from which a block draws its next tile when it is ready.
// Costs:   an atomic operation per tile, drawn one tile ahead, so that nobody waits for it.
// Limits:  memory.
// Source:  dynamic scheduling by an atomic counter is known as "persistent threads" (Gupta, Stuart
//          and Owens, A Study of Persistent Threads Style GPU Programming, 2012).

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
        .summary = "fused gating of x[4*S*S, 128], W[128, 64] at a copy's speed",
        .types = {{"fp16", run}},
        .talk = true,
        .default_talk = demo::kSimulator ? 16 : 1024,
        .sizes = {}};
    return demo::main_of(program, argc, argv);
}
