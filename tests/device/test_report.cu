// What is printed. Needs no GPU.
#include <gtest/gtest.h>

#include <sstream>

#include "demo.cuh"
#include "demo/report.cuh"

namespace {

using demo::Role;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// --- Figures ---

TEST(Significant, DigitsAreWrittenWithoutAnExponent) {
    EXPECT_EQ(demo::significant(0, 4), "0.000");
    EXPECT_EQ(demo::significant(3.0625, 4), "3.062");
    EXPECT_EQ(demo::significant(50.625, 4), "50.62");
    EXPECT_EQ(demo::significant(716.04, 4), "716.0");
    EXPECT_EQ(demo::significant(4257, 4), "4257");
    EXPECT_EQ(demo::significant(123456, 4), "123456");
    EXPECT_EQ(demo::significant(0.5, 4), "0.5000");
    EXPECT_EQ(demo::significant(0.00412, 4), "0.004120");
    EXPECT_EQ(demo::significant(0.00412, 2), "0.0041");
    EXPECT_EQ(demo::significant(12.34, 3), "12.3");
}

TEST(Significant, FourDigitsLoseNoMoreThanTheFifth) {
    for (double value = 1e-5; value < 1e6; value *= 1.37)
        EXPECT_NEAR(std::stod(demo::significant(value, 4)) / value, 1, 5.001e-4) << value;
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

// --- The table ---

/// A kernel and its times in ms.
struct Line {
    demo::Contender contender;
    std::vector<double> ms;
    unsigned long long wrong = 0;
};

/// What a report printed.
struct Printed {
    std::string text, errors;
    std::vector<std::string> lines;
    demo::ExitCode exit_code;
};

Printed print(const demo::Workload& work, const std::vector<Line>& table,
              const demo::Options& options = {}, const std::string& gpu_name = "NVIDIA H200",
              bool apart = false) {  // each line in a comparison of its own
    demo::program_name = "test";
    demo::Gpu gpu;
    gpu.name = gpu_name;
    gpu.arch = "sm_90";
    demo::Plan::Comparison comparison{work, {}, {}, {}};
    std::vector<demo::Result> results;
    const demo::Result* copy = nullptr;
    for (const auto& [contender, ms, wrong] : table) {
        comparison.kernels.push_back(
            {contender.kernel, contender.role, "", contender.why_not, "", true, {}});
        demo::Verdict verdict;
        verdict.checked = 100, verdict.wrong = wrong;
        results.push_back({verdict, ms});
    }
    demo::Plan plan;
    plan.comparisons.push_back(comparison);
    for (size_t i = 0; i < table.size(); ++i)
        if (!table[i].contender.computes) copy = &results[i];

    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    demo::Report report(options, gpu, plan);
    for (size_t i = 0; i < table.size(); ++i) {
        if (table[i].contender.why_not.empty())
            report.add(work, table[i].contender, results[i], copy);
        else
            report.skip(table[i].contender);
        if (apart) report.end(work, true);
    }
    report.end(work, table.size() == 1);
    report.finish();
    Printed printed;
    printed.text = testing::internal::GetCapturedStdout();
    printed.errors = testing::internal::GetCapturedStderr();
    printed.lines = lines_of(printed.text);
    printed.exit_code = report.exit_code();
    for (const std::string& line : printed.lines)
        if (!options.csv) EXPECT_LE(line.size(), 79u) << line;
    return printed;
}

/// C = A B in fp16: 137.4e9 operations.
const demo::Workload kMatmul{.shape = "square",
                             .size = 4096,
                             .dtype = "fp16",
                             .flops = 2.0 * 4096 * 4096 * 4096,
                             .least_bytes = 3 * 2 * 4096 * 4096,
                             .text = "N = 4096",
                             .arithmetic = "fp32 sums"};

/// 100 MB to move.
const demo::Workload kMap{.shape = "2500x10000",
                          .size = 2500,
                          .dtype = "fp16",
                          .flops = 9 * 2.5e7,
                          .least_bytes = 100000000,
                          .memory_bound = true,
                          .text = "2500 x 10000"};

TEST(Table, ShowsTimeRatePeakAndSpeedUp) {
    const Printed printed = print(kMatmul, {{{.kernel = "wmma"}, {0.5, 0.5, 0.5}},
                                            {{.kernel = "mma_ptx"}, {0.25, 0.25, 0.25}}});
    ASSERT_EQ(printed.lines.size(), 4u) << printed.text;
    EXPECT_EQ(printed.lines[0], "test on NVIDIA H200: N = 4096, fp16, fp32 sums");
    EXPECT_EQ(printed.lines[1], "                  time  TFLOP/s  of peak  speed-up");
    EXPECT_EQ(printed.lines[2], "  wmma       0.5000 ms    274.9      28%     1.00x  verified");
    EXPECT_EQ(printed.lines[3], "  mma_ptx    0.2500 ms    549.8      56%     2.00x  verified");
    EXPECT_EQ(printed.exit_code, demo::kVerified);
}

TEST(Table, ComparesLinesThatEachStandAlone) {
    const Printed printed =
        print(kMatmul, {{{.kernel = "fp32"}, {0.5}}, {{.kernel = "fp16"}, {0.25}}}, {},
              "NVIDIA H200", true);
    ASSERT_EQ(printed.lines.size(), 4u) << printed.text;
    EXPECT_EQ(printed.lines[2], "  fp32      0.5000 ms    274.9      28%     1.00x  verified");
    EXPECT_EQ(printed.lines[3], "  fp16      0.2500 ms    549.8      56%     2.00x  verified");
}

TEST(Table, ShowsGigabytesBesideACopyWhereMemoryIsTheLimit) {
    const Printed printed =
        print(kMap, {{{.kernel = "chain", .role = Role::kChain}, {0.25}},
                     {{.kernel = "fused"}, {0.025}},
                     {{.kernel = "copy", .role = Role::kYardstick, .computes = false}, {0.02}}});
    ASSERT_EQ(printed.lines.size(), 5u) << printed.text;
    EXPECT_EQ(printed.lines[0],
              "test on NVIDIA H200: 2500 x 10000, fp16, at least 95.4 MiB to move");
    EXPECT_EQ(printed.lines[1], "                 time     GB/s  of copy  speed-up");
    EXPECT_EQ(printed.lines[2], "  chain     0.2500 ms    400.0     8.0%     1.00x  verified");
    EXPECT_EQ(printed.lines[3], "  fused    0.02500 ms     4000      80%     10.0x  verified");
    EXPECT_EQ(printed.lines[4], "  copy     0.02000 ms     5000     100%            verified");
}

TEST(Table, NamesWhatTheGpuCannotDo) {
    const Printed printed = print(kMatmul, {{{.kernel = "right"}, {0.5}},
                                            {{.kernel = "on_two", .gpus = 2}, {0.1}},
                                            {{.kernel = "call", .role = Role::kMistake}, {0.1}}});
    EXPECT_EQ(printed.lines.back(), "  above what this GPU can do, so not its speed: call");
    EXPECT_EQ(printed.exit_code, demo::kVerified);
}

TEST(Table, SaysHowMuchOfTheirLimitKernelsReach) {
    const Printed printed =
        print(kMatmul, {{{.kernel = "mma_ptx"}, {0.5}},
                        {{.kernel = "mma_tma"}, {0.4}},
                        {{.kernel = "mma_alone", .role = Role::kLimit}, {0.3}},
                        {{.kernel = "cublas", .role = Role::kYardstick}, {0.2}}});
    ASSERT_EQ(printed.lines.size(), 8u) << printed.text;
    EXPECT_EQ(printed.lines[6], "  of mma_alone: mma_ptx 60%, mma_tma 75%");
    EXPECT_EQ(printed.lines[7], "  mma_tma against the library: 0.500x cublas");
}

TEST(Table, HasNoPeakWhereNobodyKnowsIt) {
    const Printed printed =
        print(kMatmul, {{{.kernel = "wmma"}, {0.5}}, {{.kernel = "mma"}, {0.4}}}, {}, "Some GPU");
    EXPECT_EQ(printed.lines[1], "                 time  TFLOP/s  speed-up");
    EXPECT_EQ(printed.lines[2], "  wmma      0.5000 ms    274.9     1.00x  verified");
    EXPECT_EQ(printed.lines[3], "  mma       0.4000 ms    343.6     1.25x  verified");
}

TEST(Table, HasNoSpeedUpOfOneKernelAlone) {
    const Printed printed = print(kMatmul, {{{.kernel = "wmma"}, {0.5}}});
    EXPECT_EQ(printed.lines[1], "                 time  TFLOP/s  of peak");
    EXPECT_EQ(printed.lines[2], "  wmma      0.5000 ms    274.9      28%  verified");
}

TEST(Table, MarksWhatIsNoisy) {
    const Printed printed = print(kMatmul, {{{.kernel = "calm"}, {1, 1.001, 1.002}},
                                            {{.kernel = "noisy"}, {1, 1.1, 1.2, 1.3}}});
    EXPECT_TRUE(contains(printed.lines[2], "  1.001 ms")) << printed.text;
    EXPECT_TRUE(contains(printed.lines[3], " ~1.150 ms")) << printed.text;
    EXPECT_TRUE(contains(printed.lines[4], "~ noisy: ")) << printed.text;
    EXPECT_FALSE(contains(print(kMatmul, {{{.kernel = "calm"}, {1, 1, 1}}}).text, "noisy"));
}

TEST(Table, SaysWhatIsWrongAndWhere) {
    const Printed printed =
        print(kMatmul, {{{.kernel = "wrong"}, {}, 3}, {{.kernel = "right"}, {0.5}}});
    EXPECT_EQ(printed.lines[2], "  wrong             -        -  WRONG");
    EXPECT_TRUE(contains(printed.lines[3], "1.00x  verified")) << printed.text;
    EXPECT_TRUE(contains(printed.errors, "test: wrong: 3 of 100 checked elements wrong; "));
    EXPECT_EQ(lines_of(printed.errors).size(), 1u);
    EXPECT_EQ(printed.exit_code, demo::kWrong);
}

TEST(Table, SaysWhatWasSkipped) {
    const Printed printed = print(kMatmul, {{{.kernel = "here"}, {0.5}},
                                            {{.kernel = "elsewhere", .why_not = "needs X"}, {}}});
    EXPECT_EQ(printed.lines[3], "  elsewhere  skipped: needs X");
    EXPECT_EQ(printed.exit_code, demo::kVerified);
    EXPECT_EQ(print(kMatmul, {}).exit_code, demo::kSkipped);
}

TEST(Table, ComparesTheBestKernelWithTheLibrary) {
    const Printed printed =
        print(kMatmul, {{{.kernel = "six", .role = Role::kChain}, {4}},
                        {{.kernel = "one"}, {2}},
                        {{.kernel = "two"}, {1}},
                        {{.kernel = "library", .role = Role::kLibrary}, {2}},
                        {{.kernel = "cublas", .role = Role::kYardstick}, {0.9}}});
    EXPECT_EQ(printed.lines.back(), "  two against the library: 2.00x library, 0.900x cublas");
}

TEST(Table, VerboseTellsSamplesLaunchesAndBytes) {
    demo::Options options;
    options.verbose = true;
    const Printed printed = print(kMap,
                                  {{{.kernel = "chain",
                                     .launches = 9,
                                     .temporary_bytes = 2048,
                                     .moved_bytes = 4096,
                                     .note = "one two three four five six seven eight nine"},
                                    {1, 1, 1}},
                                   {{.kernel = "fused"}, {1}}},
                                  options);
    EXPECT_EQ(printed.lines[3],
              "      3 samples, spread 0.0%; 9 launches; 2.0 KiB temporary; 4.0 KiB moved; one");
    EXPECT_EQ(printed.lines[4], "      two three four five six seven eight nine");
    EXPECT_EQ(printed.lines.back(), "      1 samples, spread 0.0%; 1 launch");
}

TEST(Table, OnceHasVerdictsAlone) {
    demo::Options options;
    options.once = true;
    const Printed printed = print(kMatmul, {{{.kernel = "wmma"}, {}}}, options);
    ASSERT_EQ(printed.lines.size(), 2u) << printed.text;
    EXPECT_EQ(printed.lines[1], "  wmma    verified");
}

TEST(Table, FitsWithLongNamesAndTimes) {
    demo::Workload work = kMatmul;
    work.text = "S = 1024: x[4194304, 128], W[128, 64]";
    work.memory_bound = true;
    const Printed printed =
        print(work,
              {{{.kernel = "a_kernel_of_24_letters__"}, {1234567, 1434567, 1534567}},
               {{.kernel = "copy", .role = Role::kYardstick, .computes = false}, {0.001}}},
              {}, "NVIDIA GeForce RTX 4090 Laptop GPU of a long name");
    EXPECT_EQ(printed.lines[0].back(), ':');
    EXPECT_TRUE(printed.lines[1].starts_with("  S = 1024: ")) << printed.text;
}

TEST(Table, OfSweepHasALineForASize) {
    demo::Options options;
    options.sweep = true;
    demo::Workload work = kMatmul;
    work.text = "262144 x 1024";
    std::vector<Line> table = {{{.kernel = "six_kernels", .role = Role::kChain}, {4}},
                               {{.kernel = "library_best", .role = Role::kLibrary}, {3}},
                               {{.kernel = "fused_portable"}, {2}}};
    Printed printed = print(work, table, options);
    ASSERT_EQ(printed.lines.size(), 3u) << printed.text;
    EXPECT_EQ(printed.lines[1],
              "  ms            six_kernels library_best fused_portable x chain x library");
    EXPECT_EQ(printed.lines[2],
              "  262144 x 1024       4.000        3.000          2.000   2.00x     1.50x  ok");
    table[2].ms = {}, table[2].wrong = 1;
    printed = print(work, table, options);
    EXPECT_TRUE(printed.lines[2].ends_with(" WRONG")) << printed.text;
    EXPECT_EQ(printed.exit_code, demo::kWrong);
}

TEST(Row, HasAHeadWhereItIsAnother) {
    const demo::Options options{};
    const demo::Gpu gpu;
    demo::Plan plan;
    plan.comparisons.push_back({kMatmul, {}, {}, {}});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    demo::Report report(options, gpu, plan);
    report.row({{"ms", "N = 32  "}, {"waves", "       2"}, {"fixed_work", demo::figure(4.1)}});
    report.row({{"ms", "N = 64  "}, {"waves", "       3"}, {"fixed_work", demo::figure(0)}});
    report.count(kMatmul, {.kernel = "wrong"}, {});
    report.row({{"", "N = 64  "}, {"chase", demo::figure(276.5), "cycles"}});
    report.row({{"", "N = 96  "}, {"chase", demo::figure(276.5), "cycles"}});
    testing::internal::GetCapturedStderr();
    const std::vector<std::string> expected = {"  ms          waves fixed_work",
                                               "  N = 32          2      4.100  ok",
                                               "  N = 64          3          -  ok",
                                               "",
                                               "              chase",
                                               "             cycles",
                                               "  N = 64      276.5 WRONG",
                                               "  N = 96      276.5  ok"};
    const auto lines = lines_of(testing::internal::GetCapturedStdout());
    EXPECT_EQ(std::vector(lines.begin() + 1, lines.end()), expected);
}

TEST(Csv, HasARowForAKernel) {
    demo::Options options;
    options.csv = true;
    const Printed printed =
        print(kMap,
              {{{.kernel = "fused", .moved_bytes = 200000000}, {0.025}},
               {{.kernel = "copy", .role = Role::kYardstick, .computes = false}, {0.02}},
               {{.kernel = "elsewhere", .why_not = "needs X"}, {}}},
              options);
    ASSERT_EQ(printed.lines.size(), 3u) << printed.text;
    EXPECT_EQ(printed.lines[1],
              "test,fused,\"NVIDIA H200\",90,fp16,2500x10000,2500,0.025000,0.00,9.000,4000,yes,"
              "0.000,1,0,200000000,100000000,ours,0000000000000000,,,,");
    EXPECT_EQ(printed.lines[2],
              "test,copy,\"NVIDIA H200\",90,fp16,2500x10000,2500,0.020000,0.00,,5000,yes,"
              "0.000,1,0,,100000000,yardstick,0000000000000000,,,,");
}

// --- The dry run ---

TEST(DryRun, AddsUpWhatIsThereAtATime) {
    demo::Plan plan;
    demo::dry_run = &plan;
    {
        const demo::Buffer<float> a(1000);
        { const demo::Buffer<float> b(500, 2); }
        { const demo::Buffer<char> c(1); }
    }
    const demo::Buffer<char> huge(SIZE_MAX / 2, 3);
    demo::dry_run = nullptr;
    EXPECT_EQ(plan.device_bytes, SIZE_MAX);
}

}  // namespace
