// One small kernel for Hopper with a fault planted in it, whose name is the argument: what the
// simulator has to catch. `none` is the right one. (C = A B in steps of 64 along K: a ring of two
// stages that TMA fills, wgmma, and a store by TMA. And blocks of a cluster that signal each
// other.)
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ptx_hopper.cuh"

using namespace hopper;

enum Fault {
    kNone,
    kNoFullWait,
    kNoProductWait,
    kNoStoreWait,
    kEarlyFree,
    kConsumerParity,
    kProducerParity,
    kTooFewBytes,
    kTooManyBytes,
    kNoFence,
    kStride,
    kPanelStride,
    kSwizzle,
    kStoreSwizzle,
    kNoProductCommit,
    kNoStoreCommit,
    kNobodyFrees,
    kNoCopy,
    kOddColumn,
    kBarrierOfOne,
    kFragmentChanges,
};

constexpr int kN = 128, kSteps = 4, kStages = 2, kK = 64 * kSteps, kWarpgroup = 128;

struct alignas(1024) Memory {
    struct Stage {
        half A[64][64], B[2][64][64];
    } stages[kStages];
    half C[2][64][64];
    Barrier full[kStages], empty[kStages];
};

/// Section "Matrix Descriptor Format".
__device__ uint64_t descriptor(const void* tile, uint64_t panel_bytes, uint64_t eight_rows,
                               uint64_t swizzle) {
    return shared_address(tile) >> 4 | panel_bytes >> 4 << 16 | eight_rows >> 4 << 32 |
           swizzle << 62;
}

template <Fault kFault>
__device__ void produce(Memory& memory, const CUtensorMap& A, const CUtensorMap& B) {
    for (int t = 0; t < kSteps; ++t) {
        const int s = t % kStages, round = t / kStages;
        auto& stage = memory.stages[s];
        Barrier* const full = &memory.full[s];
        const int parity = kFault == kProducerParity ? round % 2 : round % 2 ^ 1;
        mbarrier_wait(&memory.empty[s], parity);  // for the producer
        const int wrong = kFault == kTooFewBytes ? -8192 : kFault == kTooManyBytes ? 8192 : 0;
        mbarrier_arrive_expect_tx(full, sizeof stage + wrong);           // announces a stage
        tma_load(stage.A, A, 0, t * 64 + (kFault == kOddColumn), full);  // A's tile
        tma_load(stage.B[0], B, t * 64, 0, full);
        if (kFault != kNoCopy || t < 2) tma_load(stage.B[1], B, t * 64, 64, full);
    }
}

template <Fault kFault>
__device__ void consume(Memory& memory, const CUtensorMap& C) {
    float sums[kN / 2];
    uint32_t zeros[4]{};  // a fragment of A
    for (int t = 0; t < kSteps; ++t) {
        const int s = t % kStages, round = t / kStages;
        auto& stage = memory.stages[s];
        const int parity = kFault == kConsumerParity ? round % 2 ^ 1 : round % 2;
        if (kFault != kNoFullWait) mbarrier_wait(&memory.full[s], parity);  // for the consumer
        if (kFault == kEarlyFree && threadIdx.x % 32 == 0) mbarrier_arrive(&memory.empty[s]);
        wgmma_fence();
        for (int k = 0; k < 64; k += 16) {
            const uint64_t eight_rows = kFault == kStride ? 512 : 1024;
            const uint64_t panel = kFault == kPanelStride ? 4096 : sizeof stage.B[0];
            const uint64_t a =
                descriptor(&stage.A[0][k], 0, eight_rows, kFault == kSwizzle ? 2 : 1);
            const uint64_t b = descriptor(stage.B[0][k], panel, 1024, 1);
            wgmma_mma_async<half>(sums, a, b, t > 0 || k > 0);  // the product
        }
        if (kFault == kFragmentChanges) {
            const uint64_t b = descriptor(stage.B[0][0], sizeof stage.B[0], 1024, 1);
            wgmma_mma_async<half>(sums, zeros, b, true);  // of registers
            zeros[t % 4] = t;
        }
        if (kFault != kNoProductCommit) wgmma_commit_group();
        if (kFault != kNoProductWait) wgmma_wait_group<0>();
        const bool frees = kFault != kEarlyFree && (kFault != kNobodyFrees || threadIdx.x != 32);
        if (frees && threadIdx.x % 32 == 0) mbarrier_arrive(&memory.empty[s]);
    }

    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    for (int i = 0; i < kN / 16; ++i) {
        uint32_t pairs[4];
        for (int j = 0; j < 4; ++j) {
            const half2 pair = __floats2half2_rn(sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]);
            pairs[j] = reinterpret_cast<const uint32_t&>(pair);
        }
        const int chunk = i % 4 * 2 + lane / 16;
        const int place = kFault == kStoreSwizzle ? chunk : chunk ^ row % 8;
        stmatrix_x4(&memory.C[i / 4][row][place * 8], pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    if (kFault != kNoFence) fence_proxy_async();
    if (kFault != kBarrierOfOne || threadIdx.x < 96) barrier_sync_warpgroup(0);  // C is complete
    if (threadIdx.x != 0) return;
    tma_store(C, 0, 0, memory.C[0]);  // the first store
    tma_store(C, 0, 64, memory.C[1]);
    if (kFault != kNoStoreCommit) cp_async_bulk_commit_group();
    if (kFault != kNoStoreWait) cp_async_bulk_wait_group_read<0>();
}

/// C[64, 128] = A[64, kK] B[kK, 128]: a warpgroup multiplies, one thread more starts the copies.
template <Fault kFault>
__global__ void __launch_bounds__(kWarpgroup + 32)
    product(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
            const __grid_constant__ CUtensorMap C) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Memory& memory = *reinterpret_cast<Memory*>(shared);
    if (threadIdx.x == 0)
        for (int s = 0; s < kStages; ++s)
            mbarrier_init(&memory.full[s], 1), mbarrier_init(&memory.empty[s], 4);
    fence_mbarrier_init();
    __syncthreads();
    if (threadIdx.x < kWarpgroup)
        consume<kFault>(memory, C);
    else if (threadIdx.x == kWarpgroup)
        produce<kFault>(memory, A, B);
}

// --- Clusters: each block sends a pair to the next one, and signals that it has read its own -----

enum ClusterFault { kRight, kLeavesEarly, kLeavesBeforeArrival, kPairNotExpected, kPairNotSent };

template <ClusterFault kFault>
__global__ void HOPPER_CLUSTER(2) exchange(float2* out) {
    __shared__ Barrier arrived, read;
    __shared__ float2 pair;
    const uint32_t rank = cluster_ctarank();
    const uint32_t bytes = kFault == kPairNotExpected ? 0 : sizeof pair;
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 1), mbarrier_init(&read, 1), fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&arrived, bytes);  // announces the pair
    }
    barrier_cluster_sync();
    if (threadIdx.x == 0 && !(kFault == kPairNotSent && rank == 1))
        st_async(&pair, {float(rank), 7}, &arrived, 1 - rank);  // sends the pair
    if (kFault == kLeavesEarly && rank == 1) return;
    mbarrier_wait(&arrived, 0);  // for the pair
    out[32 * rank + threadIdx.x] = pair;
    __syncthreads();
    if (kFault == kLeavesBeforeArrival && rank == 1) return;
    if (threadIdx.x == 0) mbarrier_arrive_cluster(&read, 1 - rank);  // it has been read
    if (kFault != kLeavesBeforeArrival) mbarrier_wait(&read, 0);     // for the next block
    barrier_cluster_sync();
}

/// A block that leaves while the other one has yet to write into its shared memory.
__global__ void HOPPER_CLUSTER(2) write_late() {
    __shared__ float number;
    const uint32_t rank = cluster_ctarank();
    float* const there = cooperative_groups::this_cluster().map_shared_rank(&number, 1 - rank);
    barrier_cluster_sync();
    if (rank == 0) *there = 1;
}

// --- What runs them -----------------------------------------------------------------------------

template <class T>
T* to_device(const std::vector<T>& values) {
    T* data;
    cudaMalloc(&data, values.size() * sizeof(T));
    cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return data;
}

/// As hopper::tensor_map(), of boxes of 64 x 64.
CUtensorMap map_of(half* matrix, cuuint64_t rows, cuuint64_t columns) {
    CUtensorMap map;
    const cuuint64_t size[] = {columns, rows}, pitch[] = {columns * sizeof(half)};
    const cuuint32_t box[] = {64, 64}, stride[] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, matrix, size, pitch, box,
                           stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

void report(int wrong, int size) {
    std::printf("%d of %d wrong\n%s\n", wrong, size, cudaGetErrorName(cudaGetLastError()));
}

template <Fault kFault>
void run_product() {
    std::vector<half> a, b, c(64 * kN);
    for (int i = 0; i < 64 * kK; ++i) a.push_back(half(float(i * 7 % 5 - 2)));
    for (int i = 0; i < kK * kN; ++i) b.push_back(half(float((i * 5 + i / kN) % 7 - 3)));
    half *const A = to_device(a), *const B = to_device(b), *const C = to_device(c);
    cudaFuncSetAttribute(product<kFault>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         int(sizeof(Memory)));
    product<kFault><<<1, kWarpgroup + 32, sizeof(Memory)>>>(map_of(A, 64, kK), map_of(B, kK, kN),
                                                            map_of(C, 64, kN));
    cudaMemcpy(c.data(), C, c.size() * sizeof(half), cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < 64 * kN; ++i) {
        float sum = 0;
        for (int k = 0; k < kK; ++k) sum += float(a[i / kN * kK + k]) * float(b[k * kN + i % kN]);
        wrong += !(float(c[i]) == sum);
    }
    report(wrong, 64 * kN);
}

template <ClusterFault kFault>
void run_exchange() {
    std::vector<float2> pairs(64);
    float2* const out = to_device(pairs);
    exchange<kFault><<<2, 32>>>(out);
    cudaMemcpy(pairs.data(), out, sizeof(float2) * 64, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < 64; ++i) wrong += !(pairs[i].x == float(1 - i / 32) && pairs[i].y == 7);
    report(wrong, 64);
}

int main(int argc, char** argv) {
    const std::map<std::string, std::function<void()>> cases{
        {"none", run_product<kNone>},
        {"no_full_wait", run_product<kNoFullWait>},
        {"no_product_wait", run_product<kNoProductWait>},
        {"no_store_wait", run_product<kNoStoreWait>},
        {"early_free", run_product<kEarlyFree>},
        {"consumer_parity", run_product<kConsumerParity>},
        {"producer_parity", run_product<kProducerParity>},
        {"too_few_bytes", run_product<kTooFewBytes>},
        {"too_many_bytes", run_product<kTooManyBytes>},
        {"no_fence", run_product<kNoFence>},
        {"stride", run_product<kStride>},
        {"panel_stride", run_product<kPanelStride>},
        {"swizzle", run_product<kSwizzle>},
        {"store_swizzle", run_product<kStoreSwizzle>},
        {"no_product_commit", run_product<kNoProductCommit>},
        {"no_store_commit", run_product<kNoStoreCommit>},
        {"nobody_frees", run_product<kNobodyFrees>},
        {"no_copy", run_product<kNoCopy>},
        {"odd_column", run_product<kOddColumn>},
        {"barrier_of_one", run_product<kBarrierOfOne>},
        {"fragment_changes", run_product<kFragmentChanges>},
        {"cluster_none", run_exchange<kRight>},
        {"leaves_early", run_exchange<kLeavesEarly>},
        {"leaves_before_arrival", run_exchange<kLeavesBeforeArrival>},
        {"pair_not_expected", run_exchange<kPairNotExpected>},
        {"pair_not_sent", run_exchange<kPairNotSent>},
        {"write_late", [] { write_late<<<2, 32>>>(); }},
    };
    const auto found = cases.find(argc > 1 ? argv[1] : "");
    if (found == cases.end()) return 2;
    found->second();
}
