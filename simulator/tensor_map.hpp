// Tensor maps: what cuTensorMapEncodeTiled() packs for the copy engine, unpacked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "call_site.hpp"

struct CUtensorMap;

namespace simulator {

struct TensorMap {
    char* data;
    unsigned int rank;
    unsigned int element_bytes;
    unsigned int swizzle_bytes;    // 0, 32, 64 or 128
    std::array<int64_t, 5> size;   // in elements, the innermost first, like box
    std::array<int64_t, 5> pitch;  // in bytes; the innermost is element_bytes
    std::array<int64_t, 5> box;

    size_t box_bytes() const {
        size_t bytes = element_bytes;
        for (unsigned int d = 0; d < rank; ++d) bytes *= size_t(box[d]);
        return bytes;
    }
};

/// Fails if nobody encoded this map.
TensorMap decode(const CUtensorMap& map, const Site& site);

/// Where a byte of a tile is kept in shared memory: chunks of 16 bytes change places by bits of
/// their own address. `swizzle_bytes`: 0, or the width of a row: 32, 64 or 128.
inline uint32_t swizzled(uint32_t address, unsigned int swizzle_bytes) {
    if (swizzle_bytes == 0) return address;
    return address ^ ((address >> 7 & (swizzle_bytes / 16 - 1)) << 4);
}

}  // namespace simulator
