// Bonus: the fastest fused gating of square matrices on Hopper (compute capability 9.0), in fp16.
//
// Fusion can only win here if its main loop is as good as the library's. So this is the main loop
// of bonus_matmul_hopper's seventh rung, backward. Where a stage there holds 256 columns of B, here
// it holds 128 of W1 and the same 128 of W2: TMA places them side by side as it copies, so nothing
// has to be packed beforehand:
//
//                    stage.B: 4 panels of 64 columns
//                 +------+------+------+------+
//                 |  W1  |  W1  |  W2  |  W2  |       a thread's 128 sums:
//                 +------+------+------+------+         sums[0 .. 63]    of x W1
//      +-------+  +------+------+------+------+         sums[64 .. 127]  of x W2, same elements
//      |   x   |  |    x W1     |    x W2     |
//      +-------+  +------+------+------+------+       -> sigmoid(x W1 + b1) * (x W2 + b2) -> out
//
// What limits it: at large N the power that the tensor cores take, at small N the first copies and
// the last stores. Elsewhere bonus_gating_mma is the fastest; for tall and skinny matrices see
// bonus_gating_talk.
//
//     ./bonus_gating_hopper 4096
#include "demo.cuh"
#include "demo/gating.cuh"
#include "kernels/gating_hopper.cuh"
#include "kernels/gating_unfused.cuh"

using namespace gating_hopper;

// --- Rung 1: fused_panels, two weights in one stage ---------------------------------------------
// Adds    to bonus_matmul_hopper's backward panels of both weights in a stage, and the gate between
//         a tile's last step and its way out: gate_tiles() in kernels/gating_hopper.cuh.
// Costs   a block computes half as many columns of out: x is read as often as for two products. And
//         the gate takes as long as two to four steps of the main loop.
// Limits  while both warpgroups gate, at the same time, the tensor cores have nothing to do.
// Source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", for who holds which sum.

template <int kTileN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    fused_panels(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                 const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int N) {
    gate_tiles<kTileN, kStages, kCluster, false>(x, W1, b1, W2, b2, out, N);
}

// --- Rung 2: fused_hopper, the warpgroups take turns (kernels/gating_hopper.cuh) ----------------
// Adds    before a tile's last two steps warpgroup 1 waits until warpgroup 0 has started its last.
//         So one gates while the other has the tensor cores. And small matrices get tiles of half
//         the width, one for each multiprocessor.
// Costs   one more mbarrier, and stages that wait for warpgroup 1: there must be at least four.
// Limits  power, which at large N takes back what the turns gain, at N = 16384 even more; at small
//         N, where the narrow tiles pay most, the first copies and the last stores.
// Source  related: "ping-pong" kernels in CUTLASS, and FlashAttention-3 (Shah et al., 2024).

static void run(demo::Session& session) {
    const demo::Gating g(session);
    const gating_unfused::Unfused unfused(g);
    session.run(g.shape.workload(), g.check({}),
                {unfused.six_kernels(), unfused.library_best(),
                 contender_of("fused_panels", g, session.gpu,
                              [&] { return prepare<256, 4, 2>(fused_panels<256, 4, 2>, g); }),
                 contender(g, session.gpu)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_gating_hopper",
                                .summary = "the fastest fused gating of square matrices on Hopper",
                                .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
