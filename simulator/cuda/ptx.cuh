// ptx.cuh for the simulator: the same functions in plain C++. Which lane holds which element is
// what the PTX ISA says, so that what a kernel makes of it is tested here too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "../async_copies.hpp"
#include "../count.hpp"
#include "../errors.hpp"
#include "../scheduler.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace simulator {

/// What a lane brings to ldmatrix: the row that it names, and room for its result.
struct MatrixRow {
    const unsigned char* row;
    uint32_t* r;  // [4]
    Site site;
};

inline void require_whole_warp(unsigned int mask, const Site& site) {
    if (mask != ~0u) fail(3, "%s needs a whole warp", text(site).c_str());
}

/// The lanes' common work: four 8 x 8 matrices, from the 32 rows that they name.
template <bool kTransposed>
void load_matrices(void* const* records, unsigned int mask) {
    auto of = [&](int lane) -> const MatrixRow& {
        return *static_cast<const MatrixRow*>(records[lane]);
    };
    require_whole_warp(mask, of(0).site);
    for (int lane = 0; lane < 32; ++lane)
        if (reinterpret_cast<uintptr_t>(of(lane).row) % 16 != 0)
            fail(3, "%s: lane %d names a row that is not aligned to 16 bytes",
                 text(of(lane).site).c_str(), lane);
    for (int matrix = 0; matrix < 4; ++matrix) {
        uint16_t elements[8][8];
        for (int row = 0; row < 8; ++row)
            std::memcpy(elements[row], of(8 * matrix + row).row, sizeof elements[row]);
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = lane % 4;
            const uint32_t low = kTransposed ? elements[2 * t][g] : elements[g][2 * t];
            const uint32_t high = kTransposed ? elements[2 * t + 1][g] : elements[g][2 * t + 1];
            of(lane).r[matrix] = low | high << 16;
        }
    }
}

/// What a lane brings to mma: its parts of d, a and b.
struct MatrixProduct {
    float* d;           // [4]
    const uint32_t* a;  // [4]
    uint32_t b[2];
    Site site;
};

/// The numbers of 4 bytes of an operand: two halfs, or a float as TF32.
struct TwoHalfs {
    static constexpr int kCount = 2;
    static float number(uint32_t bits, int i) {
        return float(__half::from_bits(static_cast<unsigned short>(bits >> 16 * i)));
    }
};
struct Tf32 {
    static constexpr int kCount = 1;
    static float number(uint32_t bits, int) {
        bits &= ~0x1FFFu;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
};

/// The lanes' common work: d[16, 8] += a[16, depth] b[depth, 8], which is 32 bytes deep.
template <class Word>
void multiply_matrices(void* const* records, unsigned int mask) {
    require_whole_warp(mask, static_cast<MatrixProduct*>(records[0])->site);
    constexpr int kCount = Word::kCount, kDepth = 8 * kCount;
    float a[16][kDepth], b[kDepth][8], d[16][8];
    auto unpack = [](uint32_t word, float* to, int stride) {
        for (int i = 0; i < kCount; ++i) to[i * stride] = Word::number(word, i);
    };
    for (int lane = 0; lane < 32; ++lane) {
        const MatrixProduct& own = *static_cast<MatrixProduct*>(records[lane]);
        const int g = lane / 4, t = lane % 4, k = kCount * t, more = kDepth / 2;
        unpack(own.a[0], &a[g][k], 1), unpack(own.a[2], &a[g][k + more], 1);
        unpack(own.a[1], &a[g + 8][k], 1), unpack(own.a[3], &a[g + 8][k + more], 1);
        unpack(own.b[0], &b[k][g], 8), unpack(own.b[1], &b[k + more][g], 8);
        std::copy_n(own.d, 2, &d[g][2 * t]), std::copy_n(own.d + 2, 2, &d[g + 8][2 * t]);
    }
    for (int k = 0; k < kDepth; ++k)  // outside, so that no sum waits for its own last addition
        for (int row = 0; row < 16; ++row)
            for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < 32; ++lane) {
        float* const to = static_cast<MatrixProduct*>(records[lane])->d;
        const int g = lane / 4, t = lane % 4;
        std::copy_n(&d[g][2 * t], 2, to), std::copy_n(&d[g + 8][2 * t], 2, to + 2);
    }
}

}  // namespace simulator

namespace ptx {

inline void cp_async_16(void* to, const void* from, bool inside, SIMULATOR_SITE) {
    simulator::async_copy(to, from, 16, inside ? 0 : 16, {"cp_async_16()", file, line});
}
inline void cp_async_16(void* to, const void* from, SIMULATOR_SITE) {
    simulator::async_copy(to, from, 16, 0, {"cp_async_16()", file, line});
}
inline void cp_async_commit_group() { simulator::async_commit(); }
template <int kGroups>
void cp_async_wait_group() {
    simulator::async_wait(kGroups);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, SIMULATOR_SITE) {
    simulator::MatrixRow own{
        static_cast<const unsigned char*>(row), r, {"ldmatrix_x4()", file, line}};
    simulator::count_access(row, 16, false, own.site);
    simulator::warp_meet(~0u, &own, simulator::load_matrices<false>, own.site);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, SIMULATOR_SITE) {
    simulator::MatrixRow own{
        static_cast<const unsigned char*>(row), r, {"ldmatrix_x4_trans()", file, line}};
    simulator::count_access(row, 16, false, own.site);
    simulator::warp_meet(~0u, &own, simulator::load_matrices<true>, own.site);
}

inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                         SIMULATOR_SITE) {
    simulator::MatrixProduct own{d, a, {b0, b1}, {"mma_m16n8k16()", file, line}};
    simulator::warp_meet(~0u, &own, simulator::multiply_matrices<simulator::TwoHalfs>, own.site);
}
inline void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                        SIMULATOR_SITE) {
    simulator::MatrixProduct own{d, a, {b0, b1}, {"mma_m16n8k8()", file, line}};
    simulator::warp_meet(~0u, &own, simulator::multiply_matrices<simulator::Tf32>, own.site);
}

template <class T>
uint32_t cvt_rn_x2(float low, float high) {
    const T pair[2] = {T(low), T(high)};
    uint32_t bits;
    std::memcpy(&bits, pair, sizeof bits);
    return bits;
}
inline constexpr int kCopiesInARow = 64;                 // for #pragma unroll, which g++ ignores
inline uint64_t createpolicy_evict_last() { return 0; }  // there is no cache
inline uint64_t createpolicy_evict_first() { return 0; }
inline float ex2_approx(float x) { return std::exp2(x); }
inline float rcp_approx(float x) { return 1 / x; }
inline float tanh_approx(float x) { return std::tanh(x); }
template <class T>
void ld_global_evict_last(T& to, const T* from) {
    static_assert(sizeof(T) == 16);
    to = *from;
}
template <class T>
void ld_global_evict_last_if(bool wanted, T& to, const T* from) {
    static_assert(sizeof(T) == 16);
    if (wanted) to = *from;
}
template <class T>
void st_global_cs_if(bool wanted, T* to, const T& value) {
    if (wanted) *to = value;
}
inline void prefetch_L2(const void* from) { *static_cast<const volatile char*>(from); }
/// Touches the ends: what lies outside the buffer would be found.
inline void cp_async_bulk_prefetch_L2(const void* from, uint32_t bytes) {
    if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
        simulator::fail(3, "cp_async_bulk_prefetch_L2: address and size must be multiples of 16");
    const volatile char* const first = static_cast<const char*>(from);
    first[0], first[bytes - 1];
}

}  // namespace ptx
