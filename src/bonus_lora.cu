// Bonus: the fastest LoRA layer on Hopper (compute capability 9.0), in fp16:
// out = act(x W + s (x A) B + b), with thin matrices A[N, r] and B[r, N]; see lesson 11.
//
// To the product x W, 2 N^3 operations, LoRA adds 4 N^2 r: less than 1% at N = 4096 and r = 16. As
// library calls it costs a third more time even so, for x, u = x A and out travel again and again.
// Here a thin product leaves u in memory, and then u and B are one more step of the main loop:
//
//             W, N steps of 64 rows            B, one step: its r rows, and zeros
//             +-------------------+            +--------+
//             |                   |            |   B    |
//      x      +-------------------+     u      +--------+
//    +---+    +-------------------+   +---+    +--------+
//    |   |    |        x W        | + |   |    |  u B   |   + b  -> act -> out
//    +---+    +-------------------+   +---+    +--------+
//
// What limits it: as the product alone, power and the tensor cores; and before it the thin product,
// which reads x at the speed of memory. The smaller N is, the longer that takes beside the rest.
//
//     ./bonus_lora 4096        ./bonus_lora 4096 --rank 64
#include "demo.cuh"
#include "demo/lora.cuh"
#include "kernels/lora.cuh"
#include "kernels/lora_recomputed.cuh"
#include "kernels/matmul_hopper.cuh"

namespace lora_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are dealt out and stored

// --- u = s x A ----------------------------------------------------------------------------------
// The same main loop, for a product of 64 columns: zeros beyond A's r. Its tiles would be too few
// to keep all multiprocessors copying, so the blocks of a cluster share the steps of one tile.

constexpr int kThin = 64;  // columns of a tile, at least r

template <int kTileM, int kStages, int kCluster>
struct ProjectMemory {
    Ring<half, kThin, kStages, kTileM> ring;
    // From each block, those of the rows that this one adds up; 4 against bank conflicts.
    float2 parts[kCluster][kTileM / kCluster][kThin / 2 + 4];
    hopper::Barrier complete;  // all blocks' parts are there
};

template <int kTileM, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(threads(kTileM))
    project(const __grid_constant__ CUtensorMap x,  // [M, N] row-major
            const __grid_constant__ CUtensorMap A,  // [N, r] row-major, r <= kThin
            half* u,                                // [M, r] row-major
            float scale, int M, int N, int r) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<ProjectMemory<kTileM, kStages, kCluster>*>(shared);
    auto& ring = memory.ring;
    constexpr int kMultiply = kTileM / 64, kShare = kTileM / kCluster;
    const int rank = hopper::cluster_ctarank(), row = blockIdx.x / kCluster * kTileM;
    const int warpgroup = warpgroup_index(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int steps = (N + kCluster * kBlockK - 1) / (kCluster * kBlockK);  // of each block
    hopper::griddepcontrol_launch_dependents();
    if (threadIdx.x == 0) {
        hopper::mbarrier_init(&memory.complete, 1);
        ring.init(4 * kMultiply);
        hopper::mbarrier_arrive_expect_tx(&memory.complete, kTileM * r * sizeof(float));
    }
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kMultiply) {
        if (threadIdx.x != kMultiply * kWarpgroup) return;
        produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
            const int k = (rank * steps + t) * kBlockK;  // beyond the matrices: zeros
            load_stage(stage, full, x, A, row, 0, k);
        });
        return;
    }
    float sums[kThin / 2];
    consume(
        sums, ring, at, steps, warpgroup, [](int) {},
        [&](int stage) {
            if (lane == 0) hopper::mbarrier_arrive(&ring.empty[stage]);
        });
    // Each row's sums go to the block that adds them up.
#pragma unroll
    for (int j = 0; j < kThin / 8; ++j) {  // a thread has 2 columns of every 8, in 2 rows
        if (j * 8 >= r) break;
        for (int lower = 0; lower < 2; ++lower) {
            const int i = warp * 16 + lower * 8 + lane / 4, s = 4 * j + 2 * lower;
            hopper::st_async(&memory.parts[rank][i % kShare][4 * j + lane % 4],
                             {sums[s], sums[s + 1]}, &memory.complete, i / kShare);
        }
    }
    hopper::mbarrier_wait(&memory.complete, 0);
    for (int e = threadIdx.x; e < kShare * r / 2; e += kMultiply * kWarpgroup) {
        const int i = e / (r / 2), j = e % (r / 2), to = row + rank * kShare + i;
        float2 sum{};
        for (auto& part : memory.parts) sum.x += part[i][j].x, sum.y += part[i][j].y;
        if (to < M)
            *(half2*)(&u[size_t(to) * r + 2 * j]) = __floats2half2_rn(scale * sum.x, scale * sum.y);
    }
}

// --- appended_hopper, appended_early ------------------------------------------------------------
// appended_hopper
// Adds: lesson 11's step of u and B, in the main loop of bonus_matmul_hopper's record; its tiles,
// clusters and stores are as there. Costs: a second launch, which reads x once more; one step in
// N / 64. Limits: between the launches, while blocks end and begin, nothing is copied or computed.
// Source: Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022; here W stays
// as it is, so that many adapters can share it.
//
// appended_early: the same kernels
// Adds: the second launch does not wait for the first one's end. Its blocks start as soon as
// multiprocessors are free, and wait for u only before their last step. Costs: an instruction in
// each kernel. Limits: project(), which memory limits, while the tensor cores idle.
// Source: CUDA Programming Guide, "Programmatic Dependent Launch"; PTX ISA, "griddepcontrol".

/// out = act([x | u] [W ; B] + b): multiply_parts() of bonus_matmul_hopper with a last step that is
/// of u and B, and with the bias and the activation before a tile leaves.
template <class Activation, int kTileM, int kTileN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(threads(kTileM), 1)
    appended_hopper(const __grid_constant__ CUtensorMap x,    // [M, N] row-major
                    const __grid_constant__ CUtensorMap W,    // [N, N] row-major
                    const __grid_constant__ CUtensorMap u,    // [M, r] row-major, r <= 64
                    const __grid_constant__ CUtensorMap B,    // [r, N] row-major
                    const half* b,                            // [N]
                    const __grid_constant__ CUtensorMap out,  // [M, N] row-major
                    int M, int N) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<half, kTileN, kStages, kOutPanels, kTileM>*>(shared);
    auto& ring = memory.ring;
    constexpr int kMultiply = kTileM / 64, kPanels = kTileN / kPanel;
    const int rank = hopper::cluster_ctarank();
    const int warpgroup = warpgroup_index(), lane = threadIdx.x % 32;
    const int depth = (N + kBlockK - 1) / kBlockK, steps = depth + 1;
    const Schedule<kTileN, kCluster, kTileM> schedule{
        .N = N,
        .divided = 0,
        .steps = steps,
        .rows = (M + kCluster * kTileM - 1) / (kCluster * kTileM)};
    if (threadIdx.x == 0) ring.init(4 * kMultiply * kCluster);
    hopper::barrier_cluster_sync();  // all blocks' barriers are ready

    Position<kStages> at;
    if (warpgroup == kMultiply) {
        if constexpr (kMultiply > 1) hopper::setmaxnreg_dec<40>();
        if (threadIdx.x != kMultiply * kWarpgroup) return;
        schedule.for_each_part(rank, [&](const Part& part) {
            produce(ring, at, steps, [&](auto& stage, auto* full, int t) {
                const bool update = t == depth;
                if (update) hopper::griddepcontrol_wait();  // until u is there
                const int k = update ? 0 : (part.backward ? depth - 1 - t : t) * kBlockK;
                if constexpr (kCluster == 1)
                    load_stage(stage, full, update ? u : x, update ? B : W, part.row, part.col, k);
                else
                    load_stage_multicast<kCluster>(stage, full, update ? u : x, update ? B : W,
                                                   rank, part.row, part.col, k);
            });
        });
        if (kCluster > 1) wait_until_free(ring, at);
    } else {
        if constexpr (kMultiply > 1) hopper::setmaxnreg_inc<232>();
        auto& panels = memory.out[threadIdx.x / 32];
        Outgoing<half, kTileN> outgoing;
        schedule.for_each_part(rank, [&](const Part& part) {
            float sums[kTileN / 2];
            consume(
                sums, ring, at, steps, warpgroup,
                [&](int t) {  // the tile before leaves beside this one's first steps
                    if (t < kPanels) outgoing.store(t, panels, out);
                },
                [&](int stage) {  // each warp tells all blocks that copy into this one
                    if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
                });
            for (int p = steps; p < kPanels; ++p) outgoing.store(p, panels, out);
#pragma unroll
            for (int j = 0; j < kTileN / 8; ++j) {  // a thread has 2 columns of every 8, in 2 rows
                const int col = part.col + j * 8 + lane % 4 * 2;
                const float2 bias = col < N ? __half22float2(*(const half2*)(&b[col])) : float2{};
                for (int i = 4 * j; i < 4 * j + 4; i += 2) {
                    sums[i] = Activation::of(sums[i] + bias.x);
                    sums[i + 1] = Activation::of(sums[i + 1] + bias.y);
                }
            }
            outgoing.take(sums, part.row + threadIdx.x / 32 * 16, part.col);
        });
        outgoing.store_all(panels, out);
    }
}

// --- Launching ----------------------------------------------------------------------------------

template <int kTileM, int kStages, int kCluster>
std::function<void()> prepare_project(const demo::Lora& g, half* u) {
    const size_t M = g.shape.M, N = g.shape.N, r = g.shape.rank;
    const auto kernel = project<kTileM, kStages, kCluster>;
    const size_t bytes = sizeof(ProjectMemory<kTileM, kStages, kCluster>);
    demo::allow_shared_bytes(kernel, bytes);
    const size_t blocks = (M + kTileM - 1) / kTileM * kCluster;
    const CUtensorMap map_x = hopper::tensor_map(g.x.data(), M, N, kTileM),
                      map_A = hopper::tensor_map(g.A.data(), N, r, kBlockK);
    return [=] {
        kernel<<<blocks, threads(kTileM), bytes>>>(map_x, map_A, u, demo::Lora::kScale, int(M),
                                                   int(N), int(r));
    };
}

/// Tall tiles if there are enough, since each reads all of A. (Clusters of 2: of 4 such blocks an
/// H200 has room for only 30, since their number on a part of the chip is not a multiple of 4.)
inline std::function<void()> prepare_project(const demo::Lora& g, half* u, const demo::Gpu& gpu) {
    const size_t enough = 3 * size_t(gpu.multiprocessors) / 4, low = (g.shape.M + 63) / 64;
    if (low >= enough) return prepare_project<128, 7, 2>(g, u);
    if (2 * low >= enough) return prepare_project<64, 10, 2>(g, u);
    return prepare_project<64, 5, 4>(g, u);
}

template <bool kEarly, class Activation, int kTileM, int kTileN, int kStages, int kCluster>
std::function<void()> prepare_main(const demo::Lora& g, const half* u) {
    const size_t M = g.shape.M, N = g.shape.N, r = g.shape.rank;
    const auto kernel = appended_hopper<Activation, kTileM, kTileN, kStages, kCluster>;
    const size_t bytes = sizeof(Memory<half, kTileN, kStages, kOutPanels, kTileM>);
    demo::allow_shared_bytes(kernel, bytes);
    // As few clusters as need no more rounds: they stay in step, and share what the cache holds.
    const int tiles =
        int((M + kCluster * kTileM - 1) / (kCluster * kTileM)) * int((N + kTileN - 1) / kTileN);
    const int room = demo::ClusterLaunch(1, kCluster, threads(kTileM), bytes).at_once(kernel);
    const int rounds = (tiles + room - 1) / room, clusters = (tiles + rounds - 1) / rounds;
    const CUtensorMap map_x = hopper::tensor_map(g.x.data(), M, N, kTileM),
                      map_W = hopper::tensor_map(g.W.data(), N, N, kBlockK),
                      map_u = hopper::tensor_map(u, M, r, kTileM),
                      map_B = hopper::tensor_map(g.B.data(), r, N, kBlockK),
                      map_out = hopper::tensor_map(g.out.data(), M, N, 16);
    return [=, b = g.b.data()] {
        cudaLaunchAttribute early{};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(kCluster * clusters), config.blockDim = dim3(threads(kTileM));
        config.dynamicSmemBytes = bytes;
        config.attrs = &early, config.numAttrs = kEarly;
        DEMO_CHECK(cudaLaunchKernelEx(&config, kernel, map_x, map_W, map_u, map_B, b, map_out,
                                      int(M), int(N)));
    };
}

/// The main loop with the tiles that matmul_hopper would choose.
template <bool kEarly, class Activation>
std::function<void()> prepare(const demo::Lora& g, const half* u, const demo::Gpu& gpu) {
    const size_t M = g.shape.M, N = g.shape.N, many = size_t(gpu.multiprocessors);
    auto count = [&](size_t rows, size_t columns) {
        return (M + rows - 1) / rows * ((N + columns - 1) / columns);
    };
    const size_t wide = count(128, 256), narrow = count(128, 128), enough = 3 * many / 4;
    if (wide > many) return prepare_main<kEarly, Activation, 128, 256, 4, 2>(g, u);
    if (wide >= enough) return prepare_main<kEarly, Activation, 128, 256, 4, 1>(g, u);
    if (narrow >= enough) return prepare_main<kEarly, Activation, 128, 128, 6, 1>(g, u);
    return prepare_main<kEarly, Activation, 64, 128, 8, 1>(g, u);
}

template <class Activation>
void run_with(demo::Session& session) {
    const demo::Lora g(session);
    const lora::Unfused<Activation> unfused(g);
    const demo::Workload work = g.shape.workload();
    const std::string why_not =
        g.shape.N % 8 ? "takes N that are multiples of 8" : hopper::why_not(session.gpu);
    auto rung = [&](const std::string& name, auto prepare_main) {
        const auto setup = [&, prepare_main](demo::Contender& self) {
            const auto thin = prepare_project(g, unfused.u(), session.gpu);
            const auto main = prepare_main();
            self.launch = [=] { thin(), main(); };
        };
        return demo::Contender{
            .kernel = name,
            .setup = setup,
            .launches = 2,
            .temporary_bytes = unfused.u_bytes(),
            .moved_bytes = work.least_bytes + g.x.bytes() + 2 * unfused.u_bytes(),
            .why_not = why_not};
    };
    const std::string too_wide =
        g.shape.rank > size_t(kRank) ? "takes ranks up to " + std::to_string(kRank) : "";
    const demo::Contender in_one_launch{
        .kernel = "recomputed",
        .setup = [&](auto& self) { self.launch = prepare_recomputed<Activation>(g, session.gpu); },
        .moved_bytes = work.least_bytes,
        .why_not = why_not.empty() ? too_wide : why_not};
    session.run(work, g.check<Activation>({}),
                {unfused.library_best(),
                 rung("appended_hopper",
                      [&] { return prepare<false, Activation>(g, unfused.u(), session.gpu); }),
                 rung("appended_early",
                      [&] { return prepare<true, Activation>(g, unfused.u(), session.gpu); }),
                 in_one_launch, g.gemm_alone()});
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
