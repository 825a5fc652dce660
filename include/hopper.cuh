// What programs for Hopper need besides its instructions (ptx_hopper.cuh): descriptors of tiles in
// shared memory and of matrices in global memory, and whether the GPU at hand can run them.
#pragma once

#include <cuda.h>

#include <string>
#include <type_traits>

#include "demo/launch.cuh"
#include "ptx_hopper.cuh"

namespace hopper {

/// The descriptor by which wgmma finds an operand, a tile with rows of kColumns elements: 64, 32 or
/// 16. `panel_bytes`: the distance from so many columns of B to the next, if there are more.
/// Section "Matrix Descriptor Format".
template <int kColumns = 64>
__device__ uint64_t matrix_descriptor(const void* tile, uint32_t panel_bytes = 0) {
    static_assert(kColumns == 64 || kColumns == 32 || kColumns == 16);
    const uint64_t swizzle = kColumns == 64 ? 1 : kColumns == 32 ? 2 : 3;
    const uint64_t eight_rows = 8 * 2 * kColumns;
    return (shared_address(tile) & 0x3FFFF) >> 4 | uint64_t(panel_bytes >> 4) << 16 |
           (eight_rows >> 4) << 32 | swizzle << 62;
}

/// Describes a row-major matrix [rows, columns] of 16-bit elements to TMA, which copies it in boxes
/// of box_rows x kColumns elements, 64, 32 or 16 (twice as many bytes a row, swizzled); or of
/// floats, half as many in as many bytes. A row must have a multiple of 16 bytes. With `panels`,
/// tma_load_panels() copies that many boxes beside each other at once; then columns must be a
/// multiple of 64, and there may be `matrices`, one after the other. CUDA driver API,
/// cuTensorMapEncodeTiled.
template <int kColumns = 64, class T>
CUtensorMap tensor_map(const T* matrix, size_t rows, size_t columns, uint32_t box_rows,
                       uint32_t panels = 0, size_t matrices = 1) {
    static_assert(sizeof(T) == 2 || std::is_same_v<T, float>);
    static_assert(kColumns == 64 || kColumns == 32 || kColumns == 16);
    // Looked up at run time instead of linked, so that programs start without a driver, too.
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
#if CUDART_VERSION >= 12050
    DEMO_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                cudaEnableDefault, &found));
#else
    DEMO_CHECK(
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess)
        demo::fail(demo::kSkipped, "the NVIDIA driver is too old for TMA: CUDA 12 is needed");
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);

    CUtensorMap map;
    const size_t row = columns * sizeof(T);
    const cuuint64_t size[] = {panels > 0 ? 64 : columns, rows, columns / 64, matrices},
                     pitch[] = {row, 64 * sizeof(T), rows * row};
    const cuuint32_t box[] = {2 * kColumns / sizeof(T), box_rows, panels, 1},
                     stride[] = {1, 1, 1, 1};
    const CUresult result =
        encode(&map,
               std::is_same_v<T, float>    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
               : std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               panels > 0 ? 4 : 2, const_cast<T*>(matrix), size, pitch, box, stride,
               CU_TENSOR_MAP_INTERLEAVE_NONE,
               kColumns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
               : kColumns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                : CU_TENSOR_MAP_SWIZZLE_32B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        demo::fail(demo::kFailed, "cuTensorMapEncodeTiled: error " + std::to_string(result));
    return map;
}

/// The target that the running code was compiled for.
enum class Target { kOlder, kSm90, kSm90a };

__global__ void compiled_for(Target* answer) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    *answer = Target::kSm90a;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    *answer = Target::kSm90;
#else
    *answer = Target::kOlder;
#endif
}

inline Target target() {
    const demo::Buffer<Target> answer(1);
    Target target = Target::kOlder;
    compiled_for<<<1, 1>>>(answer.data());
    DEMO_CHECK(cudaMemcpy(&target, answer.data(), sizeof target, cudaMemcpyDeviceToHost));
    return target;
}

/// Whether mbarriers, clusters and bulk copies work here.
inline bool has_bulk_copies() { return target() != Target::kOlder; }

/// Why kernels with wgmma cannot run on `gpu`; empty if they can.
inline std::string why_not(const demo::Gpu& gpu) {
    if (gpu.compute_capability >= 120) return "needs Hopper: Blackwell has no wgmma";
    if (gpu.compute_capability >= 100) return "needs Hopper: Blackwell has tcgen05, not wgmma";
    const std::string needs = "needs Hopper (compute capability 9.0)";
    if (gpu.compute_capability != 90) return needs;
    return demo::dry_run || target() == Target::kSm90a ? "" : needs + " and scons arch=90a";
}

}  // namespace hopper
