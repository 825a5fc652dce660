// What cuda/cuda_tile.h leaves to the runtime: checks, and the product of two matrices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "call_site.hpp"

namespace simulator {

/// A tile kernel begins: fails if its launch asks for threads.
void tile_block();

/// A tile of a tensor, along each dimension: how many elements the tensor has and the tile, and
/// which of the tensor's tiles it is.
struct TilePlace {
    size_t rank;
    const uint64_t* tensor;
    const size_t* tile;
    const int64_t* index;
};

/// Fails if the tile has no element in the tensor, or unless `masked` one that is outside of it.
void check_tile(const TilePlace& place, bool masked, const Site& site);

/// What a tile's rows, one after the other, move between the chip and memory.
struct TileTraffic {
    size_t bytes = 0, sectors = 0;  // of 32 bytes

    void add(const volatile void* row, size_t bytes_of_row) {
        const auto begin = reinterpret_cast<uintptr_t>(row);
        const uintptr_t first = begin / 32, last = (begin + bytes_of_row - 1) / 32;
        bytes += bytes_of_row;
        sectors += last - first + (first != last_);  // rows may share one
        last_ = last;
    }

  private:
    uintptr_t last_ = 0;
};

/// Fail if what the kernel promises the compiler does not hold.
void check_aligned(const void* pointer, size_t alignment, const Site& site);
void check_divisible(int64_t value, int64_t divisor, const Site& site);
void check_bounded(int64_t value, int64_t low, int64_t high, const Site& site);
[[noreturn]] void fail_extent(uint64_t extent, size_t bytes);
[[noreturn]] void fail_step(int64_t step);

/// C[m,n] += A[m,k] B[k,n], row by row, in fp32.
void multiply(size_t m, size_t n, size_t k, const float* A, const float* B, float* C);

}  // namespace simulator
