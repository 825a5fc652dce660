// The command line: what is accepted, what is refused, and with which words.
#include <gtest/gtest.h>

#include <initializer_list>

#include "demo/command_line.hpp"

namespace {

using demo::Options;
using demo::UsageError;

const demo::Program kMatmul{"matmul", "multiplies", {"plain", "tiled"}};
const demo::Program kGating{"gating", "gates", {"fused"}, /*talk=*/true};
const demo::Program kMatrix{.name = "matrix",
                            .summary = "maps",
                            .kernels = {"chain"},
                            .any_shape = true,
                            .dtypes = {"fp32", "fp16"},
                            .extras = {{"--in-place", "over the input", {}},
                                       {"--activation", "what to apply", {"relu", "none"}}}};

Options parse(std::initializer_list<const char*> arguments,
              const demo::Program& program = kMatmul) {
    return demo::parse(program, {arguments.begin(), arguments.size()});
}

/// The message with which parsing fails; empty if it succeeds.
std::string refusal(std::initializer_list<const char*> arguments,
                    const demo::Program& program = kMatmul) {
    try {
        parse(arguments, program);
        return "";
    } catch (const UsageError& error) {
        return error.what();
    }
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(CommandLine, WithoutArgumentsTheDefaultsHold) {
    const Options options = parse({});
    EXPECT_EQ(options.n, 4096u);
    EXPECT_EQ(options.talk, 0u);
    EXPECT_EQ(options.seed, 1u);
    EXPECT_EQ(options.device, 0);
    EXPECT_TRUE(options.kernel.empty());
    EXPECT_FALSE(options.csv || options.hot || options.once || options.help);
}

TEST(CommandLine, EveryOptionIsRead) {
    const Options options = parse({"--csv", "--seed", "7", "96", "--device", "2", "--kernel",
                                   "tiled", "--hot", "--once", "--help"});
    EXPECT_EQ(options.n, 96u);
    EXPECT_EQ(options.seed, 7u);
    EXPECT_EQ(options.device, 2);
    EXPECT_EQ(options.kernel, "tiled");
    EXPECT_TRUE(options.csv && options.hot && options.once && options.help);
    EXPECT_TRUE(parse({"-h"}).help);
}

TEST(CommandLine, SizesAreMultiplesOf32) {
    for (const char* n : {"32", "2080", "4128", "9223372036854775776"})
        EXPECT_EQ(std::to_string(parse({n}).n), n);
}

TEST(CommandLine, ABadSizeIsRefusedWithWhatIsAccepted) {
    for (const char* n : {"abc", "33", "0", "-32", "", "1e3", "12abc", "9223372036854775808",
                          "18446744073709551648", "+32", " 32", "32 ", "0x20", "32.0", "31", "-"}) {
        const std::string message = refusal({n});
        EXPECT_TRUE(contains(message, "multiple of 32")) << "N = '" << n << "': " << message;
        EXPECT_TRUE(contains(message, "'" + std::string(n) + "'")) << message;
    }
    EXPECT_TRUE(contains(refusal({"9223372036854775808"}), "too large"));
}

TEST(CommandLine, NothingMayBeGivenTwice) {
    EXPECT_TRUE(contains(refusal({"4096", "4096"}), "N was given twice"));
    EXPECT_TRUE(contains(refusal({"--csv", "--csv"}), "--csv was given twice"));
    EXPECT_TRUE(contains(refusal({"--seed", "1", "--seed", "1"}), "--seed was given twice"));
    EXPECT_TRUE(contains(refusal({"--talk", "32", "--talk", "32"}, kGating), "given twice"));
}

TEST(CommandLine, UnknownOptionsAreNamed) {
    for (const char* option : {"--bogus", "--seed=1", "--"})
        EXPECT_TRUE(contains(refusal({option}), option)) << option;
    EXPECT_FALSE(refusal({"-x"}).empty());
}

TEST(CommandLine, TalkIsForProgramsThatHaveItAndExcludesN) {
    EXPECT_EQ(parse({"--talk", "1024"}, kGating).talk, 1024u);
    EXPECT_EQ(parse({"--talk", "16"}, kGating).talk, 16u);
    EXPECT_TRUE(contains(refusal({"--talk", "1024"}), "no option '--talk'"));
    EXPECT_TRUE(contains(refusal({"--talk", "1024", "4096"}, kGating), "exclude each other"));
    EXPECT_TRUE(contains(refusal({"4096", "--talk", "1024"}, kGating), "exclude each other"));
    for (const char* s : {"0", "-16", "17", "8", "", "x"})
        EXPECT_TRUE(contains(refusal({"--talk", s}, kGating), "multiple of 16")) << s;
}

TEST(CommandLine, AnyShapeMeansAnySizeFrom1) {
    for (size_t n : {1, 7, 33, 4096}) {
        const Options options = parse({std::to_string(n).c_str()}, kMatrix);
        EXPECT_EQ(options.n, n);
        EXPECT_EQ(options.size.value, n);
        EXPECT_EQ(options.size.step, 1u);
    }
    const Options options = parse({"--rows", "3", "--cols", "1000"}, kMatrix);
    EXPECT_EQ(options.rows, 3u);
    EXPECT_EQ(options.cols, 1000u);
    EXPECT_EQ(options.size.name, "R");
    EXPECT_EQ(options.size.value, 3u);
    for (const char* n : {"0", "-1", "", "x", "1.5"})
        EXPECT_TRUE(contains(refusal({n}, kMatrix), "a whole number from 1 up")) << n;
    EXPECT_TRUE(contains(refusal({"--rows", "0", "--cols", "1"}, kMatrix), "--rows takes"));
    EXPECT_TRUE(contains(refusal({"--rows", "3"}, kMatrix), "give both"));
    EXPECT_TRUE(contains(refusal({"--cols", "3"}, kMatrix), "give both"));
    EXPECT_TRUE(contains(refusal({"64", "--rows", "3", "--cols", "3"}, kMatrix), "exclude"));
    EXPECT_TRUE(contains(refusal({"--rows", "3", "--cols", "3"}), "no option '--rows'"));
}

TEST(CommandLine, TheSizeIsNOrSOrR) {
    EXPECT_EQ(parse({"96"}).size.name, "N");
    EXPECT_EQ(parse({"96"}).size.step, 32u);
    EXPECT_EQ(parse({"--talk", "48"}, kGating).size.name, "S");
    EXPECT_EQ(parse({"--talk", "48"}, kGating).size.value, 48u);
    EXPECT_EQ(parse({"--talk", "48"}, kGating).size.step, 16u);
}

TEST(CommandLine, DtypesGoByTheirNamesAndTheFirstIsTheDefault) {
    EXPECT_EQ(parse({}, kMatrix).dtype, "fp32");
    EXPECT_EQ(parse({"--dtype", "fp16"}, kMatrix).dtype, "fp16");
    EXPECT_TRUE(contains(refusal({"--dtype", "fp64"}, kMatrix), "fp32, fp16"));
    EXPECT_TRUE(contains(refusal({"--dtype", "fp16"}), "no option '--dtype'"));
}

TEST(CommandLine, AProgramMayHaveOptionsOfItsOwn) {
    EXPECT_FALSE(parse({}, kMatrix).has("--in-place"));
    EXPECT_TRUE(parse({"--in-place"}, kMatrix).has("--in-place"));
    EXPECT_EQ(parse({}, kMatrix).extras.at("--activation"), "relu");
    EXPECT_EQ(parse({"--activation", "none"}, kMatrix).extras.at("--activation"), "none");
    EXPECT_TRUE(contains(refusal({"--activation", "tanh"}, kMatrix), "relu, none"));
    EXPECT_TRUE(contains(refusal({"--in-place"}), "no option '--in-place'"));
}

TEST(CommandLine, AnOptionWithoutItsValueIsRefused) {
    for (const char* option : {"--seed", "--device", "--kernel", "--talk"})
        EXPECT_TRUE(contains(refusal({option}, kGating), "needs a value")) << option;
    for (const char* option : {"--rows", "--cols", "--dtype", "--activation"})
        EXPECT_TRUE(contains(refusal({option}, kMatrix), "needs a value")) << option;
}

TEST(CommandLine, KernelsGoByTheirNames) {
    EXPECT_TRUE(parse({}).wants("plain"));
    EXPECT_TRUE(parse({"--kernel", "tiled"}).wants("tiled"));
    EXPECT_FALSE(parse({"--kernel", "tiled"}).wants("plain"));
    for (const char* name : {"", "TILED", "tile", "tiled "}) {
        const std::string message = refusal({"--kernel", name});
        EXPECT_TRUE(contains(message, "plain, tiled")) << name << ": " << message;
    }
}

TEST(CommandLine, SeedsAndDevicesAreWholeNumbers) {
    EXPECT_EQ(parse({"--seed", "0"}).seed, 0u);
    EXPECT_EQ(parse({"--seed", "9223372036854775807"}).seed, uint64_t(INT64_MAX));
    for (const char* option : {"--seed", "--device"})
        for (const char* value : {"-1", "1.5", "", "one", "9223372036854775808"})
            EXPECT_FALSE(refusal({option, value}).empty()) << option << " '" << value << "'";
    // No GPU has this index; it must not wrap round to one that exists.
    EXPECT_GT(parse({"--device", "4294967296"}).device, 1000);
}

TEST(CommandLineDeathTest, MainEndsWithOneLineAndExitCode2) {
    char program[] = "./matmul", n[] = "33";
    char* arguments[] = {program, n, nullptr};
    EXPECT_EXIT(demo::parse_command_line(2, arguments, kMatmul), testing::ExitedWithCode(2),
                "^matmul: N takes a multiple of 32 from 32 up, not '33'\n$");
}

TEST(Help, NamesTheKernelsAndTheOptionsThatTheProgramTakes) {
    testing::internal::CaptureStdout();
    demo::print_help(kMatmul);
    const std::string plain = testing::internal::GetCapturedStdout();
    testing::internal::CaptureStdout();
    demo::print_help(kGating);
    const std::string talk = testing::internal::GetCapturedStdout();
    testing::internal::CaptureStdout();
    demo::print_help(kMatrix);
    const std::string matrix = testing::internal::GetCapturedStdout();

    for (const char* part : {"./matmul [N]", "plain tiled", "default 4096", "--kernel", "--seed",
                             "--device", "--csv", "--hot", "--once", "--help", "77"})
        EXPECT_TRUE(contains(plain, part)) << part;
    EXPECT_FALSE(contains(plain, "--talk"));
    EXPECT_TRUE(contains(talk, "--talk S"));
    for (const char* part : {"any N from 1", "--rows R", "--cols C", "--dtype", "fp32 fp16",
                             "--in-place", "--activation", "relu none"}) {
        EXPECT_TRUE(contains(matrix, part)) << part;
        EXPECT_FALSE(contains(plain, part)) << part;
    }
}

}  // namespace
