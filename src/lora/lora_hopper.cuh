// appended_hopper and appended_early: the suite's fastest layer with LoRA on Hopper. They belong to
// bonus_lora, which explains them. And what its other kernel, recomputed, shares with them.
#pragma once

#include "lora/lora.cuh"
#include "matmul/matmul_hopper.cuh"

namespace lora_hopper {

using namespace matmul_hopper;  // the main loop, and how tiles are dealt out and stored

// --- What all share -----------------------------------------------------------------------------

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

/// How many tiles of `rows` x `columns` cover out.
inline size_t count_tiles(const demo::LoraShape& shape, size_t rows, size_t columns) {
    return (shape.M + rows - 1) / rows * ((shape.N + columns - 1) / columns);
}

/// A consumer's steps of x W: all of its tile's but the last, u B. As consume() of matmul_hopper,
/// but multiply(stage, t) starts step t. Returns the last stage, which is still being read.
template <int kTileN, int kStages, int kTileM, class Multiply, class Meanwhile, class Release>
__device__ int consume_x_W(Ring<half, kTileN, kStages, kTileM>& ring, Position<kStages>& at,
                           int steps, Multiply multiply, Meanwhile meanwhile, Release release) {
    int previous = 0;
    for (int t = 0; t < steps; ++t, at.advance()) {
        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        multiply(at.stage, t);
        meanwhile(t);
        hopper::wgmma_wait_group<1>();  // step t - 1 is done
        if (t > 0) release(previous);
        previous = at.stage;
    }
    return previous;
}

/// A block's tile of out, and as many stages as fit shared memory: template arguments of kernels.
template <int kTileM, int kTileN, int kStages>
struct Tiles {};

/// Calls prepare(Tiles()) with the fastest tiles, if clusters compute tile after tile; the larger
/// ones at ties. A cluster has `kBlocks` blocks, beside each other.
template <int kBlocks, class Prepare>
std::function<void()> with_tiles(const demo::LoraShape& shape, const demo::Gpu& gpu,
                                 Prepare prepare) {
    auto time = [&](size_t rows, size_t columns) {
        const size_t clusters = count_tiles(shape, rows, kBlocks * columns);
        const size_t at_once = size_t(std::max(1, gpu.multiprocessors / kBlocks));
        const size_t rounds = (clusters + at_once - 1) / at_once;
        // In a step, a row of x or a column of W costs about as much to copy as 32 sums. (By area
        // alone the smallest tiles would often win, though they copy twice as much as the largest.)
        return rounds * (rows * columns + 32 * (rows + columns));
    };
    const size_t large = time(128, 256), medium = time(128, 192), small = time(64, 128);
    if (large <= medium && large <= small) return prepare(Tiles<128, 256, 4>());
    if (medium <= small) return prepare(Tiles<128, 192, 4>());
    return prepare(Tiles<64, 128, 8>());
}

/// How many blocks to launch for so many tiles, one a cluster: the fewest clusters that need no
/// more rounds, or one more to make them even. They stay in step, and share what the cache holds.
template <class Kernel>
int count_blocks(Kernel kernel, size_t tiles, int cluster, int threads, size_t bytes) {
    const size_t room = size_t(demo::ClusterLaunch(1, cluster, threads, bytes).at_once(kernel));
    const size_t rounds = (tiles + room - 1) / room;
    const size_t clusters = (tiles + rounds - 1) / rounds;
    return cluster * int(std::min(room, clusters + clusters % 2));
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
    // Each block's sums of the rows that this block adds up; 4 against bank conflicts.
    float2 partials[kCluster][kTileM / kCluster][kThin / 2 + 4];
    hopper::Barrier complete;  // all blocks' partial sums are there
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
            hopper::st_async(&memory.partials[rank][i % kShare][4 * j + lane % 4],
                             {sums[s], sums[s + 1]}, &memory.complete, i / kShare);
        }
    }
    hopper::mbarrier_wait(&memory.complete, 0);
    for (int e = threadIdx.x; e < kShare * r / 2; e += kMultiply * kWarpgroup) {
        const int i = e / (r / 2), j = e % (r / 2), to = row + rank * kShare + i;
        float2 sum{};
        for (auto& partial : memory.partials) sum.x += partial[i][j].x, sum.y += partial[i][j].y;
        if (to < M)
            *(half2*)(&u[size_t(to) * r + 2 * j]) = __floats2half2_rn(scale * sum.x, scale * sum.y);
    }
}

// --- out = act([x | u] [W ; B] + b) --------------------------------------------------------------

/// out = act([x | u] [W ; B] + b): multiply_parts() of bonus_matmul_hopper with a last step that is
/// of u and B, as deep as r asks for, and with the bias and the activation before a tile leaves.
template <class Activation, int kTileM, int kTileN, int kStages, int kCluster>
__global__ void HOPPER_CLUSTER(kCluster) __launch_bounds__(threads(kTileM), 1)
    appended_hopper(const __grid_constant__ CUtensorMap x,    // [M, N] row-major
                    const __grid_constant__ CUtensorMap W,    // [N, N] row-major
                    const __grid_constant__ CUtensorMap u,    // [M, r] row-major, r <= 64
                    const __grid_constant__ CUtensorMap B,    // [r, N] row-major
                    const half* b,                            // [N]
                    const __grid_constant__ CUtensorMap out,  // [M, N] row-major
                    int M, int N, int r) {
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
        auto release = [&](int stage) {  // each warp tells all blocks that copy into this one
            if (lane < kCluster) hopper::mbarrier_arrive_cluster(&ring.empty[stage], lane);
        };
        schedule.for_each_part(rank, [&](const Part& part) {
            float sums[kTileN / 2];
            const int previous = consume_x_W(
                ring, at, depth,
                [&](int s, int t) {
                    multiply_stage<half, kTileN>(sums, ring.stages[s], warpgroup, t > 0);
                },
                [&](int t) {  // the tile before leaves beside this one's first steps
                    if (t < kPanels) outgoing.store(t, panels, out);
                },
                release);
            hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
            const auto& last = ring.stages[at.stage];
#pragma unroll 1
            for (int k = 0; k < r; k += 16) {
                hopper::wgmma_fence();
                hopper::wgmma_mma_async<half>(
                    sums, hopper::matrix_descriptor(&last.A[64 * warpgroup][k]),
                    hopper::matrix_descriptor(last.B[0][k], sizeof last.B[0]), true);
                hopper::wgmma_commit_group();
            }
            for (int p = depth; p < kPanels; ++p) outgoing.store(p, panels, out);
            hopper::wgmma_wait_group<1>();
            release(previous);
            hopper::wgmma_wait_group<0>();
            release(at.stage), at.advance();
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
    return [=, s = g.s] {
        kernel<<<blocks, threads(kTileM), bytes>>>(map_x, map_A, u, s, int(M), int(N), int(r));
    };
}

/// Tall tiles if there are enough, since each reads all of A. (Clusters of 2: an H200 has room for
/// only 30 of 4, since its parts' multiprocessors are no multiples of 4.)
inline std::function<void()> prepare_project(const demo::Lora& g, half* u, const demo::Gpu& gpu) {
    const size_t enough = 3 * size_t(gpu.multiprocessors) / 4, low = (g.shape.M + 63) / 64;
    if (low >= enough) return prepare_project<128, 7, 2>(g, u);
    if (2 * low >= enough) return prepare_project<64, 10, 2>(g, u);
    return prepare_project<64, 5, 4>(g, u);
}

template <class Activation, int kCluster, int kTileM, int kTileN, int kStages>
std::function<void()> prepare_main(Tiles<kTileM, kTileN, kStages>, const demo::Lora& g,
                                   const half* u, bool early) {
    const size_t M = g.shape.M, N = g.shape.N, r = g.shape.rank;
    const auto kernel = appended_hopper<Activation, kTileM, kTileN, kStages, kCluster>;
    const size_t bytes = sizeof(Memory<half, kTileN, kStages, kOutPanels, kTileM>);
    demo::allow_shared_bytes(kernel, bytes);
    const size_t tiles = count_tiles(g.shape, kCluster * kTileM, kTileN);
    const int blocks = count_blocks(kernel, tiles, kCluster, threads(kTileM), bytes);
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
        config.gridDim = dim3(blocks), config.blockDim = dim3(threads(kTileM));
        config.dynamicSmemBytes = bytes;
        config.attrs = &attribute, config.numAttrs = early;
        DEMO_CHECK(cudaLaunchKernelEx(&config, kernel, map_x, map_W, map_u, map_B, b, map_out,
                                      int(M), int(N), int(r)));
    };
}

/// Both launches, with their u. `early`: the second does not wait for the end of the first.
template <class Activation>
demo::Contender contender(const std::string& name, bool early, const demo::Lora& g,
                          const demo::Gpu& gpu) {
    const auto u = std::make_shared<const demo::Buffer<half>>(g.shape.M, g.shape.rank);
    const auto setup = [=, &g, &gpu](demo::Contender& self) {
        const auto thin = prepare_project(g, u->data(), gpu);
        const auto main = with_tiles<1>(g.shape, gpu, [&](auto tiles) {
            // A cluster takes longer to start, which pays only where blocks compute several tiles.
            if constexpr (std::is_same_v<decltype(tiles), Tiles<128, 256, 4>>)
                if (count_tiles(g.shape, 128, 256) > size_t(gpu.multiprocessors))
                    return prepare_main<Activation, 2>(tiles, g, u->data(), early);
            return prepare_main<Activation, 1>(tiles, g, u->data(), early);
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

}  // namespace lora_hopper
