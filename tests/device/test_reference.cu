// The verification that every program relies on, against a plain computation on the CPU. Needs a
// GPU; without one it exits with 77 and the reason, as the programs do.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "demo.cuh"
#include "demo/copy.cuh"
#include "gating/gating.cuh"
#include "test_session.cuh"

namespace {

template <class T>
std::vector<T> download(const demo::Buffer<T>& buffer) {
    std::vector<T> host(buffer.size());
    DEMO_CHECK(cudaMemcpy(host.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost));
    return host;
}

template <class T>
void upload(T* data, const std::vector<T>& host) {
    DEMO_CHECK(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
}

struct Shape {
    size_t M, K, N;
};

/// C[M, N] = A[M, K] B[K, N] on both machines.
template <class T>
struct Problem {
    size_t M, K, N;
    demo::Buffer<T> A{M * K}, B{K * N}, C{M * N};
    std::vector<T> host_A, host_B;

    Problem(size_t M, size_t K, size_t N) : M(M), K(K), N(N) {
        demo::fill_uniform(A, 1);
        demo::fill_uniform(B, 2);
        host_A = download(A);
        host_B = download(B);
    }

    demo::Product product(size_t i, size_t j) const {
        demo::Product sum{0, 0};
        for (size_t k = 0; k < K; ++k) {
            const double term = double(float(host_A[i * K + k])) * double(float(host_B[k * N + j]));
            sum.value += term;
            sum.magnitude += std::fabs(term);
        }
        return sum;
    }

    /// A right C: every element is the sum, rounded once.
    std::vector<T> right() const {
        std::vector<T> result(M * N);
        for (size_t i = 0; i < M; ++i)
            for (size_t j = 0; j < N; ++j) result[i * N + j] = T(float(product(i, j).value));
        return result;
    }

    /// What the verification says of `result`; of a sample of its rows, as where they are many.
    demo::Verdict verify(const std::vector<T>& result) const {
        const demo::CheckedRows rows(M, demo::CheckedRows::sample_size(M), /*seed=*/1);
        const demo::ProductReference products(A.data(), B.data(), rows, K, N);
        const demo::ExpectMatmul expect{products.data(), K, N, demo::kFormat<T>};
        const demo::Check check =
            demo::check_of(C.data(), M, N, rows, expect, demo::largest_product(K, 1));
        check.poison();
        upload(C.data(), result);
        return check.verify();
    }
};

template <class T>
class Reference : public testing::Test {};
using Types = testing::Types<float, __half, __nv_bfloat16>;
TYPED_TEST_SUITE(Reference, Types);

TYPED_TEST(Reference, RandomDataIsTheCpusDataRoundedOnce) {
    const demo::Buffer<TypeParam> data(100003);
    demo::fill_uniform(data, 5, 0.25f);
    const std::vector<TypeParam> host = download(data);
    for (size_t i = 0; i < host.size(); ++i)
        ASSERT_EQ(float(host[i]), float(TypeParam(0.25f * demo::random_uniform(5, i)))) << i;
}

TYPED_TEST(Reference, ABufferStartsAsNaN) {
    const demo::Buffer<TypeParam> data(1000);
    for (TypeParam x : download(data)) ASSERT_TRUE(std::isnan(float(x)));
}

TYPED_TEST(Reference, ProductsAreTheCpus) {
    // Squares, one that no tile divides, and one that is tall enough to be sampled.
    const Shape shapes[] = {{32, 32, 32}, {96, 96, 96}, {37, 130, 70}, {4128, 128, 64}};
    for (auto [M, K, N] : shapes) {
        const Problem<TypeParam> problem(M, K, N);
        const std::vector<size_t> rows = demo::sampled_rows(M, 1);
        const demo::CheckedRows device_rows(M, rows.size(), 1);
        const demo::ProductReference reference(problem.A.data(), problem.B.data(), device_rows, K,
                                               N);
        std::vector<demo::Product> products(rows.size() * N);
        DEMO_CHECK(cudaMemcpy(products.data(), reference.data(),
                              products.size() * sizeof products[0], cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < rows.size(); ++i)
            for (size_t j = 0; j < N; ++j) {
                const demo::Product expected = problem.product(rows[i], j),
                                    got = products[i * N + j];
                ASSERT_NEAR(got.value, expected.value, 1e-13 * expected.magnitude)
                    << M << " x " << K << " x " << N << ": row " << rows[i] << ", column " << j;
                ASSERT_NEAR(got.magnitude, expected.magnitude, 1e-13 * expected.magnitude);
            }
    }
}

TYPED_TEST(Reference, ARightResultPasses) {
    const Shape shapes[] = {{32, 32, 32}, {96, 96, 96}, {37, 130, 70}, {2080, 64, 64}};
    for (auto [M, K, N] : shapes) {
        const Problem<TypeParam> problem(M, K, N);
        const demo::Verdict verdict = problem.verify(problem.right());
        EXPECT_TRUE(verdict.ok()) << M << " x " << K << " x " << N;
        EXPECT_EQ(verdict.checked, demo::sampled_rows(M, 1).size() * N);
        const float error_of_bound = std::bit_cast<float>(verdict.error_of_bound);
        EXPECT_GT(error_of_bound, 0);
        EXPECT_LT(error_of_bound, 1);
    }
}

TYPED_TEST(Reference, OneWrongElementIsFoundAndNamed) {
    const Problem<TypeParam> problem(96, 64, 128);
    std::vector<TypeParam> result = problem.right();
    result[17 * 128 + 101] = TypeParam(float(result[17 * 128 + 101]) + 0.125f);
    const demo::Verdict verdict = problem.verify(result);
    EXPECT_FALSE(verdict.ok());
    EXPECT_EQ(verdict.wrong, 1u);
    EXPECT_EQ(verdict.unwritten, 0u);
    EXPECT_EQ(verdict.row, 17u);
    EXPECT_EQ(verdict.column, 101u);
    EXPECT_EQ(verdict.got, double(float(result[17 * 128 + 101])));
    EXPECT_NEAR(verdict.expected.value, problem.product(17, 101).value, 1e-12);
    EXPECT_GT(verdict.expected.tolerance, 0);
}

TYPED_TEST(Reference, InfinityIsWrong) {
    const Problem<TypeParam> problem(32, 32, 32);
    std::vector<TypeParam> result = problem.right();
    result[0] = TypeParam(std::numeric_limits<float>::infinity());
    EXPECT_EQ(problem.verify(result).wrong, 1u);
}

TYPED_TEST(Reference, AnUnwrittenElementIsFoundInEveryRow) {
    const Problem<TypeParam> problem(2080, 32, 32);
    const std::vector<size_t> rows = demo::sampled_rows(2080, 1);
    ASSERT_EQ(std::count(rows.begin(), rows.end(), 1000u), 0) << "choose a row that is not sampled";
    std::vector<TypeParam> result = problem.right();
    result[1000 * 32 + 31] = TypeParam(std::numeric_limits<float>::quiet_NaN());
    const demo::Verdict verdict = problem.verify(result);
    EXPECT_FALSE(verdict.ok());
    EXPECT_EQ(verdict.unwritten, 1u);
    EXPECT_EQ(verdict.wrong, 0u);
    EXPECT_EQ(verdict.row, 1000u);
    EXPECT_EQ(verdict.column, 31u);
}

TYPED_TEST(Reference, APoisonedOutputIsUnwrittenEverywhere) {
    const Problem<TypeParam> problem(96, 32, 64);
    const demo::MatmulReference reference(problem.A.data(), problem.B.data(), 96, 32, 64, 1);
    const demo::Check check = reference.check(problem.C.data());
    upload(problem.C.data(), problem.right());
    check.poison();
    EXPECT_EQ(check.verify().unwritten, 96u * 64u);
}

TYPED_TEST(Reference, AStaleResultFails) {
    const Problem<TypeParam> problem(96, 96, 96);
    std::vector<TypeParam> stale = problem.right();
    std::rotate(stale.begin(), stale.begin() + 1, stale.end());
    EXPECT_GT(problem.verify(stale).wrong, 96u * 96u * 9 / 10);
}

TEST(SampledRows, MemoryForecastsCountEveryRow) {
    for (size_t M : {32, 2048, 2080, 4096, 4128})
        EXPECT_EQ(demo::CheckedRows::sample_size(M), demo::sampled_rows(M, 1).size()) << M;
}

// --- Inputs and outputs ---

TYPED_TEST(Reference, InputsHaveSeedsOfTheirOwn) {
    demo_test::Session session;
    const demo::Input<TypeParam> a(session, "a", {7, 9}), b(session, "b", {5}, {.scale = 3});
    const uint64_t seed = session.options.seed;
    const auto host_a = download(a), host_b = download(b);
    for (size_t i = 0; i < host_a.size(); ++i)
        ASSERT_EQ(float(host_a[i]), float(TypeParam(demo::random_uniform(seed, i))));
    for (size_t i = 0; i < host_b.size(); ++i)
        ASSERT_EQ(float(host_b[i]), float(TypeParam(3 * demo::random_uniform(seed + 1, i))));
    ASSERT_EQ(session.arrays.size(), 2u);
    EXPECT_EQ(session.arrays.back().name, "b");
    EXPECT_EQ(session.arrays.back().data, b.data());
    EXPECT_EQ(session.arrays.back().bytes, 5 * sizeof(TypeParam));
}

TYPED_TEST(Reference, RowsAreOffset) {
    demo_test::Session session;
    const demo::Input<TypeParam> x(session, "x", {3, 5}, {.then = demo::Then::kOffsetRows});
    const std::vector<TypeParam> host = download(x);
    for (size_t i = 0; i < host.size(); ++i) {
        const float own = demo::random_uniform(session.options.seed, i);
        ASSERT_EQ(float(host[i]), float(TypeParam(own + (i / 5 == 1 ? -100.0f : 100.0f)))) << i;
    }
}

TYPED_TEST(Reference, SomeRowsAreHard) {
    for (const size_t rows : {3, 40, 2000, 2100}) {
        demo_test::Session session;
        const demo::HardRows hard{.kinds = {{.scale = 3, .offset = 1},
                                            {.scale = 90, .step = 60},
                                            {.scale = 1, .peak = 7}},
                                  .count = 3};
        const demo::Input<TypeParam> x(session, "x", {rows, 5}, {.hard = hard});
        const uint64_t seed = session.options.seed;
        const std::vector<TypeParam> host = download(x);
        const std::vector<size_t> sample = demo::sampled_rows(rows, seed);
        const demo::HardRows& made = session.arrays.back().fill.hard;
        size_t count = 0;
        for (size_t row = 0; row < rows; ++row) {
            const bool is_hard = made.is_hard(row);
            count += is_hard;
            EXPECT_TRUE(!is_hard || std::ranges::count(sample, row) == 1) << row;
            for (size_t i = row * 5; i < row * 5 + 5; ++i) {
                const float u = demo::random_uniform(seed, i);
                const size_t kind = (row / (rows < 128 ? 4 : 2) + seed) % 3;
                float expected = u;
                if (is_hard && kind == 0) expected = std::fmaf(3, u, 1);
                if (is_hard && kind == 1) expected = 60 * std::rint(90 * u / 60);
                if (is_hard && kind == 2 && i % 5 == demo::random_bits(seed, ~row) % 5)
                    expected = 7;
                ASSERT_EQ(float(host[i]), float(TypeParam(expected))) << row;
            }
        }
        EXPECT_EQ(count, rows < 4 ? 0 : rows < 128 ? rows / 4 : 16 + rows % 32 / 2);
    }
}

TEST(Inputs, AreRoundedToTf32) {
    demo_test::Session session;
    const demo::Input<float> x(session, "x", {1000}, {.then = demo::Then::kRoundToTf32});
    const std::vector<float> host = download(x);
    for (size_t i = 0; i < host.size(); ++i) {
        const float exact = demo::random_uniform(session.options.seed, i);
        ASSERT_EQ(std::bit_cast<uint32_t>(host[i]) & 0x1FFF, 0u) << i;
        ASSERT_LE(std::fabs(host[i] - exact), 0x1p-11f * std::fabs(exact)) << i;
    }
}

TYPED_TEST(Reference, WritingAroundAnOutputIsFound) {
    if (demo::kSimulator) GTEST_SKIP() << "the simulator has guards of its own";
    demo_test::Session session;
    const demo::Input<TypeParam> A(session, "A", {32, 32}), B(session, "B", {32, 32});
    const demo::Output<TypeParam> C(session, "C", {32, 32});
    const demo::MatmulReference reference(session, A, B);
    const demo::Check check = reference.check(C);
    check.poison();
    EXPECT_EQ(check.verify().written_outside, 0u);
    for (TypeParam* place : {C.data() - 1, C.data() + 32 * 32})  // even with what it is filled with
        for (int byte : {0x00, 0xFF}) {
            DEMO_CHECK(cudaMemset(place, byte, sizeof(TypeParam)));
            const demo::Verdict verdict = check.verify();
            EXPECT_GT(verdict.written_outside, 0u);
            EXPECT_LE(verdict.written_outside, sizeof(TypeParam));
            EXPECT_FALSE(verdict.ok());
            EXPECT_EQ(check.verify().written_outside, 0u);  // of the next kernel
        }
}

TYPED_TEST(Reference, InfinityAndHugeValuesAreFoundInEveryRow) {
    const Problem<TypeParam> problem(2080, 32, 32);
    for (const float value : {std::numeric_limits<float>::infinity(), -500.0f}) {
        std::vector<TypeParam> result = problem.right();
        result[1000 * 32 + 31] = TypeParam(value);
        const demo::Verdict verdict = problem.verify(result);
        EXPECT_FALSE(verdict.ok());
        EXPECT_EQ(verdict.huge, 1u);
        EXPECT_EQ(verdict.wrong + verdict.unwritten, 0u);
        EXPECT_EQ(verdict.row, 1000u);
        EXPECT_EQ(verdict.column, 31u);
    }
}

TYPED_TEST(Reference, TheHashIsOfEveryElementAndItsPlace) {
    const Problem<TypeParam> problem(2080, 32, 32);
    const std::vector<TypeParam> right = problem.right();
    const auto hash = problem.verify(right).output_hash;
    EXPECT_EQ(problem.verify(right).output_hash, hash);
    std::vector<TypeParam> other = right;
    other[1000 * 32 + 31] = TypeParam(0.0f);
    const auto with_zero = problem.verify(other).output_hash;
    EXPECT_NE(with_zero, hash);
    other[1000 * 32 + 31] = TypeParam(-0.0f);
    EXPECT_NE(problem.verify(other).output_hash, with_zero);
    other = right;
    std::swap(other.front(), other.back());
    ASSERT_NE(float(other.front()), float(other.back()));
    EXPECT_NE(problem.verify(other).output_hash, hash);
}

TYPED_TEST(Reference, AChangedInputIsFoundAndCanBeMended) {
    demo_test::Session session;
    const demo::Input<TypeParam> x(session, "x", {5, 6}, {.then = demo::Then::kOffsetRows});
    const demo::Array& array = session.arrays.front();
    const std::vector<TypeParam> before = download(x);
    const demo::DeviceVerdict found;
    found.reset(), array.compare(array.fill, found.data());
    EXPECT_EQ(found.get().changed, 0u);
    DEMO_CHECK(cudaMemset(x.data() + 3 * 6 + 4, 0, 2 * sizeof(TypeParam)));
    found.reset(), array.compare(array.fill, found.data());
    EXPECT_EQ(found.get().changed, 2u);
    EXPECT_EQ(found.get().first_changed, 3u * 6 + 4);
    EXPECT_FALSE(found.get().ok());
    array.refill(array.fill);
    EXPECT_EQ(std::memcmp(download(x).data(), before.data(), x.bytes()), 0);
}

TEST(Copy, IsVerifiedExactly) {
    const demo_test::Session session;
    const demo::Workload work{"square", 1, "bytes", 0, 2 * 1000003};
    const demo::Contender copy = demo::copy_contender(session, work);
    EXPECT_EQ(copy.moved_bytes, 2u * 1000003);
    const demo::Check check = copy.check;
    check.poison();
    EXPECT_FALSE(check.verify().ok());
    copy.launch();
    const demo::Verdict verdict = check.verify();
    EXPECT_TRUE(verdict.ok());
    EXPECT_EQ(verdict.checked, 1000003u);
    DEMO_CHECK(cudaMemset(static_cast<char*>(check.output) + 1000002, 0x55, 1));
    EXPECT_EQ(check.verify().wrong, 1u);
}

// --- Gating ---

/// out[M, H] on the CPU. `bias1`: whether b1 is added.
std::vector<__half> gate_on_cpu(const demo::Gating& gating, bool bias1) {
    const auto [M, K, H, name, size] = gating.shape;
    const auto x = download(gating.x), W1 = download(gating.W1), W2 = download(gating.W2);
    const auto b1 = download(gating.b1), b2 = download(gating.b2);
    std::vector<__half> out(M * H);
    for (size_t i = 0; i < M; ++i)
        for (size_t j = 0; j < H; ++j) {
            double v1 = bias1 ? double(float(b1[j])) : 0, v2 = double(float(b2[j]));
            for (size_t k = 0; k < K; ++k) {
                v1 += double(float(x[i * K + k])) * double(float(W1[k * H + j]));
                v2 += double(float(x[i * K + k])) * double(float(W2[k * H + j]));
            }
            out[i * H + j] = __float2half(float(v2 / (1 + std::exp(-v1))));
        }
    return out;
}

TEST(Gating, TheVerificationTellsRightFromWrongOnBothShapes) {
    for (const demo::GatingShape& shape :
         {demo::GatingShape::square(96), demo::GatingShape::talk(32)}) {
        demo_test::Session session;
        const demo::Gating gating(session, shape);
        const std::string text = shape.workload().text;
        const demo::Check check = gating.check({});

        upload(gating.out.data(), gate_on_cpu(gating, true));
        const demo::Verdict right = check.verify();
        EXPECT_TRUE(right.ok()) << text;
        EXPECT_EQ(right.checked, shape.M * shape.H);

        upload(gating.out.data(), gate_on_cpu(gating, false));
        EXPECT_GT(check.verify().wrong, right.checked * 9 / 10) << text;

        check.poison();
        EXPECT_EQ(check.verify().unwritten, shape.M * shape.H) << text;
    }
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    demo::program_name = "test_reference";
    const demo::Gpu gpu{demo::Options{}};
    return RUN_ALL_TESTS();
}
