#include "tensor_map.hpp"

#include <cstring>

#include "cuda/cuda.h"
#include "cuda/cuda_runtime_api.h"
#include "errors.hpp"

namespace simulator {
namespace {

/// The 128 bytes, in a layout of our own: NVIDIA's is not documented.
struct Packed {
    uint32_t mark;
    uint8_t rank, element_bytes, swizzle_bytes, unused;
    uint64_t data;
    uint64_t pitch[4];
    uint32_t size_minus_1[5];
    uint32_t box[5];
};
static_assert(sizeof(Packed) <= sizeof(CUtensorMap));
constexpr uint32_t kMark = 0x7A9B0C3D;

constexpr uint8_t kElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};  // by CUtensorMapDataType

}  // namespace

TensorMap decode(const CUtensorMap& map, const Site& site) {
    Packed packed;
    std::memcpy(&packed, &map, sizeof packed);
    if (packed.mark != kMark)
        fail(3, "%s: these 128 bytes are no tensor map of cuTensorMapEncodeTiled()",
             text(site).c_str());
    TensorMap result{};
    result.data = reinterpret_cast<char*>(packed.data);
    result.rank = packed.rank;
    result.element_bytes = packed.element_bytes;
    result.swizzle_bytes = packed.swizzle_bytes;
    for (unsigned int d = 0; d < packed.rank; ++d) {
        result.size[d] = int64_t(packed.size_minus_1[d]) + 1;
        result.pitch[d] = d == 0 ? packed.element_bytes : int64_t(packed.pitch[d - 1]);
        result.box[d] = packed.box[d];
    }
    return result;
}

}  // namespace simulator

// The limits are those that the driver API's manual names.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* size, const cuuint64_t* pitch,
                                const cuuint32_t* box, const cuuint32_t* stride,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    using namespace simulator;
    const uint64_t data = reinterpret_cast<uint64_t>(address);
    if (!map || type > CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || rank < 1 || rank > 5 || data % 16 != 0 ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
        return CUDA_ERROR_INVALID_VALUE;
    const uint8_t swizzle_bytes[] = {0, 32, 64, 128};
    Packed packed{
        kMark, uint8_t(rank), kElementBytes[type], swizzle_bytes[swizzle], 0, data, {}, {}, {}};
    const uint64_t row_bytes = uint64_t(box[0]) * packed.element_bytes;
    if (row_bytes % 16 != 0 || (packed.swizzle_bytes && row_bytes > packed.swizzle_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t d = 0; d < rank; ++d) {
        if (size[d] == 0 || size[d] > uint64_t(1) << 32 || box[d] == 0 || box[d] > 256 ||
            stride[d] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        packed.size_minus_1[d] = uint32_t(size[d] - 1);
        packed.box[d] = box[d];
        if (d == 0) continue;
        if (pitch[d - 1] % 16 != 0 || pitch[d - 1] >= uint64_t(1) << 40)
            return CUDA_ERROR_INVALID_VALUE;
        packed.pitch[d - 1] = pitch[d - 1];
    }
    *map = {};
    std::memcpy(map, &packed, sizeof packed);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
    const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
    if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
