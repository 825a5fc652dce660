// Bonus: attention whose scores and weights stay in registers, by mma.sync.
//
// Lesson 10's fused_basic passes scores and weights through shared memory, since WMMA does not say
// which thread holds what of a fragment. PTX does. What a thread has of two neighboring 16 x 8 sums
// of the first product, Q K^T, is what it must have of a 16 x 16 left operand of the second one:
//
//      sums: scores of 16 keys                    left operand: weights
//      keys 0-7     keys 8-15                     keys 0-7   keys 8-15
//     +---------+  +---------+                   +----------+----------+
//     | s0 s1   |  | s4 s5   |   e^(s - max),    | a0       | a2       |    a0 = (s0, s1)
//     +---------+  +---------+  ------------>    +----------+----------+    a1 = (s2, s3)
//     | s2 s3   |  | s6 s7   |   as fp16         | a1       | a3       |    a2 = (s4, s5)
//     +---------+  +---------+                   +----------+----------+    a3 = (s6, s7)
//
// So the four threads that share a row exchange one thing a tile, its maximum, by shuffles. Each
// adds up its part of the row's sum alone, until the end.
//
//     ./bonus_attention 4096        ./bonus_attention 4096 --causal
#include "attention/attention.cuh"
#include "attention/attention_mma.cuh"
#include "attention/unfused.cuh"
#include "demo.cuh"

namespace attention_mma {

// attend() in attention_mma.cuh is all of them, told how many rows a warp has, and how many stages.

// --- Rung 1: weights in registers ----------------------------------------------------------------
//
// Adds:    to lesson 10's fused_basic mma.sync, whose sums are the next product's operand. Tiles
//          are swizzled, as in bonus_matmul_mma, and Q is one of them.
// Costs:   the layout of ptx::mma_m16n8k16 must be known.
// Limits:  shared memory, busy 75% of the time (H200, N = 4096): each warp reads every tile of K
//          and V for 16 rows of Q alone.
// Source:  PTX ISA, "Matrix Fragments for mma.m16n8k16"; Dao, "FlashAttention-2", arXiv 2307.08691.
template <int D>
__global__ void __launch_bounds__(kThreads) mma_fused(Operands operands) {
    attend<D, 1, 1>(operands);
}

// --- Rung 2: 32 rows for a warp ------------------------------------------------------------------
//
// Adds:    each fragment of K and V that a warp loads serves 32 rows of Q: half as many reads.
// Costs:   255 registers a thread for D = 128, and half as many warps.
// Limits:  at each tile all of a block's warps wait for its copies. For D = 128 the other block on
//          the multiprocessor fills in. Shared memory: 50%.
// Source:  CUTLASS, "Efficient GEMM in CUDA", the section on warp-level GEMM.
template <int D>
__global__ void __launch_bounds__(kThreads, 2) mma_wide(Operands operands) {
    attend<D, 2, 1>(operands);
}

// --- Rung 3, tiles that are copied early: mma_staged, in attention_mma.cuh -----------------------

template <int D>
std::vector<demo::Contender> rungs(const demo::Attention& a, const demo::Gpu& gpu) {
    return {contender_of<D, 1, 1>("mma_fused", mma_fused<D>, a, gpu),
            contender_of<D, 2, 1>("mma_wide", mma_wide<D>, a, gpu),
            contender_of<D, 2, 2>("mma_staged", mma_staged<D>, a, gpu)};
}

static void run(demo::Session& session) {
    const demo::Attention a(session);
    const demo::UnfusedAttention unfused(a, session.gpu);
    std::vector<demo::Contender> all =
        a.shape.D == 64 ? rungs<64>(a, session.gpu) : rungs<128>(a, session.gpu);
    all.insert(all.begin(), unfused.library_best());
    session.run(a.shape.workload(session), a.check(demo::Rounds::kWeights), all);
}

}  // namespace attention_mma

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_attention",
                                .summary = "attention with scores and weights in registers",
                                .types = {{"fp16", attention_mma::run}},
                                .n_means = "rows of Q and K of a head",
                                .default_n = demo::kSimulator ? 64 : 4096,
                                .options = demo::attention_options(),
                                .sizes = {512, 1024, 2048, 4096, 8192, 16384},
                                .variants = {"4096 --dim 64", "4096 --causal"}};
    return demo::main_of(program, argc, argv);
}
