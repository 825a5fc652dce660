// Bonus: the fastest fused gating of square matrices on Hopper (compute capability 9.0), in fp16.
//
// Fusion can only win here if its main loop is as good as the library's. So this one is that of
// rung 7 of bonus_matmul_hopper. A stage there holds 256 columns of B; here it holds 128 of W1 and
// the same 128 of W2. TMA places them side by side as it copies, so nothing has to be packed
// beforehand:
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
// the last stores. On other GPUs bonus_gating_mma is the fastest; for tall and skinny matrices see
// bonus_gating_talk.
//
//     ./bonus_gating_hopper 4096
#include "demo.cuh"
#include "gating/gating.cuh"
#include "gating/gating_hopper.cuh"
#include "gating/unfused.cuh"

using namespace gating_hopper;

// --- Rung 1: fused_panels, two weights in one stage ---------------------------------------------
// Adds    to rung 7 of bonus_matmul_hopper, with whole tiles: a stage with panels of both weights,
//         and gating after a tile's last step. See gate_tiles() in gating/gating_hopper.cuh.
// Costs   a block computes half as many columns of out: x is read as often as for two products. And
//         the gate takes as long as two to four steps of the main loop.
// Limits  while both warpgroups gate, at the same time, the tensor cores have nothing to do.
// Source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", for who holds which sum.

__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    fused_panels(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                 const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                 const __grid_constant__ CUtensorMap out, int M, int K, int H, int divided,
                 Exchange exchange) {
    gate_tiles<128, 256, 4, Gates::kTogether>(x, W1, b1, W2, b2, out, M, K, H, divided, exchange);
}

// --- Rung 2: fused_turns, the warpgroups take turns ---------------------------------------------
// Adds    before a tile's last two steps warpgroup 1 waits until warpgroup 0 has started its last.
//         So one gates while the other has the tensor cores.
// Costs   an mbarrier, and stages that wait for warpgroup 1: there must be at least four.
// Limits  at large N power: the GPU lowers its clock, and little of the gain is left. At small N
//         tiles that do not fill the last round.
// Source  related: "ping-pong" kernels in CUTLASS, and FlashAttention-3 (Shah et al., 2024).

__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(kThreads, 1)
    fused_turns(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap W1,
                const half* b1, const __grid_constant__ CUtensorMap W2, const half* b2,
                const __grid_constant__ CUtensorMap out, int M, int K, int H, int divided,
                Exchange exchange) {
    gate_tiles<128, 256, 4, Gates::kInTurn>(x, W1, b1, W2, b2, out, M, K, H, divided, exchange);
}

// --- Rung 3: fused_hopper, tiles for every N (gating/gating_hopper.cuh) -------------------------
// Adds    tiles in ten shapes, of which the model of matmul/hopper_tiles.cuh chooses. Where they
//         make one round, mostly, a block has one tile, and a third of the code, which a launch
//         must fetch. Where they make several, ping-pong: warpgroups have whole tiles in turn, and
//         while one gates, the other multiplies. Those of 128 x 256 may be divided among blocks;
//         at large N clusters of eight compute them, beside clusters of two. Few patches that
//         would make a last round of their own are computed as small tiles, by a third launch.
// Costs   an instance of the kernel for each shape. Smaller tiles read more per multiplication.
// Limits  at large N power, at small N the first copies and the last stores.
// Source  CUTLASS, "Efficient GEMM in CUDA", on ping-pong kernels; for the division, clusters of
//         eight and ping-pong rungs 7 to 9 of bonus_matmul_hopper.

static void run(demo::Session& session) {
    const demo::Gating g(session);
    const gating_unfused::Unfused unfused(g);
    auto whole = [&](auto kernel) {
        constexpr TileShape kTile{128, 256, kCluster, false};
        const int room = clusters_at_once<128, 256, 4>(kernel);
        return prepare<128, 256, 4>(kernel, g, divide(kTile, product(g), room).clusters);
    };
    session.run(g.shape.workload(), g.check({}),
                {unfused.six_kernels(), unfused.library_best(),
                 contender_of("fused_panels", g, session.gpu, [&] { return whole(fused_panels); }),
                 contender_of("fused_turns", g, session.gpu, [&] { return whole(fused_turns); }),
                 contender(g, session.gpu)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_gating_hopper",
                                .summary = "the fastest fused gating of square matrices on Hopper",
                                .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
