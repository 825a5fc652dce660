// The command line: what is accepted, what is refused, and with which words.
#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>

#include "demo/command_line.hpp"

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

TEST(CommandLine, ABadSizeIsRefusedWithWhatIsAccepted) {
    for (const char* n : {"abc", "33", "0", "-32", "", "1e3", "12abc", "9223372036854775808",
                          "18446744073709551648", "+32", " 32", "32 ", "0x20", "32.0", "31", "-"}) {
        const std::string message = refusal({n});
        EXPECT_TRUE(contains(message, "multiple of 32")) << "N = '" << n << "': " << message;
        EXPECT_TRUE(contains(message, "'" + std::string(n) + "'")) << message;
    }
    EXPECT_TRUE(contains(refusal({"9223372036854775808"}), "too large"));
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

TEST(CommandLine, ASizeCanBeReplacedByAnother) {
    Options n = parse({"96"}), talk = parse({"--talk", "48"}, kGating),
            rows = parse({"--rows", "3", "--cols", "5"}, kMatrix);
    n.resize(64), talk.resize(32), rows.resize(7);
    EXPECT_EQ(n.n, 64u);
    EXPECT_EQ(talk.talk, 32u);
    EXPECT_EQ(rows.rows, 7u);
    EXPECT_EQ(rows.cols, 5u);
    EXPECT_EQ(n.size.value, 64u);
    EXPECT_EQ(talk.size.value, 32u);
    EXPECT_EQ(rows.size.value, 7u);
}

TEST(CommandLine, DtypesGoByTheirNamesAndTheFirstIsTheDefault) {
    EXPECT_EQ(parse({}, kMatrix).type, 0u);
    EXPECT_EQ(parse({"--dtype", "fp16"}, kMatrix).type, 1u);
    EXPECT_TRUE(contains(refusal({"--dtype", "fp64"}, kMatrix), "fp32, fp16"));
    EXPECT_TRUE(contains(refusal({"--dtype", "fp32"}), "no option '--dtype'"));
}

TEST(CommandLine, AProgramMayHaveOptionsOfItsOwn) {
    EXPECT_FALSE(parse({}, kMatrix).flag("--in-place"));
    EXPECT_TRUE(parse({"--in-place"}, kMatrix).flag("--in-place"));
    EXPECT_EQ(parse({}, kMatrix).choice("--activation"), "relu");
    EXPECT_EQ(parse({"--activation", "none"}, kMatrix).choice("--activation"), "none");
    EXPECT_TRUE(contains(refusal({"--activation", "tanh"}, kMatrix), "relu, none"));
    EXPECT_TRUE(contains(refusal({"--in-place"}), "no option '--in-place'"));
}

TEST(CommandLine, NumbersHaveARangeAMultipleAndPerhapsADefault) {
    EXPECT_EQ(parse({}, kMatrix).number("--rank"), 16u);
    EXPECT_EQ(parse({"--rank", "8"}, kMatrix).number("--rank"), 8u);
    EXPECT_EQ(parse({"--rank", "64"}, kMatrix).number("--rank"), 64u);
    for (const char* value : {"0", "7", "12", "72", "-8", "8.0", "+8", " 8", "", "many"})
        EXPECT_EQ(refusal({"--rank", value}, kMatrix),
                  "--rank takes a multiple of 8 from 8 to 64, not '" + std::string(value) + "'");
    EXPECT_FALSE(parse({}, kMatrix).flag("--skip"));
    EXPECT_EQ(parse({"--skip", "0"}, kMatrix).number("--skip"), 0u);
    EXPECT_TRUE(contains(refusal({"--skip", "-1"}, kMatrix), "a whole number from 0 up"));
}

TEST(CommandLine, RoundsAreFew) {
    EXPECT_EQ(parse({"--rounds", "1"}).rounds, 1);
    EXPECT_EQ(parse({"--rounds", "99"}).rounds, 99);
    for (const char* value : {"0", "100", "-1", "2.5", ""})
        EXPECT_TRUE(contains(refusal({"--rounds", value}), "a whole number from 1 to 99")) << value;
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

TEST(CommandLine, AnOptionWithoutItsValueIsRefused) {
    for (const char* option : {"--seed", "--device", "--kernel", "--talk"})
        EXPECT_TRUE(contains(refusal({option}, kGating), "needs a value")) << option;
    for (const char* option : {"--rows", "--cols", "--dtype", "--activation", "--rank"})
        EXPECT_TRUE(contains(refusal({option}, kMatrix), "needs a value")) << option;
    EXPECT_TRUE(contains(refusal({"--kernel", ""}), "--kernel needs a value"));
}

TEST(CommandLine, AKernelMayBeAnyWord) {  // what there is shows when the program runs
    EXPECT_EQ(parse({"--kernel", "tiled"}).kernels.front(), "tiled");
    EXPECT_EQ(parse({"--kernel", "--csv"}).kernels.front(), "--csv");
}

TEST(CommandLine, SeedsAndDevicesAreWholeNumbers) {
    EXPECT_EQ(parse({"--seed", "0"}).seed, 0u);
    EXPECT_EQ(parse({"--seed", "9223372036854775807"}).seed, uint64_t(INT64_MAX));
    for (const char* option : {"--seed", "--device"})
        for (const char* value : {"-1", "1.5", "", "one", "9223372036854775808"})
            EXPECT_FALSE(refusal({option, value}).empty()) << option << " '" << value << "'";
    EXPECT_EQ(parse({"--device", "2147483647"}).device, INT32_MAX);
    // This index must not wrap round to a GPU that exists. It is refused as it was typed.
    EXPECT_NE(refusal({"--device", "4294967296"}).find("'4294967296'"), std::string::npos);
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
