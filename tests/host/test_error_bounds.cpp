// What counts as right: random data, sampled rows, and the bounds. Right results, as a GPU rounds
// them, must pass; every kind of wrong result that a kernel may produce must fail.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "emulate.hpp"
#include "gating/bounds.hpp"

namespace {

using namespace demo;
using emulate::Matrix;

// --- Random data ---

constexpr size_t kSamples = 1 << 20;

TEST(RandomUniform, FillsItsRangeEvenly) {
    double sum = 0, squares = 0, lowest = 1, highest = -1;
    for (size_t i = 0; i < kSamples; ++i) {
        const double x = random_uniform(1, i);
        sum += x, squares += x * x;
        lowest = std::min(lowest, x), highest = std::max(highest, x);
    }
    EXPECT_GE(lowest, -1);
    EXPECT_LE(highest, 1);
    EXPECT_LT(lowest, -0.9999);
    EXPECT_GT(highest, 0.9999);
    // Five standard deviations of what uniform data would give.
    EXPECT_NEAR(sum / kSamples, 0, 5 * std::sqrt(1.0 / 3 / kSamples));
    EXPECT_NEAR(squares / kSamples, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kSamples));
}

TEST(RandomUniform, NeighborsAndSeedsAreIndependent) {
    double neighbors = 0, seeds = 0;
    for (size_t i = 0; i < kSamples; ++i) {
        neighbors += random_uniform(1, i) * random_uniform(1, i + 1);
        seeds += random_uniform(1, i) * random_uniform(2, i);
    }
    const double allowed = 5 * std::sqrt(kSamples) / 3;
    EXPECT_NEAR(neighbors, 0, allowed);
    EXPECT_NEAR(seeds, 0, allowed);
}

TEST(RandomUniform, IsTheSameEveryTime) {
    EXPECT_EQ(random_uniform(7, 12345), random_uniform(7, 12345));
    EXPECT_NE(random_uniform(7, 12345), random_uniform(8, 12345));
}

// --- Sampled rows ---

TEST(SampledRows, AreAllRowsUpTo2048) {
    for (size_t rows : {1, 32, 96, 2048}) {
        const std::vector<size_t> sample = sampled_rows(rows, 1);
        ASSERT_EQ(sample.size(), rows);
        for (size_t i = 0; i < rows; ++i) EXPECT_EQ(sample[i], i);
    }
}

TEST(SampledRows, BeyondThatAreTheFirstAndLastStripAndOneOfEachOther) {
    for (size_t rows : {2080, 4096, 4128, 65536}) {
        const std::vector<size_t> sample = sampled_rows(rows, 1);
        std::vector<size_t> in_strip(rows / 32);
        for (size_t row : sample) {
            ASSERT_LT(row, rows);
            ++in_strip[row / 32];
        }
        EXPECT_EQ(std::set<size_t>(sample.begin(), sample.end()).size(), sample.size());
        for (size_t strip = 0; strip < in_strip.size(); ++strip)
            EXPECT_EQ(in_strip[strip], strip == 0 || strip == in_strip.size() - 1 ? 32u : 1u)
                << "strip " << strip << " of " << rows << " rows";
    }
}

TEST(SampledRows, FollowTheSeedAndHitEveryPlaceInAStrip) {
    EXPECT_EQ(sampled_rows(4096, 1), sampled_rows(4096, 1));
    EXPECT_NE(sampled_rows(4096, 1), sampled_rows(4096, 2));
    std::set<size_t> places;
    for (size_t row : sampled_rows(65536, 1)) places.insert(row % 32);
    EXPECT_EQ(places.size(), 32u);
}

// --- is_wrong ---

TEST(IsWrong, AllowsTheToleranceAndNotMore) {
    EXPECT_FALSE(is_wrong(1.5, {1, 0.5}));
    EXPECT_FALSE(is_wrong(0.5, {1, 0.5}));
    EXPECT_TRUE(is_wrong(1.500001, {1, 0.5}));
    EXPECT_FALSE(is_wrong(0, {0, 0}));
}

TEST(IsWrong, HoldsForWhateverIsNoNumber) {
    const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(is_wrong(nan, {1, 0.5}));
    EXPECT_TRUE(is_wrong(inf, {1, 0.5}));
    EXPECT_TRUE(is_wrong(1, {nan, 0.5}));  // a broken reference passes nobody
    EXPECT_TRUE(is_wrong(1, {1, nan}));
}

// --- Matmul ---

/// How many elements of C the verification rejects, and the largest error over its tolerance.
struct Outcome {
    size_t wrong = 0;
    double error_of_bound = 0;
};

Outcome verify(const Matrix& C, const Matrix& A, const Matrix& B, Format out,
               SumsIn sums = SumsIn::kFp32) {
    Outcome outcome;
    for (size_t i = 0; i < C.rows; ++i)
        for (size_t j = 0; j < C.columns; ++j) {
            const Expected expected =
                expect_matmul(emulate::reference(A, B, i, j), A.columns, out, sums);
            outcome.wrong += is_wrong(C(i, j), expected);
            outcome.error_of_bound = std::max(
                outcome.error_of_bound, std::fabs(C(i, j) - expected.value) / expected.tolerance);
        }
    return outcome;
}

class Matmul : public testing::TestWithParam<size_t> {
  protected:
    const size_t N = GetParam();
    const Matrix A = emulate::uniform(N, N, 1, emulate::fp32);
    const Matrix B = emulate::uniform(N, N, 2, emulate::fp32);
    const Matrix right = emulate::matmul(A, B, emulate::fp32, emulate::fp32);
};
INSTANTIATE_TEST_SUITE_P(Sizes, Matmul, testing::Values(32, 64, 96, 256));

TEST_P(Matmul, ARightResultPassesWithRoomToSpare) {
    const Outcome outcome = verify(right, A, B, kFp32);
    EXPECT_EQ(outcome.wrong, 0u);
    EXPECT_LT(outcome.error_of_bound, 0.5);
    EXPECT_GT(outcome.error_of_bound, 0.01);  // the bound is no blank cheque
}

TEST_P(Matmul, OneWrongElementFails) {
    Matrix C = right;
    // Off by three millionths of the terms that it sums.
    C(N / 2, N - 1) += 3e-6 * emulate::reference(A, B, N / 2, N - 1).magnitude;
    EXPECT_EQ(verify(C, A, B, kFp32).wrong, 1u);
}

TEST_P(Matmul, AnUnwrittenElementFails) {
    Matrix C = right;
    C(N - 1, N - 1) = std::nan("");
    EXPECT_EQ(verify(C, A, B, kFp32).wrong, 1u);
}

TEST_P(Matmul, AStaleResultFailsEverywhere) {
    const Matrix other = emulate::uniform(N, N, 3, emulate::fp32);
    const Matrix stale = emulate::matmul(other, B, emulate::fp32, emulate::fp32);
    EXPECT_GT(verify(stale, A, B, kFp32).wrong, N * N * 99 / 100);
}

TEST_P(Matmul, ADroppedLastTermFails) {
    Matrix C = right;
    for (size_t i = 0; i < N; ++i)
        for (size_t j = 0; j < N; ++j) C(i, j) = emulate::product(A, B, i, j, N - 1, emulate::fp32);
    EXPECT_GT(verify(C, A, B, kFp32).wrong, N * N * 99 / 100);
}

TEST_P(Matmul, TransposedFactorsFail) {
    Matrix transposed = B;
    for (size_t k = 0; k < N; ++k)
        for (size_t j = 0; j < N; ++j) transposed(k, j) = B(j, k);
    const Matrix C = emulate::matmul(A, transposed, emulate::fp32, emulate::fp32);
    EXPECT_GT(verify(C, A, B, kFp32).wrong, N * N * 99 / 100);
}

TEST_P(Matmul, TF32PosingAsFp32Fails) {
    const Matrix C =
        emulate::matmul(emulate::rounded(A, emulate::tf32), emulate::rounded(B, emulate::tf32),
                        emulate::fp32, emulate::fp32);
    EXPECT_GT(verify(C, A, B, kFp32).wrong, N * N * 9 / 10);
}

TEST_P(Matmul, TF32PassesAgainstItsRoundedInputs) {
    const Matrix A32 = emulate::rounded(A, emulate::tf32), B32 = emulate::rounded(B, emulate::tf32);
    EXPECT_EQ(
        verify(emulate::matmul(A32, B32, emulate::fp32, emulate::fp32), A32, B32, kFp32).wrong, 0u);
}

TEST_P(Matmul, HalfPrecisionWithAnFp32AccumulatorPasses) {
    const std::pair<emulate::Rounding, Format> formats[] = {{emulate::fp16, kFp16},
                                                            {emulate::bf16, kBf16}};
    for (const auto& [round, format] : formats) {
        const Matrix Ah = emulate::rounded(A, round), Bh = emulate::rounded(B, round);
        const Outcome outcome =
            verify(emulate::matmul(Ah, Bh, emulate::fp32, round), Ah, Bh, format);
        EXPECT_EQ(outcome.wrong, 0u);
        EXPECT_GT(outcome.error_of_bound, 0.5);  // the output's rounding is nearly all there is
    }
}

TEST_P(Matmul, AnFp16AccumulatorFailsWhateverTheOutput) {
    const Matrix Ah = emulate::rounded(A, emulate::fp16), Bh = emulate::rounded(B, emulate::fp16);
    const Matrix C = emulate::matmul(Ah, Bh, emulate::fp16, emulate::fp16);
    EXPECT_GT(verify(C, Ah, Bh, kFp16).wrong, N * N / 4);
    EXPECT_GT(verify(C, Ah, Bh, kFp32).wrong, N * N / 2);
}

TEST(LongSums, TheBoundSeparatesFp32FromTF32UpTo16384) {
    for (size_t K : {2048, 16384}) {
        const Matrix A = emulate::uniform(1, K, 1, emulate::fp32);
        const Matrix B = emulate::uniform(K, 256, 2, emulate::fp32);
        const Matrix fp32 = emulate::matmul(A, B, emulate::fp32, emulate::fp32);
        const Matrix tf32 =
            emulate::matmul(emulate::rounded(A, emulate::tf32), emulate::rounded(B, emulate::tf32),
                            emulate::fp32, emulate::fp32);
        EXPECT_EQ(verify(fp32, A, B, kFp32).wrong, 0u) << "K = " << K;
        EXPECT_GT(verify(tf32, A, B, kFp32).wrong, 0u) << "K = " << K;
    }
}

TEST(LongSums, Fp8sBoundSeparates14BitsFrom10FromBf16SumsAndFromE5m2) {
    for (size_t K : {256, 4096, 16384}) {
        const Matrix a = emulate::uniform(1, K, 1, emulate::fp32);
        const Matrix b = emulate::uniform(K, 256, 2, emulate::fp32);
        const Matrix A = emulate::rounded(a, emulate::e4m3), B = emulate::rounded(b, emulate::e4m3);
        auto wrong = [&](auto element) {
            Matrix C{1, 256, std::vector<double>(256)};
            for (size_t j = 0; j < 256; ++j) C(0, j) = element(j);
            return verify(C, A, B, kFp16, SumsIn::k14Bits).wrong;
        };
        auto cut_off = [&](int bits) {
            return wrong([&](size_t j) { return emulate::cut_off_product(A, B, 0, j, bits); });
        };
        EXPECT_EQ(cut_off(14), 0u) << "K = " << K;
        EXPECT_GT(cut_off(10), 0u) << "K = " << K;
        const Matrix sums = emulate::matmul(A, B, emulate::bf16, emulate::fp64);
        EXPECT_GT(wrong([&](size_t j) { return sums(0, j); }), 25u) << "K = " << K;
        const Matrix coarse =
            emulate::matmul(emulate::rounded(a, emulate::e5m2), emulate::rounded(b, emulate::e5m2),
                            emulate::fp32, emulate::fp64);
        EXPECT_GT(wrong([&](size_t j) { return coarse(0, j); }), 25u) << "K = " << K;
    }
}

TEST(LongSums, Fp64sBoundRejectsSumsInFp32AndInputsInFp32) {
    auto in_fp64 = [](Matrix matrix) {  // 53 bits of each
        for (size_t i = 0; i < matrix.elements.size(); ++i)
            matrix.elements[i] += 0x1p-24 * random_uniform(3, i);
        return matrix;
    };
    const Matrix A = in_fp64(emulate::uniform(1, 4096, 1, emulate::fp32));
    const Matrix B = in_fp64(emulate::uniform(4096, 64, 2, emulate::fp32));
    auto wrong = [&](const Matrix& C) { return verify(C, A, B, kFp64, SumsIn::kFp64).wrong; };
    EXPECT_EQ(wrong(emulate::matmul(A, B, emulate::fp64, emulate::fp64)), 0u);
    EXPECT_EQ(wrong(emulate::matmul(A, B, emulate::fp32, emulate::fp64)), 64u);
    EXPECT_EQ(
        wrong(emulate::matmul(emulate::rounded(A, emulate::fp32),
                              emulate::rounded(B, emulate::fp32), emulate::fp64, emulate::fp64)),
        64u);
}

TEST(Formats, RoundoffIsHalfASpacing) {
    EXPECT_DOUBLE_EQ(kFp16.roundoff, (emulate::fp16(1.0 + 0x1p-10) - 1.0) / 2);
    EXPECT_DOUBLE_EQ(kBf16.roundoff, (emulate::bf16(1.0 + 0x1p-7) - 1.0) / 2);
    EXPECT_DOUBLE_EQ(kFp32.roundoff, std::numeric_limits<float>::epsilon() / 2.0);
    EXPECT_EQ(emulate::fp16(kFp16.subnormal * 1.01), 2 * kFp16.subnormal);
    EXPECT_EQ(emulate::fp16(kFp16.subnormal * 0.99), 0);
}

TEST(Formats, TinyFp16OutputsMayRoundToTheirSubnormalSpacing) {
    const double tiny = 1.3 * 0x1p-24;  // between two subnormals
    EXPECT_FALSE(is_wrong(emulate::fp16(tiny), expect_matmul({tiny, tiny}, 32, kFp16)));
}

// --- Gating ---

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

TEST(Gating, TheValueIsTheFormula) {
    const Expected expected = expect_gating({0.75, 3}, 0.5, {-1.25, 2}, 0.125, 64, {});
    EXPECT_DOUBLE_EQ(expected.value, sigmoid(1.25) * -1.125);
}

/// The farthest that errors of up to d1 and d2 in both sums move a result, by trying the corners,
/// and the output's rounding.
double farthest(double v1, double d1, double v2, double d2) {
    const double value = sigmoid(v1) * v2;
    double most = 0;
    for (double e1 : {-d1, 0.0, d1})
        for (double e2 : {-d2, 0.0, d2}) {
            const double moved = sigmoid(v1 + e1) * (v2 + e2);
            most = std::max(most, std::fabs(moved - value));
        }
    return most + kFp16.roundoff * std::fabs(value) + kFp16.subnormal;
}

TEST(Gating, TheToleranceCoversBothSumsErrors) {
    for (double v1 : {-6.0, -1.0, 0.0, 0.3, 2.0, 6.0})
        for (double v2 : {-3.0, -0.01, 0.0, 0.5, 4.0})
            for (double magnitude : {1.0, 1000.0, 1e6}) {
                const Product product1{v1, magnitude}, product2{v2, magnitude};
                const double d = accumulation_error(product1, 128);
                const double tolerance = expect_gating(product1, 0, product2, 0, 128, {}).tolerance;
                EXPECT_GE(tolerance, farthest(v1, d, v2, d)) << v1 << " " << v2 << " " << magnitude;
            }
}

TEST(Gating, TheToleranceIsTightWhereSigmoidIsSteepest) {
    const Product product1{0, 1000}, product2{2, 1000};
    const double d = accumulation_error(product1, 128);
    EXPECT_LT(expect_gating(product1, 0, product2, 0, 128, {}).tolerance,
              1.01 * farthest(0, d, 2, d));
}

/// Which intermediate results an emulated gating pipeline rounds to fp16, and what is wrong with
/// it.
struct Pipeline {
    Rounded rounds;
    bool drops_bias1 = false, drops_bias2 = false, gates_the_other = false, swaps_weights = false;
};

/// Runs the pipeline on random data and counts what the verification, told to allow `allowed`,
/// rejects.
size_t gating_wrong(const Pipeline& pipeline, const Rounded& allowed) {
    constexpr size_t M = 128, K = 128, N = 64;
    const double scale = std::sqrt(3.0 / K);
    const Matrix x = emulate::uniform(M, K, 1, emulate::fp16);
    const Matrix W1 = emulate::uniform(K, N, 2, emulate::fp16, scale);
    const Matrix W2 = emulate::uniform(K, N, 3, emulate::fp16, scale);
    const Matrix b1 = emulate::uniform(1, N, 4, emulate::fp16);
    const Matrix b2 = emulate::uniform(1, N, 5, emulate::fp16);
    auto round = [](bool does, double value) { return does ? emulate::fp16(value) : value; };

    size_t wrong = 0;
    for (size_t i = 0; i < M; ++i)
        for (size_t j = 0; j < N; ++j) {
            auto sum = [&](const Matrix& W, double b) {
                const double product = emulate::product(x, W, i, j, K, emulate::fp32);
                const double rounded = round(pipeline.rounds.product, product);
                return round(pipeline.rounds.sum, emulate::fp32(rounded + b));
            };
            double v1 = sum(pipeline.swaps_weights ? W2 : W1, pipeline.drops_bias1 ? 0 : b1(0, j));
            double v2 = sum(pipeline.swaps_weights ? W1 : W2, pipeline.drops_bias2 ? 0 : b2(0, j));
            if (pipeline.gates_the_other) std::swap(v1, v2);
            const double gate = round(pipeline.rounds.gate, emulate::fp32(sigmoid(v1)));
            wrong += is_wrong(emulate::fp16(gate * v2),
                              expect_gating(emulate::reference(x, W1, i, j), b1(0, j),
                                            emulate::reference(x, W2, i, j), b2(0, j), K, allowed));
        }
    return wrong;
}

TEST(Gating, AFusedKernelPasses) { EXPECT_EQ(gating_wrong({}, {}), 0u); }

TEST(Gating, EachRoundingPassesWhereItIsAllowedAndOnlyThere) {
    const Rounded product{.product = true}, sum{.sum = true}, gate{.gate = true};
    for (const Rounded& rounds : {product, sum, gate}) {
        EXPECT_EQ(gating_wrong({rounds}, rounds), 0u);
        EXPECT_GT(gating_wrong({rounds}, {}), 0u);
    }
}

TEST(Gating, SixKernelsThatRoundEverywherePassWithEveryRoundingAllowed) {
    const Rounded all{true, true, true};
    EXPECT_EQ(gating_wrong({all}, all), 0u);
    EXPECT_GT(gating_wrong({all}, {}), 0u);
}

TEST(Gating, EveryMistakeFailsEvenWithEveryRoundingAllowed) {
    const Rounded all{true, true, true};
    constexpr size_t kNearlyAll = 128 * 64 * 9 / 10;
    EXPECT_GT(gating_wrong({.rounds = all, .drops_bias1 = true}, all), kNearlyAll);
    EXPECT_GT(gating_wrong({.rounds = all, .drops_bias2 = true}, all), kNearlyAll);
    EXPECT_GT(gating_wrong({.rounds = all, .gates_the_other = true}, all), kNearlyAll);
    EXPECT_GT(gating_wrong({.rounds = all, .swaps_weights = true}, all), kNearlyAll);
}

}  // namespace
