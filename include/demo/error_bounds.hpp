// What a right result is: the random data, the rows that are checked, and how far rounding alone
// may move an element. Plain arithmetic, for host and device, so that tests run it without a GPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef __CUDACC__
#define DEMO_HOST_DEVICE __host__ __device__
#else
#define DEMO_HOST_DEVICE
#endif

namespace demo {

/// 64 well-mixed bits of the pair (seed, i): the SplitMix64 generator's output function
/// (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
DEMO_HOST_DEVICE inline uint64_t random_bits(uint64_t seed, uint64_t i) {
    uint64_t z = (seed + 1) * 0xD1342543DE82EF95u + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/// Element i of the data set `seed`: uniform in [-1, 1], in steps of 2^-23.
DEMO_HOST_DEVICE inline float random_uniform(uint64_t seed, uint64_t i) {
    return float(random_bits(seed, i) >> 40) * 0x1p-23f - 1.0f;
}

/// The same in fp64, in steps of 2^-52.
DEMO_HOST_DEVICE inline double random_uniform_fp64(uint64_t seed, uint64_t i) {
    return double(random_bits(seed, i) >> 11) * 0x1p-52 - 1.0;
}

/// Id i of the data set `seed`: 32 bits, all ids equally often.
DEMO_HOST_DEVICE inline uint32_t random_id(uint64_t seed, uint64_t i) {
    return uint32_t(random_bits(seed, i) >> 32);
}

/// The same by a Zipf law: id k - 1 is drawn with probability ~ k^-1.05, for k below 2^32. With u
/// uniform in [0, 1), k = (1 - u (1 - 2^(-32 * 0.05)))^-20: the inverse of the law's sums, taken as
/// an integral. The difference is exact, since u has 32 bits and the constant 21; the rest are
/// products and a quotient, so that every machine and Python find the same ids.
DEMO_HOST_DEVICE inline uint32_t zipf_id(uint64_t seed, uint64_t i) {
    const double u = double(random_id(seed, i)) * 0x1p-32;
    const double y = 1 / (1 - u * (1405349 * 0x1p-21)), y2 = y * y, y4 = y2 * y2, y8 = y4 * y4;
    return uint32_t(y8 * y8 * y4) - 1;
}

/// The rows of a result that are checked if all would take too long: all of up to 2048 rows; else
/// the first and the last 32, and one at random of every 32 in between.
std::vector<size_t> sampled_rows(size_t rows, uint64_t seed);

/// How the numbers of a hard row follow from u, uniform in [-1, 1]: scale * u + offset, rounded to
/// a multiple of `step`, unless that is 0. One column, drawn at random, holds `peak`, unless that
/// is 0.
struct HardRow {
    float scale = 0, offset = 0, step = 0, peak = 0;
};

/// Rows of an input on which kernels go wrong that are right on random numbers. They are always
/// checked: every second row of the first 32 and the last strip of sampled_rows(), of fewer than
/// 128 rows every fourth. They take the kinds in turn.
struct HardRows {
    HardRow kinds[8];
    unsigned int count;  // of kinds; 0: no row is hard
    size_t rows = 0;     // of the input, set by Registered::harden()

    DEMO_HOST_DEVICE unsigned int every() const { return rows < 128 ? 4 : 2; }
    DEMO_HOST_DEVICE bool is_hard(size_t row) const {
        if (count == 0 || row % every() != every() - 1) return false;
        return row < 32 || row >= (rows - 1) / 32 * 32;
    }
    DEMO_HOST_DEVICE const HardRow& kind_of(size_t row) const {
        return kinds[row / every() % count];
    }
};

/// Hard rows of a product's left operand A, whose random numbers are within `scale`: all equal, all
/// negative, subnormal in fp16, one number (so C holds a row of B exactly), and `large` times
/// larger.
inline constexpr double kHardScale = 8;
constexpr HardRows hard_operand(float scale = 1, double large = kHardScale) {
    return {.kinds = {{.offset = 0.75f * scale},
                      {.scale = scale / 2, .offset = -scale / 2},
                      {.scale = 0x1p-15f * scale},
                      {.peak = scale},
                      {.scale = float(large) * scale}},
            .count = 5};
}

/// How large an element of A B may be, with inner dimension K and terms a b of independent random
/// numbers within [-scale, scale], whose mean is 0: by Hoeffding's inequality (JASA 58, 1963) one
/// in 10^31 is larger. A larger one, in a row that was not sampled, is wrong.
DEMO_HOST_DEVICE inline double largest_product(size_t K, double scale) {
    return 12 * sqrt(double(K)) * scale;
}

/// A floating-point format that results are rounded to: relative and absolute half spacing.
struct Format {
    double roundoff;   // of normal numbers
    double subnormal;  // of numbers below the smallest normal one
};
inline constexpr Format kFp64{0x1p-53, 0}, kFp32{0x1p-24, 0}, kFp16{0x1p-11, 0x1p-25},
    kBf16{0x1p-8, 0}, kInteger{0, 0};

/// One element of A B in fp64, with the same element of |A| |B|; or with 0 where at most one term
/// is not 0, so that nothing is added.
struct Product {
    double value, magnitude;
};

/// What an element must be, and how far from it rounding may take a right kernel.
struct Expected {
    double value, tolerance;
};

/// False for what rounding explains; true for all else, NaN included.
DEMO_HOST_DEVICE inline bool is_wrong(double result, Expected expected) {
    return !(fabs(result - expected.value) <= expected.tolerance);
}

/// The precision in which products are accumulated.
enum class SumsIn { kFp32, kFp64, kExact, k14Bits };

/// How far accumulating K products may take their sum, in any order. Rounding errors are
/// independent enough to grow with sqrt(K), not K: right kernels stay under 0.3 of this in fp32.
DEMO_HOST_DEVICE inline double accumulation_error(Product product, size_t K,
                                                  SumsIn sums = SumsIn::kFp32) {
    switch (sums) {
        case SumsIn::kExact:  // integers
            return 0;
        case SumsIn::kFp64:  // twice: the reference is a sum in fp64, too
            return 2 * sqrt(double(K)) * 0x1p-53 * product.magnitude;
        // Tensor cores add fp8's products with some 14 significant bits (DeepSeek-V3 Technical
        // Report, section 3.3.2): they cut off what is below 2^-13 of the largest number. K such
        // errors grow with sqrt(K), and the largest number is the sum so far: of random numbers it
        // stays below 8 |A||B| / sqrt(K), six standard deviations. So K cancels. (Measured on an
        // H100 at K = 4096: 0.37 of this.) Sums kept in bf16 are off by twice as much, inputs in
        // e5m2 by three times, and a lost product is seen up to K = 4096.
        case SumsIn::k14Bits:
            return 0x1p-10 * product.magnitude;
        default:
            return sqrt(double(K)) * 0x1p-24 * product.magnitude;
    }
}

/// An element of C = A B with inner dimension K, accumulated in `sums` and stored as `out`.
DEMO_HOST_DEVICE inline Expected expect_matmul(Product product, size_t K, Format out,
                                               SumsIn sums = SumsIn::kFp32) {
    return {product.value, accumulation_error(product, K, sums) +
                               out.roundoff * fabs(product.value) + out.subnormal};
}

}  // namespace demo
