// appended_hopper and appended_early: the suite's fastest layer with LoRA on Hopper. They belong to
// bonus_lora, which explains them; lesson 11 runs the second one, too. And what bonus_lora's other
// kernel, recomputed, shares with them.
#pragma once

#include "demo/lora.cuh"
#include "kernels/matmul_hopper.cuh"

namespace lora_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are dealt out and stored

// --- What all share -----------------------------------------------------------------------------

/// Which tiles of out each cluster computes, each whole, in so many steps.
template <int kTileM, int kTileN, int kCluster>
__device__ Schedule<kTileN, kCluster, kTileM> whole_tiles(int M, int N, int steps) {
    return {.N = N,
            .divided = 0,
            .steps = steps,
            .rows = (M + kCluster * kTileM - 1) / (kCluster * kTileM)};
}

/// sums = act(sums + b), for a tile's columns from `col` on.
template <class Activation, int kSums>
__device__ void add_bias_and_activate(float (&sums)[kSums], const half* b, int col, int N) {
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {  // a thread has 2 columns of every 8, in 2 rows
        const int own = col + 2 * i + threadIdx.x % 4 * 2;
        const float2 bias = own < N ? __half22float2(*(const half2*)(&b[own])) : float2{};
        for (int s = i; s < i + 4; s += 2) {
            sums[s] = Activation::of(sums[s] + bias.x);
            sums[s + 1] = Activation::of(sums[s + 1] + bias.y);
        }
    }
}

/// How a kernel divides out: template arguments of the kernels.
template <int kTileM, int kTileN, int kStages, int kCluster>
struct Tiles {
    static constexpr int kThreads = threads(kTileM);

    /// As few clusters as need no more rounds: they stay in step, and share what the cache holds.
    template <class Kernel>
    static int blocks(Kernel kernel, const demo::LoraShape& shape, size_t bytes) {
        const int rows = int((shape.M + kCluster * kTileM - 1) / (kCluster * kTileM));
        const int tiles = rows * int((shape.N + kTileN - 1) / kTileN);
        const int room = demo::ClusterLaunch(1, kCluster, kThreads, bytes).at_once(kernel);
        const int rounds = (tiles + room - 1) / room;
        return kCluster * ((tiles + rounds - 1) / rounds);
    }
};

/// Calls prepare(Tiles()) with the tiles that matmul_hopper would choose.
template <class Prepare>
std::function<void()> with_tiles(const demo::LoraShape& shape, const demo::Gpu& gpu,
                                 Prepare prepare) {
    const size_t many = size_t(gpu.multiprocessors), enough = 3 * many / 4;
    auto count = [&](size_t rows, size_t columns) {
        return (shape.M + rows - 1) / rows * ((shape.N + columns - 1) / columns);
    };
    if (count(128, 256) > many) return prepare(Tiles<128, 256, 4, 2>());
    if (count(128, 256) >= enough) return prepare(Tiles<128, 256, 4, 1>());
    if (count(128, 128) >= enough) return prepare(Tiles<128, 128, 6, 1>());
    return prepare(Tiles<64, 128, 8, 1>());
}

/// Why the kernels cannot run here; empty if they can.
inline std::string why_not(const demo::LoraShape& shape, const demo::Gpu& gpu) {
    return shape.N % 8 ? "takes N that are multiples of 8" : hopper::why_not(gpu);
}

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

// --- out = act([x | u] [W ; B] + b) --------------------------------------------------------------

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
    const auto schedule = whole_tiles<kTileM, kTileN, kCluster>(M, N, steps);
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
            add_bias_and_activate<Activation>(sums, b, part.col, N);
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

template <class Activation, int kTileM, int kTileN, int kStages, int kCluster>
std::function<void()> prepare_main(Tiles<kTileM, kTileN, kStages, kCluster> tiles,
                                   const demo::Lora& g, const half* u, bool early) {
    const size_t M = g.shape.M, N = g.shape.N, r = g.shape.rank;
    const auto kernel = appended_hopper<Activation, kTileM, kTileN, kStages, kCluster>;
    const size_t bytes = sizeof(Memory<half, kTileN, kStages, kOutPanels, kTileM>);
    demo::allow_shared_bytes(kernel, bytes);
    const int blocks = tiles.blocks(kernel, g.shape, bytes);
    const CUtensorMap map_x = hopper::tensor_map(g.x.data(), M, N, kTileM),
                      map_W = hopper::tensor_map(g.W.data(), N, N, kBlockK),
                      map_u = hopper::tensor_map(u, M, r, kTileM),
                      map_B = hopper::tensor_map(g.B.data(), r, N, kBlockK),
                      map_out = hopper::tensor_map(g.out.data(), M, N, 16);
    return [=, b = g.b.data()] {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(blocks), config.blockDim = dim3(tiles.kThreads);
        config.dynamicSmemBytes = bytes;
        config.attrs = &attribute, config.numAttrs = early;
        DEMO_CHECK(cudaLaunchKernelEx(&config, kernel, map_x, map_W, map_u, map_B, b, map_out,
                                      int(M), int(N)));
    };
}

/// Both launches, with their u. `early`: the second does not wait for the end of the first.
template <class Activation>
demo::Contender contender(const std::string& name, bool early, const demo::Lora& g,
                          const demo::Gpu& gpu) {
    const auto u = std::make_shared<const demo::Buffer<half>>(g.shape.M, g.shape.rank);
    const auto setup = [=, &g, &gpu](demo::Contender& self) {
        const auto thin = prepare_project(g, u->data(), gpu);
        const auto main = with_tiles(g.shape, gpu, [&](auto tiles) {
            return prepare_main<Activation>(tiles, g, u->data(), early);
        });
        self.launch = [u, thin, main] { thin(), main(); };
    };
    return {.kernel = name,
            .setup = setup,
            .launches = 2,
            .temporary_bytes = u->bytes(),
            .moved_bytes = g.shape.workload().least_bytes + g.x.bytes() + 2 * u->bytes(),
            .why_not = why_not(g.shape, gpu)};
}

/// As Session::run() takes records: the faster one, where N fits.
template <class Activation>
std::vector<demo::Contender> records(const demo::Lora& g, const demo::Gpu& gpu) {
    if (g.shape.N % 8) return {};
    return {demo::record("bonus_lora", contender<Activation>("appended_early", true, g, gpu))};
}

}  // namespace lora_hopper
