// Each of Hopper's instructions in a kernel of a few lines: what ptx_hopper.cuh says of it, on a
// Hopper GPU and on the simulator. Elsewhere it exits with 77 and the reason, as the programs do.
#include <cooperative_groups.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "demo.cuh"
#include "demo/device.cuh"
#include "hopper.cuh"
#include "ptx.cuh"
#include "test_memory.cuh"

namespace {

using namespace hopper;
using demo_test::Memory, demo_test::numbers;

/// One thread's work: makes an mbarrier that waits for one arrival, with the bytes that it expects.
__device__ void init_for_copies(Barrier* barrier) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
}

// --- Barriers -----------------------------------------------------------------------------------

__global__ void hand_over(int* out) {
    __shared__ Barrier full, empty;
    __shared__ int box[32];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) mbarrier_init(&full, 32), mbarrier_init(&empty, 32);
    __syncthreads();
    for (int phase = 0; phase < 5; ++phase)
        if (threadIdx.x < 32) {
            mbarrier_wait(&empty, phase % 2 ^ 1);  // at once in phase 0: the one before has ended
            box[lane] = 100 * phase + lane;
            mbarrier_arrive(&full);
        } else {
            mbarrier_wait(&full, phase % 2);
            out[32 * phase + lane] = box[31 - lane];
            mbarrier_arrive(&empty);
        }
}

TEST(Mbarrier, PhasesAlternate) {
    const Memory<int> out(5 * 32);
    hand_over<<<1, 64>>>(out.data());
    EXPECT_EQ(out.read(), numbers<int>(160, [](int i) { return 100 * (i / 32) + 31 - i % 32; }));
}

__global__ void HOPPER_CLUSTER(4) arrive_everywhere(int* arrivals, int* seen) {
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) mbarrier_init(&barrier, 4), fence_mbarrier_init();
    barrier_cluster_sync();
    if (threadIdx.x == 0) atomicAdd(arrivals, 1), __threadfence();
    __syncwarp();
    if (threadIdx.x < 4) mbarrier_arrive_cluster(&barrier, threadIdx.x);
    mbarrier_wait(&barrier, 0);
    if (threadIdx.x == 0) seen[cluster_ctarank()] = atomicAdd(arrivals, 0);
    barrier_cluster_sync();  // nobody leaves while others may still arrive here
}

TEST(Mbarrier, BlocksArriveAtEachOthers) {
    const Memory<int> arrivals(std::vector<int>{0}), seen(4);
    arrive_everywhere<<<4, 32>>>(arrivals.data(), seen.data());
    EXPECT_EQ(seen.read(), (std::vector<int>{4, 4, 4, 4}));
}

__global__ void turn_warpgroups(int* out) {
    __shared__ int box[256];
    const int warpgroup = threadIdx.x / 128, i = threadIdx.x % 128;
    for (int round = 0; round < 1 + 2 * warpgroup; ++round) {  // warpgroup 1 makes more of them
        box[threadIdx.x] = 1000 * round + i;
        barrier_sync_warpgroup(warpgroup);
        out[threadIdx.x] = box[128 * warpgroup + (i + 37) % 128];
        barrier_sync_warpgroup(warpgroup);
    }
}

TEST(NamedBarrier, WaitsForOneWarpgroup) {
    const Memory<int> out(256);
    turn_warpgroups<<<1, 256>>>(out.data());
    EXPECT_EQ(out.read(), numbers<int>(256, [](int i) { return i / 128 * 2000 + (i + 37) % 128; }));
}

/// Warps 0 and 2 pass on numbers; warp 1 does not take part.
__global__ void turn_two_warps(int* out) {
    __shared__ int box[64];
    const int warp = threadIdx.x / 32, i = threadIdx.x % 32 + warp / 2 * 32;
    if (warp == 1) return;
    for (int round = 0; round < 3; ++round) {
        box[i] = 1000 * round + i;
        barrier_sync(3, 64);
        out[i] = box[(i + 37) % 64];
        barrier_sync(3, 64);
    }
}

TEST(NamedBarrier, WaitsForSomeWarps) {
    const Memory<int> out(64);
    turn_two_warps<<<1, 96>>>(out.data());
    EXPECT_EQ(out.read(), numbers<int>(64, [](int i) { return 2000 + (i + 37) % 64; }));
}

/// Warp 0 brings numbers, and does not wait for the other two, which take them.
__global__ void pass_numbers_on(int* out) {
    __shared__ int box[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) {
        box[lane] = 1000 + lane;
        barrier_arrive(4, 96);
    } else {
        barrier_sync(4, 96);
        out[threadIdx.x - 32] = box[(lane + 5) % 32];
    }
}

TEST(NamedBarrier, CountsWhoDoesNotWait) {
    const Memory<int> out(64);
    pass_numbers_on<<<1, 96>>>(out.data());
    EXPECT_EQ(out.read(), numbers<int>(64, [](int i) { return 1000 + (i + 5) % 32; }));
}

// --- Clusters -----------------------------------------------------------------------------------

struct Seen {
    unsigned int rank, blocks;
    int neighbour;
    bool operator==(const Seen&) const = default;
};

/// Each block reads the next one's variable, between barriers of either kind.
__device__ void look_at_neighbour(Seen* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __shared__ int own;
    const auto cluster = cooperative_groups::this_cluster();
    const unsigned int next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (threadIdx.x == 0) own = 10 * int(blockIdx.x);
    cluster.sync();
    const int neighbour = *cluster.map_shared_rank(&own, next);
    cluster.sync();
    if (threadIdx.x == 0) *cluster.map_shared_rank(&own, next) = neighbour + 1, __threadfence();
    barrier_cluster_sync();  // relaxed: the fence before it publishes the number
    if (threadIdx.x == 0)
        out[blockIdx.x] = {cluster_ctarank(), cluster.num_blocks(), neighbour + own % 10};
    barrier_cluster_sync();
#endif
}
__global__ void HOPPER_CLUSTER(4) cluster_of_four(Seen* out) { look_at_neighbour(out); }
__global__ void cluster_of_any_size(Seen* out) { look_at_neighbour(out); }

void expect_clusters(const Memory<Seen>& out, unsigned int blocks) {
    const std::vector<Seen> seen = out.read();
    for (unsigned int i = 0; i < seen.size(); ++i) {
        const unsigned int rank = i % blocks, next = i - rank + (rank + 1) % blocks;
        EXPECT_EQ(seen[i], (Seen{rank, blocks, 10 * int(next) + 1})) << i << " of " << blocks;
    }
}

TEST(Cluster, OfTheKernelsOwnSize) {
    const Memory<Seen> out(8);
    cluster_of_four<<<8, 64>>>(out.data());
    expect_clusters(out, 4);
}

TEST(Cluster, OfTheLaunchsSize) {
    for (unsigned int blocks : {1, 2, 8}) {
        const Memory<Seen> out(16);
        demo::ClusterLaunch(16 / blocks, blocks, 64, 0)(cluster_of_any_size, out.data());
        expect_clusters(out, blocks);
    }
    const Memory<Seen> out(4);
    demo::ClusterLaunch(1, 4, 64, 0)(cluster_of_four, out.data());
    expect_clusters(out, 4);
}

__global__ void HOPPER_CLUSTER(2) send_pairs(float2* out) {
    __shared__ Barrier barrier;
    __shared__ float2 pairs[32];
    const uint32_t rank = cluster_ctarank();
    if (threadIdx.x == 0) init_for_copies(&barrier);
    barrier_cluster_sync();
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(&barrier, sizeof pairs);
    st_async(&pairs[31 - threadIdx.x], {float(rank), float(threadIdx.x)}, &barrier, 1 - rank);
    mbarrier_wait(&barrier, 0);
    out[32 * rank + threadIdx.x] = pairs[threadIdx.x];
    barrier_cluster_sync();
}

TEST(Cluster, StAsync) {
    const Memory<float2> out(64);
    send_pairs<<<2, 32>>>(out.data());
    const std::vector<float2> pairs = out.read();
    for (int i = 0; i < 64; ++i) {
        EXPECT_EQ(pairs[i].x, 1 - i / 32);
        EXPECT_EQ(pairs[i].y, 31 - i % 32);
    }
}

// --- Copies -------------------------------------------------------------------------------------

__global__ void copy_in_bulk(const int* from, int* out) {
    __shared__ Barrier barrier;
    __shared__ alignas(16) int tile[32];
    tile[threadIdx.x] = -1;
    fence_proxy_async();  // the copy is to come after this
    if (threadIdx.x == 0) init_for_copies(&barrier);
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&barrier, 64);
        cp_async_bulk(&tile[4], &from[8], 48, &barrier, ptx::createpolicy_evict_last());
        cp_async_bulk(&tile[24], &from[0], 16, &barrier, ptx::createpolicy_evict_first());
    }
    mbarrier_wait(&barrier, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}

TEST(BulkCopy, CopiesItsBytesAlone) {
    const Memory<int> from(numbers<int>(32, [](int i) { return i; })), out(32);
    copy_in_bulk<<<1, 32>>>(from.data(), out.data());
    EXPECT_EQ(out.read(), numbers<int>(32, [](int i) {
                  return i >= 4 && i < 16 ? i + 4 : i >= 24 && i < 28 ? i - 24 : -1;
              }));
}

__global__ void fetch_early(const int* from, int* out) {
    ptx::prefetch_L2(&from[threadIdx.x]);
    out[threadIdx.x] = from[threadIdx.x];
}

TEST(Prefetch, ChangesNothing) {
    const std::vector<int> some = numbers<int>(32, [](int i) { return i; });
    const Memory<int> from(some), out(32);
    fetch_early<<<1, 32>>>(from.data(), out.data());
    EXPECT_EQ(out.read(), some);
}

// --- TMA: matrices of 40 x 192 elements, copied in boxes of 16 x 64 -----------------------------

constexpr int kRows = 40, kColumns = 192, kBoxRows = 16, kPanels = kColumns / 64;
constexpr int kBox = kBoxRows * 64;  // elements

/// Element (row, column) of a box of kWidth columns, or of boxes beside each other: rows of 128
/// (64) bytes, swizzled.
template <int kWidth = 64>
__host__ __device__ int swizzled(int row, int column) {
    const int chunk = column % kWidth / 8 ^ row * kWidth / 64 % (kWidth / 8);
    return column / kWidth * kBox + row * kWidth + chunk * 8 + column % 8;
}

template <int kBoxes>
__global__ void load_boxes(const __grid_constant__ CUtensorMap map, int row, int column, int matrix,
                           uint16_t* out) {
    __shared__ Barrier barrier;
    __shared__ alignas(1024) uint16_t tile[kBoxes * kBox];
    if (threadIdx.x == 0) {
        prefetch_tensormap(map);  // changes nothing but the time
        init_for_copies(&barrier);
        mbarrier_arrive_expect_tx(&barrier, sizeof tile);  // also of what is outside
        if constexpr (kBoxes > 1)
            tma_load_panels(tile, map, row, &barrier, matrix);
        else
            tma_load(tile, map, row, column, &barrier);
    }
    __syncthreads();
    mbarrier_wait(&barrier, 0);
    for (int i = threadIdx.x; i < kBoxes * kBox; i += blockDim.x) out[i] = tile[i];
}

/// A matrix whose elements' bits are 1, 2, 3, ...
Memory<uint16_t> counting_matrix() {
    return Memory<uint16_t>(numbers<uint16_t>(kRows * kColumns, [](int i) { return i + 1; }));
}
/// With `panels` it may be several, one after the other.
CUtensorMap map_of(const Memory<uint16_t>& matrix, uint32_t panels = 0, int matrices = 1) {
    const auto* data = reinterpret_cast<const half*>(matrix.data());
    return tensor_map(data, kRows / matrices, kColumns, kBoxRows, panels, matrices);
}
/// What a copy of the box at (row, column) of matrix i has to be.
std::vector<uint16_t> box_at(int row, int column, int boxes = 1, int matrices = 1, int i = 0) {
    std::vector<uint16_t> box(boxes * kBox);
    const int rows = kRows / matrices, first = i * rows * kColumns;
    for (int r = 0; r < kBoxRows; ++r)
        for (int c = 0; c < 64 * boxes; ++c)
            if (row + r >= 0 && row + r < rows && column + c >= 0 && column + c < kColumns)
                box[swizzled(r, c)] = uint16_t(first + (row + r) * kColumns + column + c + 1);
    return box;
}

TEST(Tma, LoadsZerosOutsideTheMatrix) {
    const Memory<uint16_t> matrix = counting_matrix();
    for (int row : {-16, -3, 0, 8, 30, 40})
        for (int column : {-64, -8, 0, 64, 136, 192}) {
            const Memory<uint16_t> out(kBox);
            load_boxes<1><<<1, 64>>>(map_of(matrix), row, column, 0, out.data());
            EXPECT_EQ(out.read(), box_at(row, column)) << row << " " << column;
        }
}

TEST(Tma, LoadsPanels) {
    const Memory<uint16_t> matrix = counting_matrix();
    for (int matrices : {1, 2})  // which lie one after the other: past one are zeros all the same
        for (int i = 0; i < matrices; ++i)
            for (int row : {-5, 0, 9, 29}) {
                const Memory<uint16_t> out(kPanels * kBox);
                const CUtensorMap map = map_of(matrix, kPanels, matrices);
                load_boxes<kPanels><<<1, 64>>>(map, row, 0, i, out.data());
                EXPECT_EQ(out.read(), box_at(row, 0, kPanels, matrices, i))
                    << i << " of " << matrices << ", " << row;
            }
}

/// Block 0 loads a box into both blocks; block 1 another one into block 0.
__global__ void HOPPER_CLUSTER(2)
    load_multicast(const __grid_constant__ CUtensorMap map, uint16_t* out) {
    __shared__ Barrier barrier;
    __shared__ alignas(1024) uint16_t tile[2][kBox];
    const int rank = cluster_ctarank(), boxes = rank == 0 ? 2 : 1;
    if (threadIdx.x == 0) init_for_copies(&barrier);
    barrier_cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&barrier, boxes * sizeof tile[0]);
        tma_load_multicast(tile[rank], map, 20 * rank, 104 * rank, &barrier, rank == 0 ? 3 : 1);
    }
    mbarrier_wait(&barrier, 0);
    for (int i = threadIdx.x; i < boxes * kBox; i += blockDim.x)
        out[2 * rank * kBox + i] = tile[i / kBox][i % kBox];
    barrier_cluster_sync();
}

TEST(Tma, LoadsIntoSeveralBlocks) {
    const Memory<uint16_t> matrix = counting_matrix(), out(3 * kBox);
    load_multicast<<<2, 64>>>(map_of(matrix), out.data());
    std::vector<uint16_t> expected;
    for (const auto& box : {box_at(0, 0), box_at(20, 104), box_at(0, 0)})
        expected.insert(expected.end(), box.begin(), box.end());
    EXPECT_EQ(out.read(), expected);
}

/// Stores three boxes of kWidth columns from two buffers.
template <int kWidth>
__global__ void store_boxes(const __grid_constant__ CUtensorMap map) {
    __shared__ alignas(1024) uint16_t tile[2][kBox];
    const int2 at[] = {{0, 0}, {30, 168}, {13, 64}};  // row, column
    for (int i = 0; i < 3; ++i) {
        if (threadIdx.x == 0) cp_async_bulk_wait_group_read<1>();
        __syncthreads();  // the latest store but one has read its buffer
        for (int j = threadIdx.x; j < kBoxRows * kWidth; j += blockDim.x)
            tile[i % 2][swizzled<kWidth>(j / kWidth, j % kWidth)] = 1000 * (i + 1) + j % kWidth;
        fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) tma_store(map, at[i].x, at[i].y, tile[i % 2]);
        if (threadIdx.x == 0) cp_async_bulk_commit_group();
    }
    if (threadIdx.x == 0) cp_async_bulk_wait_group_read<0>();
}

template <int kWidth>
void expect_stores_within_the_matrix_alone() {
    const Memory<uint16_t> matrix = counting_matrix();
    const auto* data = reinterpret_cast<const half*>(matrix.data());
    store_boxes<kWidth><<<1, 64>>>(tensor_map<kWidth>(data, kRows, kColumns, kBoxRows));
    EXPECT_EQ(matrix.read(), numbers<uint16_t>(kRows * kColumns, [](int i) -> uint16_t {
                  const int r = i / kColumns, c = i % kColumns;
                  if (r < 16 && c < kWidth) return 1000 + c;
                  if (r >= 30 && c >= 168) return 2000 + c - 168;
                  if (r >= 13 && r < 29 && c >= 64 && c < 64 + kWidth) return 3000 + c - 64;
                  return uint16_t(i + 1);
              }));
}

TEST(Tma, StoresWithinTheMatrixAlone) { expect_stores_within_the_matrix_alone<64>(); }
TEST(Tma, StoresNarrowBoxes) { expect_stores_within_the_matrix_alone<32>(); }

__global__ void store_panels(const __grid_constant__ CUtensorMap map, int row, int matrix) {
    __shared__ alignas(1024) uint16_t tile[kPanels * kBox];
    for (int i = threadIdx.x; i < kBoxRows * kColumns; i += blockDim.x)
        tile[swizzled(i / kColumns, i % kColumns)] = 10000 + i;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x > 0) return;
    tma_store_panels(map, row, tile, matrix);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
}

TEST(Tma, StoresPanelsWithinOneOfTwoMatrices) {
    for (int i : {0, 1})
        for (int row : {0, 9, 20}) {
            const Memory<uint16_t> matrix = counting_matrix();
            std::vector<uint16_t> expected = matrix.read();
            for (int j = 0; j < std::min(kBoxRows, kRows / 2 - row) * kColumns; ++j)
                expected[(i * kRows / 2 + row) * kColumns + j] = 10000 + j;
            store_panels<<<1, 64>>>(map_of(matrix, kPanels, 2), row, i);
            EXPECT_EQ(matrix.read(), expected) << i << " " << row;
        }
}

// --- wgmma --------------------------------------------------------------------------------------

template <class T, int kN, int kPanel = 64>
struct alignas(1024) Tiles {
    T A[64][64], B[kN / kPanel][64][kPanel];

    /// All threads copy A[64, 64] and B[64, kN] to here.
    __device__ void fill(const T* from_A, const T* from_B) {
        auto place = [](int row, int column, int width) {
            return (column / 8 ^ row * width / 64 % (width / 8)) * 8 + column % 8;
        };
        for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x)
            A[i / 64][place(i / 64, i % 64, 64)] = from_A[i];
        for (int i = threadIdx.x; i < 64 * kN; i += blockDim.x)
            B[i % kN / kPanel][i / kN][place(i / kN, i % kN % kPanel, kPanel)] = from_B[i];
        fence_proxy_async();
        __syncthreads();
    }

    /// Starts sums (+)= A B's columns from panel `p` on, in steps of 16 along K, as one group.
    template <int kSums>
    __device__ void multiply(float (&sums)[kSums], int p, bool keep) {
        for (int k = 0; k < 64; k += 16)
            wgmma_mma_async<T>(sums, matrix_descriptor(&A[0][k]),
                               matrix_descriptor<kPanel>(B[p][k], sizeof B[0]), keep || k > 0);
        wgmma_commit_group();
    }
    /// The same, from A's fragments in registers.
    template <int kSums>
    __device__ void multiply(float (&sums)[kSums], const uint32_t (&own)[4][4], bool keep) {
#pragma unroll
        for (int k = 0; k < 64; k += 16)
            wgmma_mma_async<T>(sums, own[k / 16], matrix_descriptor<kPanel>(B[0][k], sizeof B[0]),
                               keep || k > 0);
        wgmma_commit_group();
    }
};

/// Calls visit(sum, element of C) for a warpgroup's sums, which are columns of C[64, kN].
template <int kN, int kSums, class Visit>
__device__ void for_each_sum(float (&sums)[kSums], float* C, int column, Visit visit) {
    const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4;
#pragma unroll
    for (int i = 0; i < kSums; ++i)
        visit(sums[i], C[(row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + t % 4 * 2 + i % 2]);
}

/// C = A B, or with `keep` C += A B: kParts parts of its columns, a group each.
template <class T, int kN, int kParts, int kPanel = 64>
__global__ void __launch_bounds__(128) multiply(const T* A, const T* B, float* C, bool keep) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& tiles = *reinterpret_cast<Tiles<T, kN, kPanel>*>(shared);
    constexpr int kColumns = kN / kParts;
    auto load = [](float& sum, float& c) { sum = c; };
    auto store = [](float& sum, float& c) { c = sum; };
    tiles.fill(A, B);
    float first[kColumns / 2], second[kColumns / 2];
    for_each_sum<kN>(first, C, 0, load);
    if (kParts > 1) for_each_sum<kN>(second, C, kColumns, load);
    wgmma_fence();
    tiles.multiply(first, 0, keep);
    if (kParts > 1) {
        tiles.multiply(second, kColumns / 64, keep);
        wgmma_wait_group<1>();
        for_each_sum<kN>(first, C, 0, store);
        wgmma_wait_group<0>();
        for_each_sum<kN>(second, C, kColumns, store);
    } else {
        wgmma_wait_group<0>();
        for_each_sum<kN>(first, C, 0, store);
    }
}

/// The same, with A in registers.
template <class T, int kN>
__global__ void __launch_bounds__(128) multiply_own(const T* A, const T* B, float* C, bool keep) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& tiles = *reinterpret_cast<Tiles<T, kN>*>(shared);
    tiles.fill(A, B);
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    uint32_t own[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i)
        own[i / 4][i % 4] = *reinterpret_cast<const uint32_t*>(
            &A[(row + i % 2 * 8) * 64 + i / 4 * 16 + i % 4 / 2 * 8 + column]);
    float sums[kN / 2];
    for_each_sum<kN>(sums, C, 0, [](float& sum, float& c) { sum = c; });
    wgmma_fence();
    tiles.multiply(sums, own, keep);
    wgmma_wait_group<0>();
    for_each_sum<kN>(sums, C, 0, [](float& sum, float& c) { c = sum; });
}

template <class T>
class Wgmma : public testing::Test {};
using Types = testing::Types<half, __nv_bfloat16>;
TYPED_TEST_SUITE(Wgmma, Types);

/// Small integers, so that all sums are exact.
template <class T, int kN>
void expect_products(void (*kernel)(const T*, const T*, float*, bool)) {
    std::vector<float> a(64 * 64), b(64 * kN);
    for (size_t i = 0; i < a.size(); ++i) a[i] = float(i * 7 % 11) - 5;
    for (size_t i = 0; i < b.size(); ++i) b[i] = float(i * 5 % 13 + i / kN % 3) - 7;
    const Memory<T> A(numbers<T>(a.size(), [&](int i) { return T(a[i]); })),
        B(numbers<T>(b.size(), [&](int i) { return T(b[i]); }));
    for (bool keep : {false, true}) {
        // Without `keep` what was there before must not matter, not even NaN.
        const Memory<float> C(std::vector<float>(64 * kN, keep ? 5 : NAN));
        kernel<<<1, 128, sizeof(Tiles<T, kN>)>>>(A.data(), B.data(), C.data(), keep);
        EXPECT_EQ(C.read(), numbers<float>(64 * kN, [&](int i) {
                      float sum = keep ? 5 : 0;
                      for (int k = 0; k < 64; ++k) sum += a[i / kN * 64 + k] * b[k * kN + i % kN];
                      return sum;
                  }));
    }
}

TYPED_TEST(Wgmma, 64Columns) { expect_products<TypeParam, 64>(multiply<TypeParam, 64, 1>); }
TYPED_TEST(Wgmma, 128Columns) { expect_products<TypeParam, 128>(multiply<TypeParam, 128, 1>); }
TYPED_TEST(Wgmma, 192Columns) { expect_products<TypeParam, 192>(multiply<TypeParam, 192, 1>); }
TYPED_TEST(Wgmma, 256Columns) { expect_products<TypeParam, 256>(multiply<TypeParam, 256, 1>); }
TYPED_TEST(Wgmma, InPanelsOf32Columns) {
    expect_products<TypeParam, 192>(multiply<TypeParam, 192, 1, 32>);
}
TYPED_TEST(Wgmma, TwoGroupsAtATime) {
    expect_products<TypeParam, 256>(multiply<TypeParam, 256, 2>);
}
TYPED_TEST(Wgmma, 64ColumnsOfRegisters) {
    expect_products<TypeParam, 64>(multiply_own<TypeParam, 64>);
}
TYPED_TEST(Wgmma, 128ColumnsOfRegisters) {
    expect_products<TypeParam, 128>(multiply_own<TypeParam, 128>);
}
TYPED_TEST(Wgmma, 192ColumnsOfRegisters) {
    expect_products<TypeParam, 192>(multiply_own<TypeParam, 192>);
}
TYPED_TEST(Wgmma, 256ColumnsOfRegisters) {
    expect_products<TypeParam, 256>(multiply_own<TypeParam, 256>);
}

/// C = A B in TF32, with A[64, 32] row-major and B[32, kN] column-major. `kOwn`: A in registers.
template <int kN, bool kOwn>
__global__ void __launch_bounds__(128) multiply_tf32(const float* A, const float* B, float* C) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& rows = *reinterpret_cast<float(*)[64 + kN][32]>(shared);  // of A, then columns of B
    for (int i = threadIdx.x; i < (64 + kN) * 32; i += blockDim.x) {
        const int row = i / 32, k = i % 32;
        rows[row][(k / 4 ^ row % 8) * 4 + k % 4] = row < 64 ? A[i] : B[i - 64 * 32];
    }
    fence_proxy_async();
    __syncthreads();
    float sums[kN / 2];
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4;
    uint32_t own[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i)
        own[i / 4][i % 4] =
            __float_as_uint(A[(row + i % 2 * 8) * 32 + i / 4 * 8 + i % 4 / 2 * 4 + column]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        const uint64_t b = matrix_descriptor(&rows[64][k]);
        if constexpr (kOwn)
            wgmma_mma_async<float>(sums, own[k / 8], b, k > 0);
        else
            wgmma_mma_async<float>(sums, matrix_descriptor(&rows[0][k]), b, k > 0);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for_each_sum<kN>(sums, C, 0, [](float& sum, float& c) { c = sum; });
}

template <int kN>
void expect_tf32(void (*kernel)(const float*, const float*, float*)) {
    const float tiny = 0x1p-11f;  // beside 1, the first bit that TF32 does not have
    std::vector<float> a(64 * 32), b(kN * 32);
    for (size_t i = 0; i < a.size(); ++i) a[i] = float(i * 7 % 11) - 5;
    for (size_t i = 0; i < b.size(); ++i) b[i] = float(i * 5 % 13) - 6;
    std::vector<float> with_more = b;
    for (float& x : with_more) x *= 1 + tiny;
    const std::vector<float> expected = numbers<float>(64 * kN, [&](int i) {
        float sum = 0;
        for (int k = 0; k < 32; ++k) sum += a[i / kN * 32 + k] * b[i % kN * 32 + k];
        return sum;
    });
    const Memory<float> A(a), B(with_more), C(64 * kN);
    kernel<<<1, 128, (64 + kN) * 32 * sizeof(float)>>>(A.data(), B.data(), C.data());
    EXPECT_EQ(C.read(), expected);
}

TEST(Wgmma, Tf32IgnoresTheLastBits) {
    expect_tf32<128>(multiply_tf32<128, false>);
    expect_tf32<128>(multiply_tf32<128, true>);
    expect_tf32<256>(multiply_tf32<256, true>);
}

/// C = A B with A[64, kK] row-major and B[kK, kN] column-major, kK as many as 128 bytes hold.
template <class T, int kN>
__global__ void __launch_bounds__(128) multiply_k_major(const T* A, const T* B, float* C) {
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int kK = 128 / sizeof(T), kChunk = 16 / sizeof(T);
    auto& rows = *reinterpret_cast<T(*)[64 + kN][kK]>(shared);  // of A, then columns of B
    for (int i = threadIdx.x; i < (64 + kN) * kK; i += blockDim.x) {
        const int row = i / kK, k = i % kK;
        rows[row][(k / kChunk ^ row % 8) * kChunk + k % kChunk] = row < 64 ? A[i] : B[i - 64 * kK];
    }
    fence_proxy_async();
    __syncthreads();
    float sums[kN / 2];
    for (float& sum : sums) sum = NAN;  // what is not kept must not matter
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kK; k += kK / 4)
        wgmma_mma_async_k_major<T>(sums, matrix_descriptor(&rows[0][k]),
                                   matrix_descriptor(&rows[64][k]), k > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for_each_sum<kN>(sums, C, 0, [](float& sum, float& c) { c = sum; });
}

template <class T, int kN>
void expect_k_major() {
    constexpr int kK = 128 / sizeof(T);
    std::vector<float> a(64 * kK), b(kN * kK);
    for (size_t i = 0; i < a.size(); ++i) a[i] = float(i * 7 % 11) - 5;
    for (size_t i = 0; i < b.size(); ++i) b[i] = float(i * 5 % 13 + i / kK % 3) - 7;
    const Memory<T> A(numbers<T>(a.size(), [&](int i) { return T(a[i]); })),
        B(numbers<T>(b.size(), [&](int i) { return T(b[i]); }));
    const Memory<float> C(64 * kN);
    multiply_k_major<T, kN><<<1, 128, (64 + kN) * 128>>>(A.data(), B.data(), C.data());
    EXPECT_EQ(C.read(), numbers<float>(64 * kN,
                                       [&](int i) {
                                           float sum = 0;
                                           for (int k = 0; k < kK; ++k)
                                               sum += a[i / kN * kK + k] * b[i % kN * kK + k];
                                           return sum;
                                       }))
        << kN;
}

TEST(Wgmma, BothOperandsAlongK) {
    expect_k_major<half, 16>(), expect_k_major<half, 32>();
    expect_k_major<half, 64>(), expect_k_major<half, 128>();
    expect_k_major<float, 16>(), expect_k_major<float, 32>();
    expect_k_major<float, 64>(), expect_k_major<float, 128>();
}

/// C = A^T B^T with A[64, 64] and B[kN, 64] row-major.
template <class T, int kN>
__global__ void __launch_bounds__(128) multiply_transposed(const T* A, const T* B, float* C) {
    extern __shared__ __align__(1024) unsigned char shared[];
    auto& rows = *reinterpret_cast<T(*)[64 + kN][64]>(shared);  // of A, then of B
    for (int i = threadIdx.x; i < (64 + kN) * 64; i += blockDim.x) {
        const int row = i / 64, column = i % 64;
        rows[row][(column / 8 ^ row % 8) * 8 + column % 8] = row < 64 ? A[i] : B[i - 64 * 64];
    }
    fence_proxy_async();
    __syncthreads();
    float sums[kN / 2];
    for (float& sum : sums) sum = NAN;  // what is not kept must not matter
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 64; k += 16)
        wgmma_mma_async_transposed<T>(sums, matrix_descriptor(&rows[k][0]),
                                      matrix_descriptor(&rows[64][k]), k > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for_each_sum<kN>(sums, C, 0, [](float& sum, float& c) { c = sum; });
}

template <class T, int kN>
void expect_transposed() {
    std::vector<float> a(64 * 64), b(kN * 64);
    for (size_t i = 0; i < a.size(); ++i) a[i] = float(i * 7 % 11 + i / 64 % 3) - 6;
    for (size_t i = 0; i < b.size(); ++i) b[i] = float(i * 5 % 13 + i / 64 % 3) - 7;
    const Memory<T> A(numbers<T>(a.size(), [&](int i) { return T(a[i]); })),
        B(numbers<T>(b.size(), [&](int i) { return T(b[i]); }));
    const Memory<float> C(64 * kN);
    multiply_transposed<T, kN><<<1, 128, (64 + kN) * 128>>>(A.data(), B.data(), C.data());
    EXPECT_EQ(C.read(), numbers<float>(64 * kN,
                                       [&](int i) {
                                           float sum = 0;
                                           for (int k = 0; k < 64; ++k)
                                               sum += a[k * 64 + i / kN] * b[i % kN * 64 + k];
                                           return sum;
                                       }))
        << kN;
}

template <class T>
void expect_all_transposed() {
    expect_transposed<T, 64>(), expect_transposed<T, 80>(), expect_transposed<T, 96>();
    expect_transposed<T, 112>(), expect_transposed<T, 128>(), expect_transposed<T, 144>();
    expect_transposed<T, 160>(), expect_transposed<T, 176>(), expect_transposed<T, 192>();
    expect_transposed<T, 208>(), expect_transposed<T, 256>();
}

TEST(Wgmma, TheTransposedProduct) {
    expect_all_transposed<half>(), expect_all_transposed<__nv_bfloat16>();
}

template <bool kTransposed>
__global__ void store_matrices(uint16_t* out) {
    __shared__ alignas(16) uint16_t tile[32][8];
    const uint32_t lane = threadIdx.x;
    auto part = [&](uint32_t matrix) {  // elements 2 lane and 2 lane + 1 of the matrix's 64
        return 64 * matrix + 2 * lane + (64 * matrix + 2 * lane + 1 << 16);
    };
    if constexpr (kTransposed)
        stmatrix_x4_trans(tile[31 - lane], part(0), part(1), part(2), part(3));
    else
        stmatrix_x4(tile[31 - lane], part(0), part(1), part(2), part(3));
    __syncwarp();
    for (int i = lane; i < 256; i += 32) out[i] = tile[i / 8][i % 8];
}

TEST(Stmatrix, StoresRows) {
    const Memory<uint16_t> out(256);
    store_matrices<false><<<1, 32>>>(out.data());
    EXPECT_EQ(out.read(), numbers<uint16_t>(256, [](int i) { return (31 - i / 8) * 8 + i % 8; }));
}

TEST(Stmatrix, StoresColumns) {
    const Memory<uint16_t> out(256);
    store_matrices<true><<<1, 32>>>(out.data());
    EXPECT_EQ(out.read(), numbers<uint16_t>(256, [](int i) {
                  const int row = 31 - i / 8;
                  return row / 8 * 64 + i % 8 * 8 + row % 8;
              }));
}

// --- Launches that overlap ----------------------------------------------------------------------

__global__ void write_late(int* out) {
    griddepcontrol_launch_dependents();
    __nanosleep(100000);
    *out = 7;
}
__global__ void add_one(int* out) {
    griddepcontrol_wait();
    ++*out;
}

TEST(Griddepcontrol, WaitsForTheKernelBefore) {
    const Memory<int> out(1);
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3(1);
    config.attrs = &early;
    config.numAttrs = 1;
    write_late<<<1, 1>>>(out.data());
    DEMO_CHECK(cudaLaunchKernelEx(&config, add_one, out.data()));
    EXPECT_EQ(out.read(), std::vector<int>{8});
}

// --- Registers, shared memory -------------------------------------------------------------------

__global__ void __launch_bounds__(384, 1) redistribute_registers(int* out) {
    if (threadIdx.x >= 256) {
        setmaxnreg_dec<40>();
    } else {
        setmaxnreg_inc<232>();  // 168 each at first: what 128 threads release is enough for 256
    }
    out[threadIdx.x] = int(threadIdx.x);
}

TEST(Setmaxnreg, MovesRegistersBetweenWarpgroups) {
    const Memory<int> out(384);
    redistribute_registers<<<2, 384>>>(out.data());
    EXPECT_EQ(out.read(), numbers<int>(384, [](int i) { return i; }));
}

__global__ void misalign(uint32_t* out) {
    __shared__ char some[40];
    extern __shared__ __align__(1024) unsigned char shared[];
    some[threadIdx.x] = 1;
    out[threadIdx.x] = shared_address(shared) % 1024 + (some[threadIdx.x] - 1);
}

TEST(SharedMemory, IsAlignedAsDeclared) {
    for (int bytes : {16, 1000, 2048, 40000}) {
        const Memory<uint32_t> out(32);
        misalign<<<1, 32, bytes>>>(out.data());
        EXPECT_EQ(out.read(), std::vector<uint32_t>(32)) << bytes;
    }
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    demo::program_name = "test_ptx_hopper";
    const std::string why_not = hopper::why_not(demo::Gpu{demo::Options{}});
    if (!why_not.empty()) demo::fail(demo::kSkipped, why_not);
    return RUN_ALL_TESTS();
}
