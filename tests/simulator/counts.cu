// Kernels whose counts are known, for tests/test_count.py: counts CASE runs one of them.
#include <cooperative_groups.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_tile.h>
#include <mma.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "ptx.cuh"
#include "ptx_hopper.cuh"

// --- Global memory ------------------------------------------------------------------------------

template <class T, int kStride, int kOffset = 0>
__global__ void strided(const T* in, T* out) {
    const T value = in[threadIdx.x * kStride + kOffset];
    out[threadIdx.x] = value;
}

__global__ void vector_arithmetic(const float4* in, float4* out) {
    float4 v = in[threadIdx.x];
    v.x = v.y + v.z;
    v.w *= 2;
    out[threadIdx.x] = v;
}

struct Point {
    float x, y, z;
};

__global__ void read_modify_write(float* out) { out[threadIdx.x] += 1; }

__global__ void hinted(const float* in, float* out) {
    const float value = __ldg(&in[threadIdx.x]);
    __stcs(&out[threadIdx.x], value);
}

__global__ void half_the_warp(const float* in, float* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = in[threadIdx.x];
}

__global__ void triangle(const float* in, float* out) {
    float sum = 0;
    for (unsigned int i = 0; i < threadIdx.x; ++i) sum += in[i];
    out[threadIdx.x] = sum;
}

namespace apart {
template <int kSize>
struct Values {
    static constexpr int size = kSize;
};

// Local arrays and what shuffles pass on are registers.
template <class V>
__global__ void registers(const float* in, float* out) {
    float values[V::size];
    for (int i = 0; i < V::size; ++i) values[i] = in[threadIdx.x + 32 * i];
    float sum = 0;
    for (int i = 0; i < V::size; ++i) sum += __shfl_xor_sync(~0u, values[i], i);
    out[threadIdx.x] = sum;
}
}  // namespace apart

__global__ void one_sum(float* out) { atomicAdd(out, 1.0f); }
__global__ void sums_of_pairs(float* out) { atomicAdd(&out[threadIdx.x / 2], 1.0f); }
__global__ void many_sums(float* out) { atomicAdd(&out[threadIdx.x], 1.0f); }

// --- Shared memory ------------------------------------------------------------------------------

template <class T, int kPitch, int kRow, int kColumn>  // lane l takes element l kRow, l kColumn
__global__ void tile(float* out) {
    __shared__ T data[32][kPitch];
    for (int i = 0; i < 32; ++i) data[i][threadIdx.x] = {};
    __syncthreads();
    const T value = data[threadIdx.x * kRow][threadIdx.x * kColumn];
    reinterpret_cast<T*>(out)[threadIdx.x] = value;
}

__global__ void dynamic(float* out) {
    extern __shared__ float data[];
    data[threadIdx.x] = 1;
    out[threadIdx.x] = data[threadIdx.x ^ 1];
}

__global__ void shared_sum(float* out) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1.0f);
    __syncthreads();
    if (threadIdx.x == 0) *out = sum;
}

__global__ void async_copy(const float* in, float* out) {
    alignas(16) __shared__ float data[128];
    __pipeline_memcpy_async(&data[threadIdx.x * 4], &in[threadIdx.x * 4], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = data[threadIdx.x];
}

// --- Tensor cores -------------------------------------------------------------------------------

__global__ void wmma_tile(const half* in, float* out) {
    namespace wmma = nvcuda::wmma;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    wmma::fill_fragment(b, half(1.0f));
    wmma::load_matrix_sync(a, in, 64);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(out, c, 16, wmma::mem_row_major);
}

template <int kPitch>
__global__ void matrices(float* out) {
    alignas(16) __shared__ uint16_t data[32 * kPitch];
    uint32_t r[4];
    ptx::ldmatrix_x4(r, &data[threadIdx.x * kPitch]);
    out[threadIdx.x] = float(r[0] + r[1] + r[2] + r[3]);
}

// --- Hopper -------------------------------------------------------------------------------------

/// Row r of a matrix, of 64 elements, has its 16 bytes number c in place c, or c ^ (r % 8).
template <bool kSwizzled>
__global__ void stored_matrices() {
    alignas(1024) __shared__ uint16_t data[32][64];
    const int row = threadIdx.x;
    hopper::stmatrix_x4(&data[row][(kSwizzled ? 3 ^ row % 8 : 3) * 8], 1, 2, 3, 4);
}

/// The box of 16 x 64 elements in the corner of the matrix, and one of which 8 x 32 are within it.
__global__ void boxes(const __grid_constant__ CUtensorMap in,
                      const __grid_constant__ CUtensorMap out) {
    alignas(1024) __shared__ half tile[2][16][64];
    __shared__ hopper::Barrier full;
    hopper::mbarrier_init(&full, 1);
    hopper::mbarrier_arrive_expect_tx(&full, sizeof tile);
    hopper::tma_load(tile[0], in, 0, 0, &full);
    hopper::tma_load(tile[1], in, 16, 64, &full);
    hopper::mbarrier_wait(&full, 0);
    hopper::tma_store(out, 0, 0, tile[0]);
    hopper::tma_store(out, 16, 64, tile[1]);
    hopper::cp_async_bulk_commit_group();
    hopper::cp_async_bulk_wait_group_read<0>();
}

/// One block's copy into two.
__global__ void __cluster_dims__(2) multicast(const __grid_constant__ CUtensorMap in) {
    alignas(1024) __shared__ half tile[16][64];
    __shared__ hopper::Barrier full;
    hopper::mbarrier_init(&full, 1);
    hopper::fence_mbarrier_init();
    hopper::barrier_cluster_sync();
    hopper::mbarrier_arrive_expect_tx(&full, sizeof tile);
    if (hopper::cluster_ctarank() == 0) hopper::tma_load_multicast(tile, in, 0, 0, &full, 3);
    hopper::mbarrier_wait(&full, 0);
    hopper::barrier_cluster_sync();
}

/// Two lanes want the same bank, of two blocks.
__global__ void __cluster_dims__(2) neighbors(float* out) {
    namespace cg = cooperative_groups;
    __shared__ float data[32];
    data[threadIdx.x] = 1;
    hopper::barrier_cluster_sync();
    const float* const from = cg::this_cluster().map_shared_rank(data, threadIdx.x % 2);
    out[threadIdx.x] = from[threadIdx.x / 2];
    hopper::barrier_cluster_sync();
}

/// 64 bytes that begin in the middle of a sector.
__global__ void bulk_copy(const float4* in) {
    __shared__ float4 data[4];
    __shared__ hopper::Barrier full;
    hopper::mbarrier_init(&full, 1);
    hopper::mbarrier_arrive_expect_tx(&full, sizeof data);
    hopper::cp_async_bulk(data, in + 1, sizeof data, &full, ptx::createpolicy_evict_last());
    hopper::mbarrier_wait(&full, 0);
}

/// The second of two warpgroups multiplies, and meets.
__global__ void warpgroups() {
    alignas(1024) __shared__ half A[64][64], B[2][64][64];
    if (threadIdx.x < 128) return;
    constexpr uint64_t kRowsOf128Bytes = uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
    float sums[64];
    hopper::wgmma_fence();
    hopper::wgmma_mma_async<half>(
        sums, hopper::shared_address(A) >> 4 | kRowsOf128Bytes,
        hopper::shared_address(B) >> 4 | (sizeof B[0] >> 4) << 16 | kRowsOf128Bytes, false);
    hopper::wgmma_commit_group();
    hopper::wgmma_wait_group<0>();
    hopper::barrier_sync_warpgroup(1);
}

/// Of a matrix of 24 x 96, in boxes of 16 x 64.
/// 10 rows of 8 numbers, in a tile of 8 rows and one of 2.
__tile_global__ void tiles(const half* in, float* out) {
    namespace ct = cuda::tiles;
    auto I = ct::partition_view{ct::tensor_span{in, ct::extents{10u, 8u}}, ct::shape<8, 8>{}};
    auto O = ct::partition_view{ct::tensor_span{out, ct::extents{10u, 8u}}, ct::shape<8, 8>{}};
    auto tile = I.load_masked(int(ct::bid().x), 0);
    auto square = ct::mma(tile, tile, ct::zeros<ct::tile<float, ct::shape<8, 8>>>());
    O.store_masked(square, int(ct::bid().x), 0);
}

CUtensorMap map_of(half* matrix) {
    CUtensorMap map;
    const cuuint64_t size[] = {96, 24}, pitch[] = {96 * sizeof(half)};
    const cuuint32_t box[] = {64, 16}, stride[] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, matrix, size, pitch, box,
                           stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

int main(int argc, char** argv) {
    constexpr size_t kBytes = 32 << 10;
    float *in, *out;
    cudaMalloc(&in, kBytes);
    cudaMalloc(&out, kBytes);
    cudaMemset(in, 0, kBytes);
    cudaMemset(out, 0, kBytes);
    auto as = [&]<class T>(T*& from, T*& to) {
        from = reinterpret_cast<T*>(in);
        to = reinterpret_cast<T*>(out);
    };
    float4 *in4, *out4;
    half *in_half, *out_half;
    Point *in_point, *out_point;
    as(in4, out4);
    as(in_half, out_half);
    as(in_point, out_point);
    char* odd;  // 67 bytes
    cudaMalloc(&odd, 67);
    half* const odd_half = reinterpret_cast<half*>(odd);
    const CUtensorMap in_map = map_of(in_half), out_map = map_of(out_half);

    const std::map<std::string, std::function<void()>> cases{
        {"stride_1", [&] { strided<float, 1><<<1, 32>>>(in, out); }},
        {"stride_2", [&] { strided<float, 2><<<1, 32>>>(in, out); }},
        {"stride_32", [&] { strided<float, 32><<<1, 32>>>(in, out); }},
        {"broadcast", [&] { strided<float, 0><<<1, 32>>>(in, out); }},
        {"offset_1", [&] { strided<float, 1, 1><<<1, 32>>>(in, out); }},
        {"blocks", [&] { strided<float, 1><<<dim3(3, 2), dim3(8, 5)>>>(in, out); }},
        {"halves", [&] { strided<half, 1><<<1, 32>>>(in_half, out_half); }},
        {"float4", [&] { strided<float4, 1><<<1, 32>>>(in4, out4); }},
        {"float3", [&] { strided<Point, 1><<<1, 32>>>(in_point, out_point); }},
        {"vector_arithmetic", [&] { vector_arithmetic<<<1, 32>>>(in4, out4); }},
        {"read_modify_write", [&] { read_modify_write<<<1, 32>>>(out); }},
        {"hinted", [&] { hinted<<<1, 32>>>(in, out); }},
        {"half_the_warp", [&] { half_the_warp<<<1, 32>>>(in, out); }},
        {"triangle", [&] { triangle<<<1, 32>>>(in, out); }},
        {"registers", [&] { apart::registers<apart::Values<4>><<<1, 32>>>(in, out); }},
        {"one_sum", [&] { one_sum<<<1, 64>>>(out); }},
        {"sums_of_pairs", [&] { sums_of_pairs<<<1, 64>>>(out); }},
        {"many_sums", [&] { many_sums<<<4, 64>>>(out); }},
        {"rows", [&] { tile<float, 32, 0, 1><<<1, 32>>>(out); }},
        {"columns", [&] { tile<float, 32, 1, 0><<<1, 32>>>(out); }},
        {"padded_columns", [&] { tile<float, 33, 1, 0><<<1, 32>>>(out); }},
        {"every_other", [&] { tile<float, 64, 0, 2><<<1, 32>>>(out); }},
        {"same_word", [&] { tile<float, 32, 0, 0><<<1, 32>>>(out); }},
        {"doubles", [&] { tile<double, 32, 0, 1><<<1, 32>>>(out); }},
        {"double_columns", [&] { tile<double, 32, 1, 0><<<1, 32>>>(out); }},
        {"float4_row", [&] { tile<float4, 32, 0, 1><<<1, 32>>>(out); }},
        {"every_other_float4", [&] { tile<float4, 64, 0, 2><<<1, 32>>>(out); }},
        {"dynamic", [&] { dynamic<<<2, 64, 64 * sizeof(float)>>>(out); }},
        {"shared_sum", [&] { shared_sum<<<1, 64>>>(out); }},
        {"async_copy", [&] { async_copy<<<1, 32>>>(in, out); }},
        {"wmma_tile", [&] { wmma_tile<<<1, 32>>>(in_half, out); }},
        {"matrices", [&] { matrices<64><<<1, 32>>>(out); }},
        {"padded_matrices", [&] { matrices<72><<<1, 32>>>(out); }},
        {"stored_matrices", [&] { stored_matrices<false><<<1, 32>>>(); }},
        {"swizzled_matrices", [&] { stored_matrices<true><<<1, 32>>>(); }},
        {"boxes", [&] { boxes<<<1, 1>>>(in_map, out_map); }},
        {"multicast", [&] { multicast<<<2, 1>>>(in_map); }},
        {"neighbors", [&] { neighbors<<<2, 32>>>(out); }},
        {"bulk_copy", [&] { bulk_copy<<<1, 1>>>(in4); }},
        {"warpgroups", [&] { warpgroups<<<1, 256>>>(); }},
        {"tiles", [&] { tiles<<<2>>>(in_half, out); }},
        {"twice",
         [&] { strided<float, 1><<<1, 32>>>(in, out), strided<float, 1><<<1, 32>>>(in, out); }},
        {"one_past", [&] { strided<char, 1, 1><<<1, 32>>>(odd + 36, odd); }},
        {"one_past_in_part", [&] { strided<half, 1><<<1, 34>>>(in_half, odd_half); }},
        {"one_before", [&] { strided<char, 1><<<1, 32>>>(odd - 1, odd); }},
        {"nothing", [] {}},
    };
    const auto found = cases.find(argv[argc - 1]);  // DEMO_COUNT=1 puts --once in front
    if (found == cases.end()) return 2;
    found->second();
    const cudaError_t error = cudaGetLastError();
    std::printf("%s\n", cudaGetErrorName(error));
    return error == cudaSuccess ? 0 : 3;
}
