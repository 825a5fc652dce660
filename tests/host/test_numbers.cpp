// Byte counts that cannot wrap, and statistics against their closed forms.
#include <gtest/gtest.h>

#include <limits>

#include "demo/internal.hpp"

namespace {

using namespace demo;

TEST(Saturating, SmallResultsAreExact) {
    EXPECT_EQ(saturating_product(3, 4096, 4096, 4), size_t(201326592));
    EXPECT_EQ(saturating_sum(1, 2, 3), 6u);
    EXPECT_EQ(saturating_product(), 1u);
    EXPECT_EQ(saturating_sum(), 0u);
}

TEST(Saturating, TheLargestExactResultIsNotSaturatedAndTheNextIs) {
    const size_t half = size_t(1) << 32;
    EXPECT_EQ(saturating_product(half, half - 1), half * (half - 1));
    EXPECT_EQ(saturating_product(half, half), SIZE_MAX);
    EXPECT_EQ(saturating_sum(SIZE_MAX - 1, 1), SIZE_MAX);
    EXPECT_EQ(saturating_sum(SIZE_MAX, 1), SIZE_MAX);
}

TEST(Saturating, AHugeSizeStaysHugeWhateverFollows) {
    // 2^62 * 2^62 * 4 is a multiple of 2^64: wrapping would call it 0 bytes.
    EXPECT_EQ(saturating_product(size_t(1) << 62, size_t(1) << 62, 4), SIZE_MAX);
    EXPECT_EQ(saturating_product(size_t(1) << 62, 8, 3, 5), SIZE_MAX);
    EXPECT_EQ(saturating_sum(SIZE_MAX, SIZE_MAX, 5), SIZE_MAX);
}

TEST(Saturating, NothingTimesAnythingIsNothing) {
    EXPECT_EQ(saturating_product(0, SIZE_MAX), 0u);
    EXPECT_EQ(saturating_product(SIZE_MAX, 2, 0), 0u);
}

TEST(LargestThatFits, IsTheLastSizeThatFits) {
    auto bytes = [](size_t n) { return saturating_product(12, n, n); };
    for (size_t free_bytes : {size_t(12287), size_t(12288), size_t(12289), size_t(1) << 30,
                              size_t(150) << 30, SIZE_MAX - 1}) {
        const size_t n = largest_that_fits(32, free_bytes, bytes);
        EXPECT_EQ(n % 32, 0u);
        EXPECT_LE(bytes(n), free_bytes);
        EXPECT_GT(bytes(n + 32), free_bytes) << free_bytes;
    }
    EXPECT_EQ(largest_that_fits(32, 12 * 32 * 32, bytes), 32u);
}

TEST(LargestThatFits, IsZeroWhereNotEvenTheSmallestFits) {
    auto bytes = [](size_t n) { return saturating_product(12, n, n); };
    EXPECT_EQ(largest_that_fits(32, 12 * 32 * 32 - 1, bytes), 0u);
    EXPECT_EQ(largest_that_fits(16, 100, [](size_t) { return SIZE_MAX; }), 0u);
}

TEST(Quantile, InterpolatesLinearlyBetweenNeighbors) {
    const std::vector<double> samples{4, 1, 3, 2};  // in no order
    EXPECT_DOUBLE_EQ(quantile(samples, 0), 1);
    EXPECT_DOUBLE_EQ(quantile(samples, 0.25), 1.75);
    EXPECT_DOUBLE_EQ(quantile(samples, 0.5), 2.5);
    EXPECT_DOUBLE_EQ(quantile(samples, 0.75), 3.25);
    EXPECT_DOUBLE_EQ(quantile(samples, 1), 4);
}

TEST(Quantile, OfAnArithmeticProgressionIsItsClosedForm) {
    std::vector<double> samples;
    for (int i = 100; i >= 0; --i) samples.push_back(7 + 0.5 * i);
    for (double p : {0.0, 0.1, 0.333, 0.5, 0.99, 1.0})
        EXPECT_NEAR(quantile(samples, p), 7 + 50 * p, 1e-12) << p;
}

TEST(Quantile, OfOneSampleIsThatSampleAndOfNoneZero) {
    EXPECT_DOUBLE_EQ(quantile({5}, 0.25), 5);
    EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

TEST(Median, IgnoresOutliers) {
    EXPECT_DOUBLE_EQ(median({3, 1, 1000}), 3);
    EXPECT_DOUBLE_EQ(median({2, 1}), 1.5);
}

TEST(Spread, IsTheInterquartileRangeOverTheMedian) {
    EXPECT_DOUBLE_EQ(spread_percent({1, 2, 3, 4}), 60);  // (3.25 - 1.75) / 2.5
    EXPECT_DOUBLE_EQ(spread_percent({5, 5, 5}), 0);
    EXPECT_DOUBLE_EQ(spread_percent({10, 10, 10, 10, 500}), 0);  // one outlier is no spread
}

TEST(Spread, IsANumberWhateverTheSamples) {
    EXPECT_EQ(spread_percent({}), 0);
    EXPECT_EQ(spread_percent({0, 0, 0}), 0);  // a timer's resolution may swallow a kernel
    EXPECT_EQ(spread_percent({7}), 0);
}

TEST(HumanBytes, PicksTheUnitThatReadsBest) {
    EXPECT_EQ(human_bytes(0), "0 B");
    EXPECT_EQ(human_bytes(1023), "1023 B");
    EXPECT_EQ(human_bytes(1024), "1.0 KiB");
    EXPECT_EQ(human_bytes(96.0 * (1 << 20)), "96.0 MiB");
    EXPECT_EQ(human_bytes(1.5 * (1 << 30)), "1.5 GiB");
    EXPECT_EQ(human_bytes(double(SIZE_MAX)), "16.0 EiB");
}

}  // namespace
