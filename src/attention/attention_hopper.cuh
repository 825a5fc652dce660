// Belongs to bonus_attention, which explains it: what its rungs for Hopper share, and the last of
// them, wgmma_persistent, which 10_attention runs as well.
//
//   Ring, Memory            tiles in shared memory, and the barriers that say who may use them
//   Rows                    what a consumer has in registers: 64 rows' scores, weights and sums
//   Task, for_each_task     some rows of a head, for a block; deal() says which block has which
//   Turn                    consumers multiply one after the other
//   produce, attend_ahead   what the producer and a consumer do for a task
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.cuh"
#include "demo/contender.cuh"
#include "demo/launch.cuh"
#include "hopper.cuh"
#include "matmul/matmul_hopper.cuh"
#include "rows/max_sum.cuh"

namespace attention_hopper {

using matmul_hopper::kPanel, matmul_hopper::kWarpgroup, matmul_hopper::Position;
using softmax::kLog2E, softmax::kNothing;
using Operands = demo::AttentionOperands;

constexpr int kKeys = 128;  // rows of K and V in a tile
constexpr int kStages = 2;  // tiles of each in shared memory
/// Warpgroups of a block that multiply. With D = 64 a thread has fewer sums, and three fit.
template <int D>
constexpr int kConsumers = D == 64 ? 3 : 2;
template <int D>
constexpr int kBlockRows = 64 * kConsumers<D>;  // rows of Q and O that a block has at a time
template <int D>
constexpr int kThreads = (kConsumers<D> + 1) * kWarpgroup;  // the last warpgroup copies

/// Registers a thread. At launch all have as many: 3 x 168 >= 24 + 2 x 240, 4 x 128 = 32 + 3 x 160.
template <int D>
constexpr int kProducerRegisters = D == 64 ? 32 : 24;
template <int D>
constexpr int kConsumerRegisters = D == 64 ? 160 : 240;

/// A tile in shared memory, as TMA brings it and wgmma takes it: panels of 64 columns, rows of 128
/// bytes, swizzled.
template <int D, int kTileRows>
using Panels = half[D / kPanel][kTileRows][kPanel];

/// kCount tiles that are filled and used one after the other, each with barriers of its own.
template <int D, int kTileRows, int kCount>
struct alignas(1024) Ring {
    Panels<D, kTileRows> tiles[kCount];
    hopper::Barrier full[kCount];   // the tile's bytes have arrived
    hopper::Barrier empty[kCount];  // all consumers' warps are done with them

    __device__ void init() {
        for (int i = 0; i < kCount; ++i) {
            hopper::mbarrier_init(&full[i], 1);
            hopper::mbarrier_init(&empty[i], 4 * kConsumers<D>);
        }
    }
    /// One thread waits until the stage is free, and starts a copy to it. (Parity 1 of a new
    /// barrier reads as complete, so the first copies do not wait.) Past a head's last row come
    /// zeros.
    __device__ void load(Position<kCount> at, const CUtensorMap& map, int row, int head) {
        hopper::mbarrier_wait(&empty[at.stage], at.parity ^ 1);
        hopper::mbarrier_arrive_expect_tx(&full[at.stage], sizeof tiles[0]);
        hopper::tma_load_panels(tiles[at.stage], map, row, &full[at.stage], head);
    }
    __device__ const Panels<D, kTileRows>& wait(Position<kCount> at) {
        hopper::mbarrier_wait(&full[at.stage], at.parity);
        return tiles[at.stage];
    }
    /// Each consumer's warps call it when they no longer need the tile.
    __device__ void release(Position<kCount> at) {
        if (threadIdx.x % 32 == 0) hopper::mbarrier_arrive(&empty[at.stage]);
    }
};

/// A block's shared memory.
template <int D>
struct Memory {
    Ring<D, kBlockRows<D>, 1> Q;
    Ring<D, kKeys, kStages> K, V;
    Panels<D, 16> O[4 * kConsumers<D>];  // of each warp, on the way out
};

/// Initializes its barriers.
template <int D>
__device__ Memory<D>& set_up_memory() {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& memory = *reinterpret_cast<Memory<D>*>(shared);
    if (threadIdx.x == 0) {
        memory.Q.init(), memory.K.init(), memory.V.init();
        hopper::fence_mbarrier_init();
    }
    __syncthreads();
    return memory;
}

/// What a block computes without a break: kBlockRows of a head's rows, from `row` on, which attend
/// to the first `tiles` tiles of K and V.
struct Task {
    int head, row, tiles;
};

/// What TMA copies.
struct Maps {
    CUtensorMap Q, K, V, O;
};

/// Waits until TMA has read what this warp stores: until then that memory must not change or go.
__device__ inline void wait_until_read() {
    if (threadIdx.x % 32 == 0) hopper::cp_async_bulk_wait_group_read<0>();
}

/// What a consumer has in registers for its 64 rows of Q. A thread has parts of two rows, 8 apart:
/// see hopper::wgmma_mma_async.
template <int D>
struct Rows {
    float s[kKeys / 2];               // scores before they are scaled, then weights
    uint32_t rounded[kKeys / 16][4];  // weights as fp16: the left operand of the second product
    float o[D / 2] = {};              // the sum of weight times v
    float max[2] = {kNothing, kNothing}, sum[2] = {}, rescale[2];
    int row, key_count[2];  // the first of the two rows; how many keys each attends to

    __device__ Rows(const Operands& operands, const Task& task)
        : row(task.row + int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4) {
        const int N = int(operands.N);
        for (int r = 0; r < 2; ++r) key_count[r] = operands.causal ? min(row + 8 * r + 1, N) : N;
    }

    /// Starts s = Q K^T. Row i of K is column i of K^T, so both operands' rows run along D.
    __device__ void multiply_keys(const Panels<D, kBlockRows<D>>& Q, const Panels<D, kKeys>& K) {
        const int first = threadIdx.x / kWarpgroup * 64;  // of the block's rows
        hopper::wgmma_fence();
#pragma unroll
        for (int d = 0; d < D; d += 16)
            hopper::wgmma_mma_async_k_major<half>(
                s, hopper::matrix_descriptor(&Q[d / kPanel][first][d % kPanel]),
                hopper::matrix_descriptor(&K[d / kPanel][0][d % kPanel]), d > 0);
        hopper::wgmma_commit_group();
    }

    /// Starts o += weights V, with `rounded`.
    __device__ void multiply_values(const Panels<D, kKeys>& V) {
        hopper::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kKeys; k += 16)
            hopper::wgmma_mma_async<half>(
                o, rounded[k / 16], hopper::matrix_descriptor(&V[0][k][0], sizeof V[0]), true);
        hopper::wgmma_commit_group();
    }

    /// Scores of keys in tile t that a row does not attend to become -infinity. Most tiles have
    /// none.
    __device__ void mask(int t) {
        const int key = t * kKeys + threadIdx.x % 4 * 2;
        if (__all_sync(~0u, (t + 1) * kKeys <= key_count[0])) return;  // key_count[1] is no less
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i)
            if (key + i / 4 * 8 + i % 2 >= key_count[i / 2 % 2]) s[i] = kNothing;
    }

    /// Scores become weights e^(scale (s - max)), and the row's sum is brought to the new maximum;
    /// o, which a product may be using, is left to rescale_and_round(). Four lanes share a row.
    /// They exchange its maximum; its sum they keep in parts.
    __device__ void weigh(float scale) {
        const float log2_scale = scale * kLog2E;  // 2^x is one instruction
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float new_max = max[r];
#pragma unroll
            for (int i = 2 * r; i < kKeys / 2; i += 4)
                new_max = fmaxf(new_max, fmaxf(s[i], s[i + 1]));
            for (int lanes = 1; lanes <= 2; lanes *= 2)
                new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, lanes));
            rescale[r] = ptx::ex2_approx((max[r] - new_max) * log2_scale);
            max[r] = new_max, sum[r] *= rescale[r];
            // So a weight takes one fmaf. (Lesson 8 subtracts first, for the sake of numbers that
            // are as large as 1e10, and takes two instructions.)
            const float shift = new_max * log2_scale;
#pragma unroll
            for (int i = 2 * r; i < kKeys / 2; i += 4)
                for (int e = i; e < i + 2; ++e) {
                    s[e] = ptx::ex2_approx(fmaf(s[e], log2_scale, -shift));
                    sum[r] += s[e];
                }
        }
    }

    /// Brings o to the new maximum and rounds the weights, once no product uses o and `rounded`.
    __device__ void rescale_and_round() {
        // Without a new maximum o stays. (For D = 64 the test costs more than it saves.)
        if (D == 64 || __any_sync(~0u, rescale[0] != 1 || rescale[1] != 1)) {
#pragma unroll
            for (int i = 0; i < D / 2; ++i) o[i] *= rescale[i / 2 % 2];
        }
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i)
            rounded[i / 4][i % 4] = ptx::cvt_rn_x2<half>(s[2 * i], s[2 * i + 1]);
    }

    /// Starts to store o / sum, by way of shared memory; TMA leaves out rows past the head's last.
    __device__ void store(Panels<D, 16>& out, const CUtensorMap& O, int head) {
        const int lane = threadIdx.x % 32;
        float inverse[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            for (int lanes = 1; lanes <= 2; lanes *= 2)
                sum[r] += __shfl_xor_sync(~0u, sum[r], lanes);
            inverse[r] = 1 / sum[r];
        }
        wait_until_read();
        __syncwarp();  // `out` may be overwritten
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {  // 16 x 16 elements
            uint32_t pairs[4];
#pragma unroll
            for (int p = 0; p < 4; ++p)
                pairs[p] = ptx::cvt_rn_x2<half>(o[8 * i + 2 * p] * inverse[p % 2],
                                                o[8 * i + 2 * p + 1] * inverse[p % 2]);
            const int chunk = 2 * i % 8 + lane / 16;
            hopper::stmatrix_x4(&out[i / 4][lane % 16][(chunk ^ lane % 8) * 8], pairs[0], pairs[1],
                                pairs[2], pairs[3]);
        }
        hopper::fence_proxy_async();  // makes what this thread wrote visible to TMA
        __syncwarp();
        if (lane == 0) {  // whose `row` is the warp's first
            hopper::tma_store_panels(O, row, out, head);
            hopper::cp_async_bulk_commit_group();
        }
        __syncwarp();
    }
};

/// The producer, one thread: brings a task's rows of Q, and all tiles of K and V for them.
template <int D>
__device__ void produce(Memory<D>& memory, const Maps& maps, const Task& task, Position<1>& q_at,
                        Position<kStages>& at) {
    memory.Q.load(q_at, maps.Q, task.row, task.head);
    q_at.advance();
    for (int t = 0; t < task.tiles; ++t, at.advance()) {
        memory.K.load(at, maps.K, t * kKeys, task.head);
        memory.V.load(at, maps.V, t * kKeys, task.head);
    }
}

/// Consumers multiply in turn, 0, 1, ... and then 0 again: each waits for its turn, and later gives
/// the next one its own. In rung 6 it does so when its products are complete, from rung 7 on when
/// they are started: there turns set the order alone. Barrier 1 + i is consumer i's; its
/// predecessor arrives there, and goes on.
template <int D>
struct Turn {
    int consumer;

    __device__ explicit Turn(int consumer) : consumer(consumer) {
        if (consumer == kConsumers<D> - 1) give();  // the first turn of all
    }
    __device__ void wait() { hopper::barrier_sync(1 + consumer, 2 * kWarpgroup); }
    __device__ void give() {
        hopper::barrier_arrive(1 + (consumer + 1) % kConsumers<D>, 2 * kWarpgroup);
    }
    /// At the kernel's end: takes the last turn given, so that no barrier is left half full.
    __device__ void end() {
        if (consumer == 0) wait();
    }
};

/// A consumer's part of a task, from rung 7 on. Tile t's scores and the product of tile t - 1's
/// weights and V are started together. While the latter runs, weigh() takes max and sum to tile t's
/// maximum. o and `rounded` are both of the maximum before, so that product is right; after it one
/// factor brings o to the new one. V's position is one tile behind K's.
template <int D>
__device__ void attend_ahead(Memory<D>& memory, const Maps& maps, const Operands& operands,
                             const Task& task, Turn<D>& turn, Position<1>& q_at,
                             Position<kStages>& k_at, Position<kStages>& v_at) {
    Rows<D> rows(operands, task);
    auto& Q = memory.Q.wait(q_at);
    auto take_scores = [&](int t) {  // called when tile t's are complete
        memory.K.release(k_at), k_at.advance();
        if (t + 1 == task.tiles) memory.Q.release(q_at), q_at.advance();
        rows.mask(t);
        rows.weigh(operands.scale);
    };
    auto& first_K = memory.K.wait(k_at);
    turn.wait();
    rows.multiply_keys(Q, first_K);
    turn.give();
    hopper::wgmma_wait_group<0>();
    take_scores(0);
    rows.rescale_and_round();
    for (int t = 1; t < task.tiles; ++t) {
        auto& K = memory.K.wait(k_at);
        auto& V = memory.V.wait(v_at);
        turn.wait();
        rows.multiply_keys(Q, K);
        rows.multiply_values(V);
        turn.give();
        hopper::wgmma_wait_group<1>();  // the scores are complete; the other product still runs
        take_scores(t);
        hopper::wgmma_wait_group<0>();
        memory.V.release(v_at), v_at.advance();
        rows.rescale_and_round();
    }
    rows.multiply_values(memory.V.wait(v_at));  // out of turn: nobody's order depends on it
    hopper::wgmma_wait_group<0>();
    memory.V.release(v_at), v_at.advance();
    rows.store(memory.O[threadIdx.x / 32], maps.O, task.head);
}

/// Calls visit(task) for this block's tasks; loads the next one in the meantime.
template <class Visit>
__device__ void for_each_task(const Task* tasks, Visit visit) {
    for (Task task = tasks[blockIdx.x], next; task.tiles > 0; task = next) {
        tasks += gridDim.x;
        next = tasks[blockIdx.x];
        visit(task);
    }
}

// --- Rung 8 of bonus_attention: blocks that stay -------------------------------------------------
//
// Adds:    blocks that stay, one for each multiprocessor, and do task after task. The producer runs
//          ahead into the next one, while this one's last product runs and O leaves.
// Costs:   each block's list of tasks must be made beforehand: deal().
// Limits:  the card's power, and what of e^x still shows; tensor cores busy 73%, with D = 64 59%.
//          One launch takes 0.83 ms, each of many in a row 0.91. And in the last round half of the
//          multiprocessors idle: 2048 tasks are 15.5 for each of 132.
// Source:  bonus_matmul_hopper, rung 4.
template <int D>
__global__ void __launch_bounds__(kThreads<D>, 1)
    wgmma_persistent(const __grid_constant__ Maps maps, Operands operands, const Task* tasks) {
    auto& memory = set_up_memory<D>();
    const int warpgroup = matmul_hopper::warpgroup_index();
    Position<1> q_at;
    if (warpgroup == kConsumers<D>) {
        hopper::setmaxnreg_dec<kProducerRegisters<D>>();
        if (threadIdx.x % kWarpgroup > 0) return;
        Position<kStages> at;
        for_each_task(tasks, [&](Task task) { produce(memory, maps, task, q_at, at); });
    } else {
        hopper::setmaxnreg_inc<kConsumerRegisters<D>>();
        Position<kStages> k_at, v_at;
        Turn<D> turn(warpgroup);
        for_each_task(tasks, [&](Task task) {
            attend_ahead(memory, maps, operands, task, turn, q_at, k_at, v_at);
        });
        turn.end();
        wait_until_read();
    }
}

// --- Launches ------------------------------------------------------------------------------------

/// All tasks, dealt to blocks: each to the block that is free first. [rounds, blocks]; a task of no
/// tiles ends a block's column. With a mask the longest come first, so that no block ends with a
/// long one; within groups of heads, whose K and V fit the L2 cache together. (Graham, "Bounds on
/// Multiprocessing Timing Anomalies", 1969.)
template <int D>
std::vector<Task> deal(const demo::AttentionShape& shape, size_t blocks) {
    constexpr size_t kRoom = 16 << 20;  // bytes of L2; on an H200 twice as much is 1% slower
    const size_t N = shape.N, heads = shape.heads();
    const size_t together =
        shape.causal ? std::max<size_t>(1, kRoom / (2 * N * D * sizeof(half))) : 1;
    using Free = std::pair<size_t, size_t>;  // when, and which block
    std::priority_queue<Free, std::vector<Free>, std::greater<>> next_free;
    for (size_t block = 0; block < blocks; ++block) next_free.push({0, block});
    std::vector<size_t> rounds(blocks);
    std::vector<Task> dealt;
    auto deal_one = [&](size_t head, size_t row) {
        const size_t end = shape.causal ? std::min(row + kBlockRows<D>, N) : N;
        const size_t tiles = (end + kKeys - 1) / kKeys;
        const auto [time, block] = next_free.top();
        next_free.pop();
        next_free.push({time + tiles + 1, block});  // both ends of a task take as long as a tile
        const size_t round = rounds[block]++;
        dealt.resize(std::max(dealt.size(), (round + 1) * blocks));
        dealt[round * blocks + block] = {int(head), int(row), int(tiles)};
    };
    for (size_t group = 0; group < heads; group += together)
        for (size_t i = (N + kBlockRows<D> - 1) / kBlockRows<D>; i-- > 0;)
            for (size_t head = group; head < std::min(group + together, heads); ++head)
                deal_one(head, i * kBlockRows<D>);
    dealt.resize(dealt.size() + blocks);
    return dealt;
}

/// A rung as a contender. Its blocks stay, one for each multiprocessor, or have a task each.
template <int D>
demo::Contender contender_of(const std::string& name,
                             void (*kernel)(const Maps, Operands, const Task*),
                             const demo::Attention& a, const demo::Gpu& gpu, bool stay = false,
                             int threads = kThreads<D>) {
    auto setup = [=, &a, &gpu](demo::Contender& self) {
        const size_t N = a.shape.N, heads = a.shape.heads();
        auto map = [=](const half* matrices, uint32_t rows) {
            return hopper::tensor_map(matrices, N, D, rows, D / kPanel, heads);
        };
        const Maps maps{map(a.Q, kBlockRows<D>), map(a.K, kKeys), map(a.V, kKeys), map(a.O, 16)};
        const size_t all = (N + kBlockRows<D> - 1) / kBlockRows<D> * heads;
        const size_t blocks = stay ? std::min<size_t>(all, gpu.multiprocessors) : all;
        const std::vector<Task> dealt = deal<D>(a.shape, blocks);
        const auto tasks = std::make_shared<demo::Buffer<Task>>(dealt.size());
        DEMO_CHECK(cudaMemcpy(tasks->data(), dealt.data(), tasks->bytes(), cudaMemcpyHostToDevice));
        constexpr size_t kBytes = sizeof(Memory<D>);
        demo::allow_shared_bytes(kernel, kBytes);
        self.launch = [=, operands = Operands(a)] {
            kernel<<<unsigned(blocks), threads, kBytes>>>(maps, operands, tasks->data());
        };
    };
    return {.kernel = name,
            .setup = setup,
            .moved_bytes = 4 * a.Q.bytes(),
            .why_not = hopper::why_not(gpu)};
}

/// The last rung.
template <int D>
demo::Contender contender(const demo::Attention& a, const demo::Gpu& gpu) {
    return contender_of<D>("wgmma_persistent", wgmma_persistent<D>, a, gpu, true);
}

}  // namespace attention_hopper
