// The command line, as far as programs do not show it (tests/test_command_line.py): values that are
// accepted, sweeps, large numbers, --help.
#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>

#include "demo/internal.hpp"

namespace {

using demo::Options;
using demo::UsageError;

const demo::Program kMatmul{.name = "matmul", .summary = "multiplies", .types = {{"fp32"}}};
const demo::Program kGating{
    .name = "gating", .summary = "gates", .types = {{"fp16"}}, .talk = true};
const demo::Program kMatrix{
    .name = "matrix",
    .summary = "maps",
    .types = {{"fp32"}, {"fp16"}},
    .any_shape = true,
    .options = {{.name = "--in-place", .help = "over the input"},
                {.name = "--activation", .help = "what to apply", .choices = {"relu", "none"}},
                {.name = "--rank",
                 .help = "of the small matrices",
                 .numbers = demo::Numbers{.first = 8, .last = 64, .multiple = 8, .usual = 16},
                 .value = "R"},
                {.name = "--skip",
                 .help = "a number without a default",
                 .numbers = demo::Numbers{}}},
    .sweep = demo::Sweep::kOnRequest};

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
    EXPECT_EQ(options.rounds, 1);
    EXPECT_TRUE(options.kernels.empty() && options.wants("tiled"));
    EXPECT_FALSE(options.csv || options.hot || options.once || options.help || options.verbose ||
                 options.describe || options.sweep);
}

TEST(CommandLine, EveryOptionIsRead) {
    const Options options =
        parse({"--csv", "--seed", "7", "96", "--device", "2", "--kernel", "tiled", "--hot",
               "--once", "--help", "--rounds", "3", "--verbose", "--describe"});
    EXPECT_EQ(options.n, 96u);
    EXPECT_EQ(options.seed, 7u);
    EXPECT_EQ(options.device, 2);
    EXPECT_EQ(options.kernels, std::vector<std::string>{"tiled"});
    EXPECT_EQ(options.rounds, 3);
    EXPECT_TRUE(options.csv && options.hot && options.once && options.help && options.verbose &&
                options.describe);
    EXPECT_TRUE(parse({"-h"}).help);
}

TEST(CommandLine, SeveralKernelsCanBeAskedFor) {
    const Options options = parse({"--kernel", "basic,tiled"});
    EXPECT_TRUE(options.wants("basic") && options.wants("tiled"));
    EXPECT_FALSE(options.wants("basic,tiled") || options.wants("library"));
    EXPECT_FALSE(parse({"--kernel", "tiled,"}).wants("tiled,"));
}

TEST(CommandLine, SizesAreMultiplesOf32) {
    for (const char* n : {"32", "2080", "4128", "9223372036854775776"})
        EXPECT_EQ(std::to_string(parse({n}).n), n);
}

TEST(CommandLine, AProgramMayTakeTheTalksShapeAlone) {
    const demo::Program talk{.name = "talk",
                             .summary = "gates",
                             .types = {{"fp16"}},
                             .talk = true,
                             .default_talk = 1024};
    EXPECT_EQ(parse({}, talk).talk, 1024u);
    EXPECT_EQ(parse({}, talk).size.name, "S");
    EXPECT_EQ(parse({"--talk", "32"}, talk).talk, 32u);
    EXPECT_TRUE(contains(refusal({"4096"}, talk), "takes no N: its size is --talk S, not '4096'"));
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
}

TEST(CommandLine, NumbersHaveARangeAMultipleAndPerhapsADefault) {
    EXPECT_EQ(parse({}, kMatrix).number("--rank"), 16u);
    EXPECT_EQ(parse({"--rank", "8"}, kMatrix).number("--rank"), 8u);
    EXPECT_EQ(parse({"--rank", "64"}, kMatrix).number("--rank"), 64u);
    for (const char* value : {"7", "12", "72", "+8"})
        EXPECT_EQ(refusal({"--rank", value}, kMatrix),
                  "--rank takes a multiple of 8 from 8 to 64, not '" + std::string(value) + "'");
    EXPECT_FALSE(parse({}, kMatrix).flag("--skip"));
    EXPECT_EQ(parse({"--skip", "0"}, kMatrix).number("--skip"), 0u);
    EXPECT_TRUE(contains(refusal({"--skip", "-1"}, kMatrix), "a whole number from 0 up"));
}

TEST(CommandLine, ASweepHasSizesOfItsOwn) {
    EXPECT_TRUE(parse({"--sweep"}, kMatrix).sweep);
    EXPECT_FALSE(parse({}, kMatrix).sweep);
    EXPECT_TRUE(contains(refusal({"--sweep"}), "no option '--sweep'"));
    for (const auto& message :
         {refusal({"--sweep", "64"}, kMatrix), refusal({"--sweep", "--kernel", "one"}, kMatrix),
          refusal({"--rows", "4", "--cols", "4", "--sweep"}, kMatrix)})
        EXPECT_TRUE(contains(message, "--sweep has sizes of its own")) << message;
    demo::Program always = kGating;
    always.sweep = demo::Sweep::kAlways;
    EXPECT_TRUE(parse({"64"}, always).sweep);
    EXPECT_TRUE(contains(refusal({"--sweep"}, always), "no option '--sweep'"));
}

TEST(CommandLine, ALargeNumberDoesNotWrap) {
    EXPECT_EQ(parse({"--seed", "9223372036854775807"}).seed, uint64_t(INT64_MAX));
    EXPECT_EQ(parse({"--device", "2147483647"}).device, INT32_MAX);
    // Nor to a GPU that exists. It is refused as it was typed.
    EXPECT_TRUE(contains(refusal({"--device", "4294967296"}), "'4294967296'"));
    EXPECT_TRUE(contains(refusal({"9223372036854775808"}), "too large"));
}

// --- --help ---

/// The text of --help, after checking its width, with single blanks for what parts its words.
std::string help_of(const demo::Program& program) {
    testing::internal::CaptureStdout();
    demo::print_help(program, {"plain", "tiled"});
    const std::string text = testing::internal::GetCapturedStdout();
    std::istringstream lines(text), words(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 79u) << line;
    std::string joined;
    for (std::string word; words >> word;) joined += word + " ";
    return joined;
}

TEST(Help, NamesTheKernelsAndTheOptionsThatTheProgramTakes) {
    const std::string plain = help_of(kMatmul), talk = help_of(kGating), matrix = help_of(kMatrix);
    for (const char* part :
         {"./matmul [N]", "plain, tiled", "default 4096", "--kernel", "--seed", "--device", "--csv",
          "--hot", "--once", "--rounds", "--verbose", "--describe", "--help", "77"})
        EXPECT_TRUE(contains(plain, part)) << part;
    EXPECT_FALSE(contains(plain, "--talk"));
    EXPECT_TRUE(contains(talk, "--talk S"));
    for (const char* part :
         {"a whole number from 1 up", "--rows R", "--cols C", "--dtype", "fp32, fp16", "--in-place",
          "--activation", "relu, none", "--rank R", "default 16", "--sweep"}) {
        EXPECT_TRUE(contains(matrix, part)) << part;
        EXPECT_FALSE(contains(plain, part)) << part;
    }
}

TEST(Wrapped, BreaksLinesAtBlanks) {
    EXPECT_EQ(demo::wrapped("one two", 4), "one two\n");
    EXPECT_EQ(demo::wrapped("", 4), "\n");
    EXPECT_EQ(demo::wrapped("    kept", 2), "    kept\n");
    const std::string a(39, 'a'), b(39, 'b'), c(80, 'c');
    EXPECT_EQ(demo::wrapped(a + " " + b, 4), a + " " + b + "\n");         // 79 columns
    EXPECT_EQ(demo::wrapped(a + "a " + b, 4), a + "a\n    " + b + "\n");  // 80
    EXPECT_EQ(demo::wrapped(a + " " + c + " " + b, 2), a + "\n  " + c + "\n  " + b + "\n");
}

}  // namespace
