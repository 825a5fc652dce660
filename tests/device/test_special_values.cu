// What programs 7 to 9 make of infinities, NaN, zeros, denormals and extreme rows, and bonus_norm
// of constant ones and of rows far from 0. On a GPU, and on the simulator too; without either it
// exits with 77 and the reason, as the programs do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#define main main_of_gelu
#include "7_gelu.cu"
#undef main
#define main main_of_softmax
#include "8_softmax.cu"
#undef main
#define main main_of_bias_activation
#include "9_bias_activation.cu"
#undef main
// A template that nobody calls, so that the many kernels of its table are not compiled.
#define main(...) main_of_norm(auto argc, auto argv)
#include "bonus_norm.cu"
#undef main

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A device buffer with these numbers.
template <class T>
struct Device : demo::Buffer<T> {
    explicit Device(const std::vector<float>& values) : demo::Buffer<T>(values.size()) {
        std::vector<T> converted;
        for (float value : values) converted.push_back(T(value));
        DEMO_CHECK(
            cudaMemcpy(this->data(), converted.data(), this->bytes(), cudaMemcpyHostToDevice));
    }
    std::vector<float> read() const {
        DEMO_CHECK(cudaDeviceSynchronize());
        std::vector<T> values(this->size());
        DEMO_CHECK(cudaMemcpy(values.data(), this->data(), this->bytes(), cudaMemcpyDeviceToHost));
        return {values.begin(), values.end()};
    }
};

template <class T>
class SpecialValues : public testing::Test {};
using Types = testing::Types<float, half>;
TYPED_TEST_SUITE(SpecialValues, Types);

/// Runs f(x, out, size) on `values` repeated, so that each also meets the end of the last vector.
template <class T, class Launch>
std::vector<float> map(const std::vector<float>& values, Launch launch) {
    std::vector<float> input;
    while (input.size() < 1030) input.insert(input.end(), values.begin(), values.end());
    input.resize(1027);
    const Device<T> x(input), out(std::vector<float>(input.size(), kNan));
    launch(x.data(), out.data(), input.size());
    std::vector<float> result = out.read();
    for (size_t i = values.size(); i < result.size(); ++i) {  // the same wherever it stands
        const float first = result[i % values.size()];
        EXPECT_TRUE(result[i] == first || (std::isnan(result[i]) && std::isnan(first))) << i;
    }
    result.resize(values.size());
    return result;
}

TYPED_TEST(SpecialValues, Gelu) {
    const std::vector<float> values{0.0f,  -0.0f, 10,     -10,     100,   -100, kInf,
                                    -kInf, kNan,  1e-40f, -1e-40f, 6e-8f, 1,    -1};
    auto launch_chain = [](const TypeParam* x, TypeParam* out, size_t size) {
        const demo::Buffer<TypeParam> temporary(size);
        gelu::chain(x, temporary.data(), out, size);
        DEMO_CHECK(cudaDeviceSynchronize());
    };
    std::vector<float> rounded(values.size()), expected(values.size());
    for (size_t i = 0; i < values.size(); ++i) rounded[i] = float(TypeParam(values[i]));
    gelu::on_cpu(rounded.data(), expected.data(), values.size());
    const auto chain = map<TypeParam>(values, launch_chain);
    const auto fused = map<TypeParam>(values, gelu::launch_fused<TypeParam>);
    const auto vectorized = map<TypeParam>(values, gelu::launch_fused_vectorized<TypeParam>);
    for (const auto& result : {chain, fused, vectorized}) {
        EXPECT_EQ(result[0], 0);
        EXPECT_FALSE(std::signbit(result[0]));
        EXPECT_EQ(result[1], 0);
        EXPECT_TRUE(std::signbit(result[1]));
        EXPECT_EQ(result[2], 10);
        EXPECT_NEAR(result[3], 0, 1e-30);
        EXPECT_EQ(result[4], 100);
        EXPECT_EQ(result[5], 0);
        EXPECT_EQ(result[6], kInf);
        EXPECT_TRUE(std::isnan(result[8]));
        for (size_t i = 9; i < values.size(); ++i) {
            const double x = std::fabs(rounded[i]);
            const double bound = sizeof(TypeParam) == 4 ? 2e-6 * x + 2e-45 : 3e-3 * x + 1e-7;
            EXPECT_NEAR(result[i], expected[i], bound) << values[i];
        }
    }
    EXPECT_EQ(fused[7], 0);
    EXPECT_EQ(vectorized[7], 0);
    EXPECT_TRUE(std::isnan(chain[7]));  // -infinity times 0, as the formula stands
}

// --- Softmax ---

template <class T>
std::vector<std::vector<float>> all_softmaxes(const std::vector<float>& values, size_t rows) {
    const size_t cols = values.size() / rows, size = values.size();
    const Device<T> x(values), out(std::vector<float>(size, kNan));
    std::vector<std::vector<float>> results;

    const demo::Buffer<T> temporary(size);
    const demo::Buffer<float> max(rows), sum(rows);
    softmax::chain(x.data(), temporary.data(), max.data(), sum.data(), out.data(), rows, cols);
    results.push_back(out.read());
    for (const bool may_fit : {false, true}) {
        const bool fits = may_fit && cols * sizeof(T) <= 40 << 10;
        const size_t shared = fits ? cols * sizeof(T) : 0;
        softmax::fused<T><<<rows, 256, shared>>>(x.data(), out.data(), rows, cols, fits);
        results.push_back(out.read());
        for (const int threads : {64, softmax::kOnlineThreads}) {
            softmax::online<T><<<rows, threads, shared>>>(x.data(), out.data(), rows, cols, fits);
            results.push_back(out.read());
        }
    }
    const demo::Gpu gpu{demo::Options{}};
    demo::Contender record = softmax::records<T>(x.data(), out.data(), rows, cols, gpu).front();
    record.setup(record), record.launch();
    results.push_back(out.read());
    const softmax::Rows<T> r{x.data(), out.data(), rows, cols};  // any rung takes short rows
    std::vector<std::function<void()>> rungs = {softmax::prepare_by_cluster_twice(r, gpu),
                                                softmax::prepare_by_grid(r, gpu)};
    if (cols <= softmax::kMostPerTile) rungs.push_back(softmax::prepare_by_tile(r));
    if (r.row_bytes() <= softmax::kMostBlockBytes)
        rungs.push_back(softmax::prepare_by_block(r, gpu));
    if (softmax::has_clusters(gpu) && r.row_bytes() <= softmax::kMostClusterBytes)
        rungs.push_back(softmax::prepare_by_cluster(r));
    for (const auto& launch : rungs) {
        launch();
        results.push_back(out.read());
    }
    return results;
}

/// Half a step of the numbers that T has least of.
template <class T>
constexpr double kSmallest = sizeof(T) == 2 ? 6e-8 : 0;

/// Every team that a row can get: from one number to rows that are read twice.
const std::vector<size_t> kColumns = {1, 7, 301, 1000, 1023, 4096, 16384, 131072, 1048576};

TYPED_TEST(SpecialValues, SoftmaxOfEqualNumbersIsEven) {
    for (size_t cols : kColumns)
        for (const auto& result : all_softmaxes<TypeParam>(std::vector<float>(cols, -3), 1)) {
            const float even = float(TypeParam(1 / float(cols)));
            for (size_t i = 0; i < cols; i += 1 + cols / 999)
                ASSERT_NEAR(result[i], even, 1e-3 * even + 6e-8) << cols;
        }
}

TYPED_TEST(SpecialValues, SoftmaxDoesNotChangeWithAnOffset) {
    for (size_t cols : {7, 1000, 4096, 131072}) {
        std::vector<float> near(cols), far(cols);
        for (size_t i = 0; i < cols; ++i) near[i] = float(i % 5), far[i] = near[i] + 1000;
        const auto a = all_softmaxes<TypeParam>(near, 1), b = all_softmaxes<TypeParam>(far, 1);
        for (size_t k = 0; k < a.size(); ++k)
            for (size_t i = 0; i < cols; ++i)
                ASSERT_NEAR(a[k][i], b[k][i], 4e-6 * a[k][i] + kSmallest<TypeParam>)
                    << cols << " " << k;
    }
}

std::vector<float> softmax_on_cpu(const std::vector<float>& x, size_t rows) {
    std::vector<float> expected(x.size());
    demo::softmax_on_cpu(x.data(), expected.data(), rows, x.size() / rows);
    return expected;
}

TYPED_TEST(SpecialValues, SoftmaxOfHugeNumbers) {
    const bool is_half = sizeof(TypeParam) == 2;
    for (float huge : is_half ? std::vector<float>{6e4f} : std::vector<float>{1e10f, 1e12f, 3e38f})
        for (size_t cols : {7, 301, 1000, 1023, 4096, 131072}) {
            // Rows: one -huge among zeros; nothing but -huge; one +huge among -huge.
            std::vector<float> x(3 * cols, -huge);
            std::fill_n(x.begin(), cols, 0.0f);
            x[cols / 3] = -huge;
            x[2 * cols + cols / 2] = huge;
            const std::vector<float> expected = softmax_on_cpu(x, 3);
            for (const auto& result : all_softmaxes<TypeParam>(x, 3))
                for (size_t i = 0; i < 3 * cols; i += 1 + cols / 997) {
                    const float error = i < 2 * cols ? 1e-3f * expected[i] + 6e-8f : 0;
                    ASSERT_NEAR(result[i], expected[i], error) << i << " " << cols << " " << huge;
                }
        }
}

TYPED_TEST(SpecialValues, SoftmaxOfInfinities) {
    for (size_t cols : {7, 301, 1000, 1023, 4096, 131072}) {
        // Rows: some -infinity; nothing but -infinity; a NaN; a +infinity; ordinary.
        std::vector<float> x(5 * cols, 0.0f);
        for (size_t i = 0; i < cols; ++i) {
            if (i % 2) x[i] = -kInf;
            x[cols + i] = -kInf;
        }
        x[2 * cols + cols / 2] = kNan;
        x[3 * cols + cols - 1] = kInf;
        const std::vector<float> expected = softmax_on_cpu(x, 5);
        for (const auto& result : all_softmaxes<TypeParam>(x, 5)) {
            for (size_t i = 0; i < 5 * cols; i += 1 + cols / 997)
                if (i >= cols && i < 4 * cols)
                    ASSERT_TRUE(std::isnan(result[i]) && std::isnan(expected[i])) << i;
                else
                    ASSERT_NEAR(result[i], expected[i], 1e-3 * expected[i] + 6e-8) << i;
            ASSERT_TRUE(std::isnan(result[4 * cols - 1])) << cols;  // e^(inf - inf)
        }
    }
}

// --- LayerNorm and RMSNorm ---

TYPED_TEST(SpecialValues, Norms) {
    using norms::Arrays, norms::LayerNorm, norms::RmsNorm;
    const bool is_half = sizeof(TypeParam) == 2;
    constexpr float kEpsilon = 1e-5f;
    for (size_t cols : {1, 20, 77, 1024}) {
        // Rows: around 100; constant; zeros. All numbers are some that fp16 has.
        std::vector<float> x(3 * cols, 0.0f), residual(3 * cols), gamma(cols), beta(cols);
        for (size_t i = 0; i < cols; ++i) {
            x[i] = 100 + float(i % 7) / 8, x[cols + i] = 0.75f;
            residual[i] = -float(i % 5) / 4;
            gamma[i] = 1 + float(i % 3) / 4, beta[i] = float(i % 4) / 8;
        }
        const Device<TypeParam> X(x), R(residual), G(gamma), B(beta);
        const Device<TypeParam> out(x), sum(x);
        auto norm = [&](auto operation) {  // by warp and by block
            using Op = decltype(operation);
            const Arrays<TypeParam> a{{X.data(), out.data(), 3, cols},
                                      G.data(),
                                      B.data(),
                                      R.data(),
                                      sum.data(),
                                      kEpsilon};
            std::vector<std::vector<float>> results;
            for (const auto& launch :
                 {norms::prepare_by_warp<Op>(a), norms::prepare_by_block<Op>(a)}) {
                launch();
                results.push_back(out.read());
            }
            return results;
        };
        std::vector<float> layer(3 * cols), rms(3 * cols), sums(3 * cols);
        for (size_t at = 0; at < 3 * cols; at += cols) {
            norms::layernorm_on_cpu(&x[at], gamma.data(), beta.data(), &layer[at], cols, kEpsilon);
            norms::rmsnorm_on_cpu(&x[at], &residual[at], gamma.data(), &sums[at], &rms[at], cols,
                                  kEpsilon);
        }
        for (const bool centers : {true, false})
            for (const auto& result : centers ? norm(LayerNorm()) : norm(RmsNorm()))
                for (size_t i = 0; i < 3 * cols; ++i) {
                    const float expected = centers ? layer[i] : rms[i];
                    ASSERT_NEAR(result[i], expected,
                                (is_half ? 2e-3 : 2e-4) * (1 + std::fabs(expected)))
                        << cols << " " << i << " " << centers;
                }
        EXPECT_EQ(sum.read(), sums);
    }
}

// --- Bias and activation ---

/// The result of the kernels is that of on_cpu(), with y = x if there is a y.
template <class Activation, bool kHasY, class T>
void expect_as_on_cpu(float (*act)(float)) {
    using namespace bias_activation;
    const std::vector<float> values{kNan, kInf, -kInf, 100, -100, -1, 2, -0.25f, 0}, bias{0.5f};
    std::vector<float> expected(values.size());
    on_cpu(values.data(), 0.25f, kHasY ? values.data() : nullptr, bias.data(), expected.data(),
           values.size(), 1, act);
    auto check = [&](auto launch) {
        const auto result = map<T>(values, launch);
        for (size_t i = 0; i < result.size(); ++i)
            EXPECT_TRUE(result[i] == expected[i] || (std::isnan(result[i]) && i == 0) ||
                        std::fabs(result[i] - expected[i]) < 1e-3 * std::fabs(expected[i]) + 1e-30)
                << values[i] << ": " << result[i] << ", not " << expected[i];
        EXPECT_TRUE(std::isnan(result[0]));
    };
    const Device<T> b(bias);
    check([&](const T* x, T* out, size_t size) {
        fused<Activation, kHasY, T><<<5, 256>>>(x, 0.25f, x, b.data(), out, size, 1);
    });
    check([&](const T* x, T* out, size_t size) {
        fused_vectorized<Activation, kHasY, T><<<3, 128>>>(x, 0.25f, x, b.data(), out, size, 1);
    });
    if (kHasY) return;
    check([&](const T* x, T* out, size_t size) {
        add_bias<T><<<5, 256>>>(x, b.data(), out, size, 1);
        activate<Activation, T><<<5, 256>>>(out, out, size);
    });
}

TYPED_TEST(SpecialValues, Activations) {
    using namespace bias_activation;
    auto relu = [](float v) { return v < 0 ? 0 : v; };
    expect_as_on_cpu<Relu, false, TypeParam>(relu);
    expect_as_on_cpu<Relu, true, TypeParam>(relu);
    expect_as_on_cpu<Sigmoid, true, TypeParam>([](float v) { return 1 / (1 + std::exp(-v)); });
    expect_as_on_cpu<Gelu, true, TypeParam>([](float v) {
        float result = 0;
        if (v != -kInf) gelu::on_cpu(&v, &result, 1);
        return result;
    });
    expect_as_on_cpu<None, true, TypeParam>([](float v) { return v; });
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    demo::program_name = "test_special_values";
    const demo::Gpu gpu{demo::Options{}};  // exits where there is none
    return RUN_ALL_TESTS();
}
