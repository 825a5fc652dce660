// How figures are written. Needs no GPU.
#include <gtest/gtest.h>

#include "demo.cuh"

namespace {

TEST(FourDigits, AreWrittenWithoutAnExponent) {
    EXPECT_EQ(demo::four_digits(0), "0.000");
    EXPECT_EQ(demo::four_digits(3.0625), "3.062");
    EXPECT_EQ(demo::four_digits(50.625), "50.62");
    EXPECT_EQ(demo::four_digits(716.04), "716.0");
    EXPECT_EQ(demo::four_digits(4257), "4257");
    EXPECT_EQ(demo::four_digits(123456), "123456");
    EXPECT_EQ(demo::four_digits(0.5), "0.5000");
    EXPECT_EQ(demo::four_digits(0.00412), "0.004120");
}

TEST(FourDigits, LoseNoMoreThanTheFifthDigit) {
    for (double value = 1e-5; value < 1e6; value *= 1.37)
        EXPECT_NEAR(std::stod(demo::four_digits(value)) / value, 1, 5.001e-4) << value;
}

TEST(Result, RatesAreAmountsOverTheMedian) {
    demo::Result result;
    result.ms = {4, 2, 100};
    demo::Workload work{"square", 1000, "fp32", 8e9, 12000000};
    EXPECT_DOUBLE_EQ(result.median_ms(), 4);
    EXPECT_DOUBLE_EQ(result.tflops(work), 2);    // 8e9 operations in 4 ms
    EXPECT_DOUBLE_EQ(result.gb_per_s(work), 3);  // 12 MB in 4 ms
}

TEST(Result, WithoutSamplesOrTimeHasNoRateRatherThanInf) {
    const demo::Workload work{"square", 32, "fp32", 65536, 12288};
    demo::Result result;
    EXPECT_EQ(result.tflops(work), 0);
    result.ms = {0, 0, 0};
    EXPECT_EQ(result.tflops(work), 0);
    EXPECT_EQ(result.gb_per_s(work), 0);
}

TEST(Verdict, NothingCheckedIsNotOk) { EXPECT_FALSE(demo::Verdict{}.ok()); }

}  // namespace
