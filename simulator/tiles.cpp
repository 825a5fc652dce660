#include "tiles.hpp"

#include <cstring>
#include <string>

#include "cuda/device_launch_parameters.h"
#include "errors.hpp"
#include "memory.hpp"

namespace simulator {
namespace {

/// "128 x 64", of numbers along each dimension.
template <class T>
std::string text(const T* numbers, size_t rank, const char* between) {
    std::string text;
    for (size_t i = 0; i < rank; ++i) text += (i ? between : "") + std::to_string(numbers[i]);
    return text;
}

}  // namespace

void tile_block() {
    if (blockDim.x != 1 || blockDim.y != 1 || blockDim.z != 1)
        fail(3, "a tile kernel, launched in blocks of %s threads: it takes <<<blocks>>> alone",
             text(uint3(blockDim)).c_str());
}

void check_tile(const TilePlace& place, bool masked, const Site& site) {
    bool inside = true, apart = false;
    for (size_t i = 0; i < place.rank; ++i) {
        const int64_t index = place.index[i];
        const auto tiles = int64_t(place.tensor[i] / place.tile[i]);  // whole ones
        const bool rest = place.tensor[i] % place.tile[i] != 0;
        inside &= index >= 0 && index < tiles;
        apart |= index < 0 || index >= tiles + rest;
    }
    if (inside || (masked && !apart)) return;
    fail(3, "%s: tile (%s) of %s elements %s the tensor of %s", simulator::text(site).c_str(),
         text(place.index, place.rank, ",").c_str(), text(place.tile, place.rank, " x ").c_str(),
         apart ? "lies outside of" : "reaches over the edge of",
         text(place.tensor, place.rank, " x ").c_str());
}

void check_aligned(const void* pointer, size_t alignment, const Site& site) {
    const size_t beyond = bytes_beyond_alignment(pointer, alignment);
    if (beyond == 0) return;
    fail(3, "%s: %p is not aligned to %zu bytes, but %zu bytes beyond", text(site).c_str(), pointer,
         alignment, beyond);
}

void check_divisible(int64_t value, int64_t divisor, const Site& site) {
    if (value % divisor == 0) return;
    fail(3, "%s: %lld is no multiple of %lld", text(site).c_str(), (long long)value,
         (long long)divisor);
}

void check_bounded(int64_t value, int64_t low, int64_t high, const Site& site) {
    if (low <= value && value <= high) return;
    fail(3, "%s: %lld is %s", text(site).c_str(), (long long)value,
         value < low ? ("less than " + std::to_string(low)).c_str()
                     : ("more than " + std::to_string(high)).c_str());
}

void fail_extent(uint64_t extent, size_t bytes) {
    fail(3, "an extent of %llu does not fit a tensor's indices of %zu bits",
         (unsigned long long)extent, bytes * 8);
}

void fail_step(int64_t step) {
    fail(3, "irange() with a step of %lld: it has to be positive", (long long)step);
}

// --- The product --------------------------------------------------------------------------------

namespace {

typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
constexpr size_t kWidth = sizeof(Vector) / sizeof(float);
constexpr size_t kRows = 4, kVectors = 2;  // of a patch of C whose sums stay in registers

void multiply_patch(size_t n, size_t k, const float* A, const float* B, float* C) {
    Vector sums[kRows][kVectors];
    for (size_t i = 0; i < kRows; ++i)
        for (size_t j = 0; j < kVectors; ++j)
            sums[i][j] = *reinterpret_cast<const Vector*>(C + i * n + j * kWidth);
    for (size_t l = 0; l < k; ++l) {
#pragma GCC unroll 4
        for (size_t i = 0; i < kRows; ++i)
#pragma GCC unroll 2
            for (size_t j = 0; j < kVectors; ++j)
                sums[i][j] +=
                    A[i * k + l] * *reinterpret_cast<const Vector*>(B + l * n + j * kWidth);
    }
    for (size_t i = 0; i < kRows; ++i)
        for (size_t j = 0; j < kVectors; ++j)
            *reinterpret_cast<Vector*>(C + i * n + j * kWidth) = sums[i][j];
}

}  // namespace

void multiply(size_t m, size_t n, size_t k, const float* A, const float* B, float* C) {
    if (m % kRows == 0 && n % (kVectors * kWidth) == 0) {
        for (size_t column = 0; column < n; column += kVectors * kWidth)
            for (size_t row = 0; row < m; row += kRows)
                multiply_patch(n, k, A + row * k, B + column, C + row * n + column);
        return;
    }
    for (size_t i = 0; i < m; ++i)
        for (size_t l = 0; l < k; ++l)
            for (size_t j = 0; j < n; ++j) C[i * n + j] += A[i * k + l] * B[l * n + j];
}

}  // namespace simulator
