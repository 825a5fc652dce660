// Bonus: the fastest LoRA layer on Hopper (compute capability 9.0), in fp16:
// out = act(x W + s (x A) B + b), with thin matrices A[N, r] and B[r, N]; see lesson 11.
//
// To the product x W, 2 N^3 operations, LoRA adds 4 N^2 r: less than 1% at N = 4096 and r = 16. As
// library calls it costs 18% more time even so, for x, u = x A and out travel again and again.
// Here a thin product leaves u in memory, and then u and B are one more step of the main loop:
//
//             W, N / 64 steps of 64 rows       B, one step more: its r rows, and zeros
//             +-------------------+            +--------+
//             |                   |            |   B    |
//      x      +-------------------+     u      +--------+
//    +---+    +-------------------+   +---+    +--------+
//    |   |    |        x W        | + |   |    |  u B   |   + b  -> act -> out
//    +---+    +-------------------+   +---+    +--------+
//
// What limits it: as the product alone, power and the tensor cores; and before it the thin product,
// which reads x at the speed of memory. The smaller N is, the longer that takes beside the rest. So
// recomputed, the fastest, has no thin product: u is a by-product of x W.
//
//     ./bonus_lora 4096        ./bonus_lora 4096 --rank 64
#include "demo.cuh"
#include "lora/lora_recomputed.cuh"
#include "lora/unfused.cuh"

namespace lora_hopper {

// --- appended_hopper, appended_early ------------------------------------------------------------
// appended_hopper
// Adds: lesson 11's last tiles, of u and B, to the main loop of bonus_matmul_hopper's record;
// clusters and stores are as there, and tiles may have 192 columns, too. Costs: a second launch,
// which reads x once more; to N / 64 steps a quarter of one for each 16 of r. Limits: between the
// launches, while blocks end and begin, nothing is copied or computed. Source: Hu et al., "LoRA:
// low-rank adaptation of large language models", ICLR 2022; here W stays as it is, so that many
// adapters can share it.
//
// appended_early: the same kernels
// Adds: the second launch does not wait for the first one's end. Its blocks start as soon as
// multiprocessors are free, and wait for u only before their last step. Costs: an instruction in
// each kernel. Limits: project(), which memory limits, while the tensor cores idle.
// Source: CUDA Programming Guide, "Programmatic Dependent Launch"; PTX ISA, "griddepcontrol".
//
// recomputed: one launch
// Adds: a second product to the main loop: a step's 64 columns of x, which are in shared memory for
// x W, are multiplied by A, too. Blocks beside each other need the same rows of u. So two of them
// are a cluster: each copies half of the rows of x, for both, and adds up u over half of each
// step's columns; beside the last step of x W they exchange their sums. A thread's sums of u,
// scaled and rounded, are what wgmma takes as operand A from registers: u B is a last step or two,
// of 32 rows of B, u is never stored, and stays while a block goes on in the same rows. Costs: to
// four wgmma of 256 columns two of 32, or 64 above rank 32, each about a quarter as long as one of
// 256: it reads as much of x from shared memory. Above rank 32 also registers: a tile leaves before
// the next one's first step, if that has other rows. Limits: where rows change from tile to tile, u
// is computed by all pairs that need it. Source: PTX ISA, "wgmma.mma_async", layouts of registers,
// and "st.async".

template <class Activation>
void run_with(demo::Session& session) {
    const demo::Lora g(session);
    const demo::LoraByLibrary<Activation> library(g);
    auto rung = [&](const std::string& name, bool early) {
        return contender<Activation>(name, early, g, session.gpu);
    };
    session.run(
        g.shape.workload(), g.check<Activation>({}),
        {library.library_best(), rung("appended_hopper", false), rung("appended_early", true),
         recomputed_contender<Activation>(g, session.gpu), g.gemm_alone()});
}

static void run(demo::Session& session) {
    demo::with_activation(session, [&](auto act) { run_with<decltype(act)>(session); });
}

}  // namespace lora_hopper

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_lora",
        .summary = "the fastest layer with LoRA on Hopper: one more step of the product's loop",
        .types = {{"fp16", lora_hopper::run}},
        .any_n = true,
        .n_means = "W is N x N; x is N x N unless --rows is given",
        .default_n = demo::kSimulator ? 128 : 4096,
        .options = demo::lora_options(),
        .sizes = {1024, 2048, 4096, 8192}};
    return demo::main_of(program, argc, argv);
}
