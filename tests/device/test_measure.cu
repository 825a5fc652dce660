// What take_turns() says of kernels that are right only where it used to look. Each adds two
// vectors of 64 x 64 elements, or seems to. And what main_of() does where there is no memory.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "demo.cuh"
#include "demo/report.cuh"
#include "test_session.cuh"

namespace {

constexpr size_t kSize = 64 * 64;

__global__ void add(const float* a, const float* b, float* out) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = a[i] + b[i];
}
__global__ void add_where_nan(const float* a, const float* b, float* out) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (out[i] != out[i]) out[i] = a[i] + b[i];
}
/// A block has four rows. None of the third one's is compared with the reference while timed.
__global__ void add_but_a_block(const float* a, const float* b, float* out) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (blockIdx.x != 2) out[i] = a[i] + b[i];
}
/// Rounds up by one unit: within the bound.
__global__ void add_otherwise(const float* a, const float* b, float* out) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = __uint_as_float(__float_as_uint(a[i] + b[i]) + 1);
}
/// Right, if the sum is computed from the inputs as they are afterwards.
__global__ void add_and_clear(float* a, const float* b, float* out) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = b[i];
    a[i] = 0;
}
__global__ void add_and_change_one(const float* a, float* b, float* out) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = a[i] + b[i];
    if (i == 200) b[i] += 1;
}

struct Expect {
    const float *a, *b;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double sum = double(a[64 * row + col]) + double(b[64 * row + col]);
        return {sum, 0x1p-22};
    }
};

/// A problem, and what is found of a contender that computes it.
struct Sum {
    demo_test::Session session;
    demo::Input<float> a{session, "a", {64, 64}}, b{session, "b", {64, 64}};
    demo::Output<float> out{session, "out", {64, 64}};
    demo::Buffer<float> kept{kSize};
    int launches = 0, renewals = 0;
    bool repeatable = true;

    void launch(void (*kernel)(const float*, const float*, float*)) {
        kernel<<<kSize / 256, 256>>>(a, b, out);
    }

    /// Whether a timed launch is being made, other than the first and the last; or on a GPU also
    /// the first, or one to warm up.
    bool in_between() const { return renewals == 1 && launches > 2; }

    demo::Verdict measure(
        std::function<void()> launch, std::function<void()> renew = [] {}) {
        return result(launch, renew).verdict;
    }
    demo::Result result(std::function<void()> launch, std::function<void()> renew,
                        std::function<double()> sample = {}) {
        const demo::Gpu gpu{demo::Options{}};
        auto counted = [&] { ++launches, launch(); };
        auto counted_renew = [&] { ++renewals, renew(); };
        const demo::Contender contender{.kernel = "sum",
                                        .launch = counted,
                                        .check = out.check(Expect{a, b}),
                                        .repeatable = repeatable,
                                        .renew = counted_renew,
                                        .sample = sample};
        return demo::take_turns(session.options, gpu, session.arrays, {contender}, session.largest,
                                [](size_t, const demo::Result&) {})[0];
    }
};

TEST(Measurement, ARightKernelIsVerified) {
    Sum sum;
    EXPECT_TRUE(sum.measure([&] { sum.launch(add); }).ok());
    EXPECT_GE(sum.launches, 4);
}

TEST(Measurement, ResultsOfOtherInputsAreSeen) {
    for (const int kept_launch : {1, 2, 3}) {  // what they are kept of
        Sum sum;
        const demo::Verdict verdict = sum.measure([&] {
            if (sum.launches <= kept_launch) {
                sum.launch(add);
                DEMO_CHECK(cudaMemcpyAsync(sum.kept.data(), sum.out, sum.out.bytes(),
                                           cudaMemcpyDeviceToDevice));
            } else {
                DEMO_CHECK(cudaMemcpyAsync(sum.out, sum.kept.data(), sum.out.bytes(),
                                           cudaMemcpyDeviceToDevice));
            }
        });
        EXPECT_FALSE(verdict.ok()) << "of launch " << kept_launch;
        EXPECT_GT(verdict.wrong, 0u);
        EXPECT_GT(verdict.timed, 0u);
    }
}

TEST(Measurement, WhatIsMadeOfTheInputsIsMadeAgainWhenTheyChange) {
    Sum sum;
    int made = 0;
    auto copy = [&] {
        DEMO_CHECK(
            cudaMemcpyAsync(sum.kept.data(), sum.a, sum.a.bytes(), cudaMemcpyDeviceToDevice));
        ++made;
    };
    copy();
    auto launch = [&] { add<<<kSize / 256, 256>>>(sum.kept.data(), sum.b, sum.out); };
    EXPECT_TRUE(sum.measure(launch, copy).ok());
    EXPECT_EQ(made, 3);  // for the first launch, for those before the last, and for the last
}

TEST(Measurement, AContenderMayTakeItsSamplesItself) {
    Sum sum;
    int samples = 0;
    auto launch = [&] { sum.launch(add); };
    const demo::Result right = sum.result(
        launch, [] {}, [&] { return launch(), ++samples; });
    EXPECT_TRUE(right.verdict.ok());
    EXPECT_GE(samples, 3);
    EXPECT_EQ(right.ms.size(), size_t(samples));
    EXPECT_EQ(right.ms.back(), samples);  // what it returned, as it is

    const demo::Result idle = sum.result(
        launch, [] {}, [] { return 1.0; });  // launches nothing
    EXPECT_FALSE(idle.verdict.ok());
    EXPECT_TRUE(idle.ms.empty());
}

TEST(Measurement, AKernelThatComputesOnlyWhereThereIsNoNumberIsWrong) {
    Sum sum;
    const demo::Verdict verdict = sum.measure([&] { sum.launch(add_where_nan); });
    EXPECT_EQ(verdict.wrong, verdict.checked);
    EXPECT_EQ(verdict.timed, 1u);
}

TEST(Measurement, TimedLaunchesThatLeaveSomethingOutAreSeen) {
    for (const bool each : {false, true}) {
        for (const bool by_sample : {false, true}) {
            Sum sum;
            auto launch = [&] {
                const bool leaves_out = sum.in_between() && (each || sum.launches % 2 == 1);
                sum.launch(leaves_out ? add_but_a_block : add);
            };
            auto sample = [&] { return ++sum.launches, launch(), 1.0; };
            const demo::Result result = sum.result(
                launch, [] {}, by_sample ? sample : std::function<double()>());
            EXPECT_TRUE(result.verdict.differs);
            EXPECT_EQ(result.verdict.wrong + result.verdict.unwritten, 0u);
            EXPECT_GE(result.verdict.timed, 2u);  // a GPU checks one in four
            EXPECT_TRUE(result.ms.empty());
        }
    }
}

TEST(Measurement, OnlyWhatIsNotRepeatableMayRoundInAnotherWay) {
    for (const bool repeatable : {false, true}) {
        for (const bool last : {false, true}) {
            Sum sum;
            sum.repeatable = repeatable;
            const demo::Verdict verdict = sum.measure([&] {
                const bool otherwise = last ? sum.renewals == 2 : sum.launches % 2 == 1;
                sum.launch(otherwise ? add_otherwise : add);
            });
            EXPECT_EQ(verdict.ok(), !repeatable);
            EXPECT_EQ(verdict.differs, repeatable);
        }
    }
}

TEST(Measurement, EachTimedLaunchOfWhatIsNotRepeatableIsCompared) {
    Sum sum;
    sum.repeatable = false;
    const demo::Verdict verdict = sum.measure([&] {
        if (!sum.in_between() || sum.launches % 2 == 0) sum.launch(add);
    });
    EXPECT_EQ(verdict.wrong, verdict.checked);
    EXPECT_FALSE(verdict.differs);
    EXPECT_LE(verdict.timed, 2u);
}

TEST(Measurement, AKernelThatChangesItsInputsIsWrong) {
    auto clear = [](Sum& sum) {
        return sum.measure(
            [&] { add_and_clear<<<kSize / 256, 256>>>(sum.a.data(), sum.b, sum.out); });
    };
    auto change_one = [](Sum& sum) {
        return sum.measure(
            [&] { add_and_change_one<<<kSize / 256, 256>>>(sum.a, sum.b.data(), sum.out); });
    };
    Sum sum;
    if (demo::kSimulator) {  // it stops them
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        const std::string message = "which kernels may only read";
        EXPECT_EXIT(clear(sum), testing::ExitedWithCode(demo::kFailed), message);
        EXPECT_EXIT(change_one(sum), testing::ExitedWithCode(demo::kFailed), message);
        return;
    }
    const demo::Verdict cleared = clear(sum);
    EXPECT_EQ(cleared.changed, kSize);
    EXPECT_STREQ(cleared.input, "a");
    const demo::Verdict one = change_one(sum);
    EXPECT_EQ(one.changed, 1u);
    EXPECT_STREQ(one.input, "b");
    EXPECT_EQ(one.row, 200u / 64);
    EXPECT_EQ(one.column, 200u % 64);
    EXPECT_EQ(one.timed, 0u);
}

/// A program with a kernel for which there is never memory.
void run_with_too_large(demo::Session& session) {
    const demo::Input<float> a(session, "a", {2, 4, 8, 64}), b(session, "b", {2, 4, 8, 64});
    const demo::Output<float> out(session, "out", {2, 4, 8, 64});
    EXPECT_EQ(out.rows(), 64u);
    auto launch = [&] { add<<<kSize / 256, 256>>>(a, b, out); };
    session.run(
        {.flops = kSize}, out.check(Expect{a, b}),
        {{.kernel = "add", .launch = launch},
         {.kernel = "too_large", .launch = launch, .why_not = session.gpu.why_no_room(SIZE_MAX)}});
}

TEST(Program, AKernelThatFindsNoMemoryIsALineAndTheOthersRun) {
    const demo::Program program{
        .name = "test", .summary = "tests", .types = {{"fp32", run_with_too_large}}};
    auto run = [&](std::vector<const char*> arguments) {
        arguments.insert(arguments.begin(), {"test", "--once"});
        return demo::main_of(program, int(arguments.size()), const_cast<char**>(arguments.data()));
    };
    testing::internal::CaptureStdout();
    EXPECT_EQ(run({}), demo::kVerified);
    EXPECT_TRUE(std::regex_search(
        testing::internal::GetCapturedStdout(),
        std::regex("too_large  skipped: needs 16\\.0 EiB of GPU memory, \\S+ [GM]iB free\n")));
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(run({"--kernel", "too_large"}), testing::ExitedWithCode(demo::kFailed),
                "^test: too_large: needs 16\\.0 EiB of GPU memory, .* free\n$");
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    demo::program_name = "test_measure";
    const demo::Gpu gpu{demo::Options{}};
    return RUN_ALL_TESTS();
}
