// The command line that all programs share:  ./program [N] [options]
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "errors.hpp"

namespace demo {

#ifdef DEMO_CPU_LANE
inline constexpr bool kCpuLane = true;  // built for the CPU: small sizes, few samples
#else
inline constexpr bool kCpuLane = false;
#endif

/// An option of one program alone.
struct Extra {
    std::string option;               // "--in-place"
    std::string help;                 // what it does
    std::vector<std::string> values;  // what it takes, the default first; empty: it takes none
};

/// What one program accepts.
struct Program {
    std::string name;                  // "2_matmul_sharedmem"
    std::string summary;               // what it does, for --help
    std::vector<std::string> kernels;  // what --kernel takes; without it, all of them run
    bool talk = false;                 // takes --talk S
    size_t default_n = kCpuLane ? 256 : 4096;
    bool any_shape = false;                // takes every N from 1, and --rows R --cols C
    std::vector<std::string> dtypes = {};  // what --dtype takes, the default first
    std::vector<Extra> extras = {};

    size_t step() const { return any_shape ? 1 : 32; }  // N is a multiple of it
};

/// A size that the user chose: "N", what it is, and what it must be a multiple of.
struct Size {
    std::string name;
    size_t value, step;
};

/// What the user asked for.
struct Options {
    Size size;                  // N, S of --talk, or R of --rows
    bool sized = false;         // one of these was given
    size_t n = 0;               // N
    size_t talk = 0;            // S of --talk; 0 where it was not given
    size_t rows = 0, cols = 0;  // of --rows and --cols; 0 where they were not given
    std::string dtype;          // of --dtype
    uint64_t seed = 1;          // of the random data
    int device = 0;             // CUDA's index of the GPU
    std::string kernel;         // of --kernel; empty where it was not given
    bool csv = false;           // rows for scripts instead of lines for people
    bool hot = false;           // keep what the launch before left in the cache
    bool once = false;          // one verified launch, no timing
    bool help = false;
    std::map<std::string, std::string> extras;  // values of the program's own options

    /// True where the kernel `name` is to run.
    bool wants(std::string_view name) const { return kernel.empty() || kernel == name; }
    /// True where an option without values was given.
    bool has(const std::string& option) const { return extras.count(option) > 0; }
};

using UsageError = std::invalid_argument;

/// A whole number from 0 to 2^63 - 1: no sign, no blanks, no exponent. Throws UsageError, which
/// says that `what` takes `accepted`.
inline uint64_t parse_number(std::string_view text, const std::string& what,
                             const std::string& accepted) {
    int64_t value = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc() || end != last || value < 0)
        throw UsageError(what + " takes " + accepted + ", not '" + std::string(text) + "'" +
                         (error == std::errc::result_out_of_range ? " (too large)" : ""));
    return uint64_t(value);
}

/// A size: `step`, or a multiple of it. Throws UsageError.
inline size_t parse_size(std::string_view text, const std::string& what, size_t step) {
    const std::string s = std::to_string(step);
    const std::string accepted =
        step == 1 ? "a whole number from 1 up" : "a multiple of " + s + " from " + s + " up";
    const uint64_t value = parse_number(text, what, accepted);
    if (value == 0 || value % step != 0)
        throw UsageError(what + " takes " + accepted + ", not '" + std::string(text) + "'");
    return value;
}

inline std::string join(const std::vector<std::string>& names, const std::string& separator) {
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : separator) + name;
    return joined;
}

/// One of `names`. Throws UsageError, which lists them.
inline std::string parse_name(std::string_view text, const std::string& what,
                              const std::vector<std::string>& names) {
    if (std::find(names.begin(), names.end(), text) != names.end()) return std::string(text);
    throw UsageError(what + " takes one of " + join(names, ", ") + ", not '" + std::string(text) +
                     "'");
}

/// Reads `arguments` (without the program's own name). Throws UsageError.
inline Options parse(const Program& program, std::span<const char* const> arguments) {
    Options options;
    options.n = program.default_n;
    if (!program.dtypes.empty()) options.dtype = program.dtypes.front();
    for (const Extra& extra : program.extras)
        if (!extra.values.empty()) options.extras[extra.option] = extra.values.front();
    std::set<std::string_view> given;

    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string_view argument = arguments[i];
        const bool is_option = argument.starts_with("--") || argument == "-h";
        const std::string_view key = is_option ? argument : "N";
        if (!given.insert(key).second)
            throw UsageError(std::string(key) + " was given twice: '" + std::string(argument) +
                             "' is one too many");

        auto value = [&]() -> std::string_view {
            if (i + 1 < arguments.size()) return arguments[++i];
            throw UsageError(std::string(argument) + " needs a value; see --help");
        };
        const auto extra = std::ranges::find(program.extras, argument, &Extra::option);
        if (!is_option)
            options.n = parse_size(argument, "N", program.step());
        else if (extra != program.extras.end())
            options.extras[extra->option] =
                extra->values.empty() ? "" : parse_name(value(), extra->option, extra->values);
        else if (argument == "--rows" && program.any_shape)
            options.rows = parse_size(value(), "--rows", 1);
        else if (argument == "--cols" && program.any_shape)
            options.cols = parse_size(value(), "--cols", 1);
        else if (argument == "--dtype" && !program.dtypes.empty())
            options.dtype = parse_name(value(), "--dtype", program.dtypes);
        else if (argument == "--talk" && program.talk)
            options.talk = parse_size(value(), "--talk", 16);
        else if (argument == "--kernel" && !program.kernels.empty())
            options.kernel = parse_name(value(), "--kernel", program.kernels);
        else if (argument == "--seed")
            options.seed = parse_number(value(), "--seed", "a whole number from 0 up");
        else if (argument == "--device")
            options.device = int(std::min<uint64_t>(
                parse_number(value(), "--device", "a GPU's index from 0 up"), 1 << 30));
        else if (argument == "--csv")
            options.csv = true;
        else if (argument == "--hot")
            options.hot = true;
        else if (argument == "--once")
            options.once = true;
        else if (argument == "--help" || argument == "-h")
            options.help = true;
        else
            throw UsageError("no option '" + std::string(argument) + "'; see --help");
    }
    if (options.talk && given.contains("N"))
        throw UsageError("N and --talk exclude each other: give one of them");
    if (given.contains("--rows") != given.contains("--cols"))
        throw UsageError("--rows and --cols belong together: give both");
    if (options.rows && given.contains("N"))
        throw UsageError("N and --rows exclude each other: N is for square matrices");
    options.size = options.talk   ? Size{"S", options.talk, 16}
                   : options.rows ? Size{"R", options.rows, 1}
                                  : Size{"N", options.n, program.step()};
    options.sized = given.contains("N") || options.talk || options.rows;
    return options;
}

inline void print_help(const Program& program) {
    auto line = [](const std::string& option, const std::string& help) {
        std::printf("  %-15s%s\n", option.c_str(), help.c_str());
    };
    std::printf("%s: %s\n\nusage: ./%s [N%s] [options]\n\n", program.name.c_str(),
                program.summary.c_str(), program.name.c_str(),
                program.talk        ? " | --talk S"
                : program.any_shape ? " | --rows R --cols C"
                                    : "");
    line("N", "the matrices are N x N: " +
                  std::string(program.any_shape ? "any N from 1" : "a multiple of 32") +
                  " (default " + std::to_string(program.default_n) + ")");
    if (program.talk) line("--talk S", "x[4*S*S, 128] and W[128, 64] instead: S a multiple of 16");
    if (program.any_shape) line("--rows R", "with --cols C: R x C instead, any sizes from 1");
    if (!program.dtypes.empty())
        line("--dtype TYPE", "one of: " + join(program.dtypes, " ") + " (default the first)");
    if (!program.kernels.empty())
        line("--kernel NAME", "only this one of: " + join(program.kernels, " "));
    for (const Extra& extra : program.extras)
        line(extra.option,
             extra.values.empty()
                 ? extra.help
                 : extra.help + ", one of: " + join(extra.values, " ") + " (default the first)");
    std::printf(
        "  --seed S       seed of the random data (default 1)\n"
        "  --device I     index of the GPU (default 0)\n"
        "  --csv          print rows for scripts instead of lines for people\n"
        "  --hot          do not flush the cache between launches\n"
        "  --once         one verified launch, no timing (for ncu, compute-sanitizer, debuggers)\n"
        "  --help         this text\n"
        "\n"
        "exit codes: 0 every result verified, 1 a wrong result, 2 usage, 3 a CUDA or library\n"
        "error or too little memory, 77 nothing here can run it\n");
}

/// parse() for main(): prints the help or the one line about what is wrong, and exits.
inline Options parse_command_line(int argc, char** argv, const Program& program) {
    program_name = program.name;
    try {
        const Options options = parse(program, {argv + 1, argv + std::max(argc, 1)});
        if (!options.help) return options;
        print_help(program);
        std::exit(kVerified);
    } catch (const UsageError& error) {
        fail(kUsage, error.what());
    }
}

}  // namespace demo
