// Bonus: attention whose scores and weights stay in registers: three rungs by mma.sync, for all
// GPUs from 8.0 on, and five by wgmma, for Hopper (compute capability 9.0).
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
// The ceiling: a score costs 4 D operations, 2 D in each product, and one e^x. A multiprocessor of
// Hopper does 4096 of these operations in a clock, and 16 e^x. In clocks, for 64 rows and 128 keys:
//
//                Q K^T    weights V    e^x       Only what overlaps comes for nothing. Maxima, sums
//     D = 128     512        512       512       and rounding are some 300 instructions more, one a
//     D = 64      256        256       512       clock for each scheduler.
//
//     ./bonus_attention 4096        ./bonus_attention 4096 --causal
#include "attention/attention.cuh"
#include "attention/attention_hopper.cuh"
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
            contender_of<D, 2, 1>("mma_wide", mma_wide<D>, a, gpu), contender<D>(a, gpu)};
}

}  // namespace attention_mma

namespace attention_hopper {

// Rungs 4 to 8 are made of what attention_hopper.cuh has: Memory is a block's shared memory, where
// Q stays and K and V pass through rings of two tiles; Rows is what a consumer, a warpgroup that
// multiplies, has in registers for 64 rows of Q. bonus_matmul_hopper explains wgmma, TMA and rings.
// Figures: H200, N = 4096, D = 128, where nothing else is said.

// --- Rung 4: wgmma -------------------------------------------------------------------------------
//
// Adds:    wgmma, which reads K and V from shared memory itself, for 64 rows at once. The weights
//          are its left operand, in registers still. TMA brings the tiles, started by one thread.
// Costs:   runs on Hopper only; a block fills the multiprocessor.
// Limits:  a consumer does one thing at a time; tensor cores busy 63%. While it computes weights it
//          multiplies nothing, and thread 0's wait for a free stage keeps all consumers in step.
// Source:  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
template <int D>
__global__ void __launch_bounds__(kWarpgroup* kConsumers<D>, 1)
    wgmma_fused(const __grid_constant__ Maps maps, Operands operands, const Task* tasks) {
    auto& memory = set_up_memory<D>();
    const Task task = tasks[blockIdx.x];  // which the host has dealt to this block
    Position<1> q_at;
    Position<kStages> at, loads_at;
    auto load = [&](int t) {
        if (threadIdx.x > 0 || t >= task.tiles) return;
        memory.K.load(loads_at, maps.K, t * kKeys, task.head);
        memory.V.load(loads_at, maps.V, t * kKeys, task.head);
        loads_at.advance();
    };
    if (threadIdx.x == 0) memory.Q.load(q_at, maps.Q, task.row, task.head);
    load(0);
    Rows<D> rows(operands, task);
    auto& Q = memory.Q.wait(q_at);
    for (int t = 0; t < task.tiles; ++t, at.advance()) {
        load(t + 1);
        rows.multiply_keys(Q, memory.K.wait(at));
        hopper::wgmma_wait_group<0>();
        memory.K.release(at);
        rows.mask(t);
        rows.weigh(operands.scale);
        rows.rescale_and_round();
        rows.multiply_values(memory.V.wait(at));
        hopper::wgmma_wait_group<0>();
        memory.V.release(at);
    }
    rows.store(memory.O[threadIdx.x / 32], maps.O, task.head);
    wait_until_read();
}

// --- Rung 5: a warpgroup that copies -------------------------------------------------------------
//
// Adds:    a producer. It waits for free stages of the rings, so that no consumer has to, and these
//          may drift apart.
// Costs:   a warpgroup of which one thread works. It gives most of its registers to the others.
// Limits:  a consumer does one thing at a time; tensor cores busy 64%. Later rungs need this one.
// Source:  bonus_matmul_hopper, rung 3.
template <int D>
__global__ void __launch_bounds__(kThreads<D>, 1)
    wgmma_producer(const __grid_constant__ Maps maps, Operands operands, const Task* tasks) {
    auto& memory = set_up_memory<D>();
    const Task task = tasks[blockIdx.x];
    Position<1> q_at;
    Position<kStages> at;
    if (matmul_hopper::warpgroup_index() == kConsumers<D>) {
        hopper::setmaxnreg_dec<kProducerRegisters<D>>();
        if (threadIdx.x % kWarpgroup == 0) produce(memory, maps, task, q_at, at);
        return;
    }
    hopper::setmaxnreg_inc<kConsumerRegisters<D>>();
    Rows<D> rows(operands, task);
    auto& Q = memory.Q.wait(q_at);
    for (int t = 0; t < task.tiles; ++t, at.advance()) {
        rows.multiply_keys(Q, memory.K.wait(at));
        hopper::wgmma_wait_group<0>();
        memory.K.release(at);
        rows.mask(t);
        rows.weigh(operands.scale);
        rows.rescale_and_round();
        rows.multiply_values(memory.V.wait(at));
        hopper::wgmma_wait_group<0>();
        memory.V.release(at);
    }
    rows.store(memory.O[threadIdx.x / 32], maps.O, task.head);
    wait_until_read();
}

// --- Rung 6: consumers in turn -------------------------------------------------------------------
//
// Adds:    turns. A consumer has the tensor cores to itself for its product with V and the next one
//          with K. Meanwhile the others compute weights. With two of them, in steps of 512 clocks
//          (K 1: scores of tile 1; w: their weights; V 1: these times V):
//
//              consumer 0   | V 0 | K 1 |  w  |     | V 1 | K 2 |  w  |     |
//              consumer 1   |  w  |     | V 0 | K 1 |  w  |     | V 1 | K 2 |
//
// Costs:   a barrier for each consumer, and waits for one's turn.
// Limits:  gaps within and between turns; tensor cores busy 71%. One product ends before the next
//          one is started. With D = 64 (53%), where e^x takes as long as both, turns gain nothing.
// Source:  Shah and others, "FlashAttention-3", 2024, arXiv 2407.08608, "pingpong scheduling".
template <int D>
__global__ void __launch_bounds__(kThreads<D>, 1)
    wgmma_turns(const __grid_constant__ Maps maps, Operands operands, const Task* tasks) {
    auto& memory = set_up_memory<D>();
    const Task task = tasks[blockIdx.x];
    const int warpgroup = matmul_hopper::warpgroup_index();
    Position<1> q_at;
    Position<kStages> at;
    if (warpgroup == kConsumers<D>) {
        hopper::setmaxnreg_dec<kProducerRegisters<D>>();
        if (threadIdx.x % kWarpgroup == 0) produce(memory, maps, task, q_at, at);
        return;
    }
    hopper::setmaxnreg_inc<kConsumerRegisters<D>>();
    Turn<D> turn(warpgroup);
    Rows<D> rows(operands, task);
    auto& Q = memory.Q.wait(q_at);
    turn.wait();
    for (int t = 0; t < task.tiles; ++t, at.advance()) {
        rows.multiply_keys(Q, memory.K.wait(at));
        hopper::wgmma_wait_group<0>();
        turn.give();
        memory.K.release(at);
        rows.mask(t);
        rows.weigh(operands.scale);
        rows.rescale_and_round();
        auto& V = memory.V.wait(at);
        turn.wait();  // for this product, and the next tile's scores
        rows.multiply_values(V);
        hopper::wgmma_wait_group<0>();
        memory.V.release(at);
    }
    turn.give();
    rows.store(memory.O[threadIdx.x / 32], maps.O, task.head);
    turn.end();
    wait_until_read();
}

// --- Rung 7: scores ahead ------------------------------------------------------------------------
//
// Adds:    scores ahead. In its turn a consumer only starts two products, the next tile's scores
//          and this tile's weights times V, and gives the turn away: the next consumer's two are
//          waiting when its own end. With its scores it computes weights beside the other product:
//
//              tensor cores   |0: K 1|0: V 0|1: K 1|1: V 0|0: K 2|0: V 1|1: K 2|1: V 1|
//              consumer 0     |      |  w   |      |      |      |  w   |      |      |
//              consumer 1     |      |      |      |  w   |      |      |      |  w   |
//
//          See attend_ahead().
// Costs:   32 registers a thread: next scores beside the weights that are being multiplied.
// Limits:  e^x, and both ends of a block; tensor cores busy 71%, with D = 64 56%. During a block's
//          first copies and its last product, and while O leaves, nothing else runs.
// Source:  the same, on overlap within a warpgroup.
template <int D>
__global__ void __launch_bounds__(kThreads<D>, 1)
    wgmma_ahead(const __grid_constant__ Maps maps, Operands operands, const Task* tasks) {
    auto& memory = set_up_memory<D>();
    const Task task = tasks[blockIdx.x];
    const int warpgroup = matmul_hopper::warpgroup_index();
    Position<1> q_at;
    if (warpgroup == kConsumers<D>) {
        hopper::setmaxnreg_dec<kProducerRegisters<D>>();
        Position<kStages> at;
        if (threadIdx.x % kWarpgroup == 0) produce(memory, maps, task, q_at, at);
    } else {
        hopper::setmaxnreg_inc<kConsumerRegisters<D>>();
        Position<kStages> k_at, v_at;
        Turn<D> turn(warpgroup);
        attend_ahead(memory, maps, operands, task, turn, q_at, k_at, v_at);
        turn.end();
        wait_until_read();
    }
}

// --- Rung 8, blocks that stay: wgmma_persistent, in attention_hopper.cuh -------------------------

template <int D>
std::vector<demo::Contender> rungs(const demo::Attention& a, const demo::Gpu& gpu) {
    constexpr int kConsumerThreads = kWarpgroup * kConsumers<D>;
    return {contender_of<D>("wgmma_fused", wgmma_fused<D>, a, gpu, false, kConsumerThreads),
            contender_of<D>("wgmma_producer", wgmma_producer<D>, a, gpu),
            contender_of<D>("wgmma_turns", wgmma_turns<D>, a, gpu),
            contender_of<D>("wgmma_ahead", wgmma_ahead<D>, a, gpu), contender<D>(a, gpu)};
}

}  // namespace attention_hopper

template <int D>
std::vector<demo::Contender> contenders(demo::Session& session, const demo::Attention& a) {
    std::vector<demo::Contender> all = attention_mma::rungs<D>(a, session.gpu);
    for (const demo::Contender& rung : attention_hopper::rungs<D>(a, session.gpu))
        all.push_back(rung);
    return all;
}

static void run(demo::Session& session) {
    const demo::Attention a(session);
    const demo::UnfusedAttention unfused(a, session.gpu);
    std::vector<demo::Contender> all =
        a.shape.D == 64 ? contenders<64>(session, a) : contenders<128>(session, a);
    all.insert(all.begin(), unfused.library_best());
    session.run(a.shape.workload(session), a.check(demo::Rounds::kWeights), all);
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_attention",
                                .summary = "attention with scores and weights in registers",
                                .types = {{"fp16", run}},
                                .n_means = "rows of Q and K of a head",
                                .default_n = demo::kSimulator ? 64 : 4096,
                                .options = demo::attention_options(),
                                .sizes = {512, 1024, 2048, 4096, 8192, 16384},
                                .variants = {"4096 --dim 64", "4096 --causal"}};
    return demo::main_of(program, argc, argv);
}
