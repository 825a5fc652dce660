// What a program declares of itself, and the command line that follows from it:
// ./program [N] [options]
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "errors.hpp"

namespace demo {

#ifdef SIMULATOR
inline constexpr bool kSimulator = true;  // built for the CPU: small sizes, few samples
#else
inline constexpr bool kSimulator = false;
#endif

class Session;
struct Gpu;
struct Options;

// --- The declaration ----------------------------------------------------------------------------

/// The whole numbers that an option takes: multiples of `multiple` from `first` to `last`.
struct Numbers {
    uint64_t first = 0, last = INT64_MAX, multiple = 1;
    std::optional<uint64_t> usual = {};  // the value of an option that was not given
};

/// An option: a flag, a choice or a number.
struct Option {
    std::string name;                       // "--rank"
    std::string help;                       // what it does
    std::vector<std::string> choices = {};  // a choice: one of these, the first by default
    std::optional<Numbers> numbers = {};    // a number
    std::string value = "NAME";             // what --help calls the value
    bool any_text = false;                  // takes any word: --kernel, whose names come later

    bool is_flag() const { return choices.empty() && !numbers && !any_text; }
};

/// A data type that a program computes in, and the function that does.
struct Type {
    std::string name;  // "fp32"
    void (*run)(Session&) = nullptr;
};

/// Rows and columns of a matrix.
struct Extent {
    size_t rows, cols;
};

/// Kernels that are to be measured side by side at many sizes: ours and the library's best.
struct Grid {
    std::vector<std::string> kernels = {};
    std::vector<size_t> sizes = {};  // N
};

/// Whether a program can run one size after the other, a line each.
enum class Sweep { kNever, kOnRequest, kAlways };

/// A program: all that the command line, --help, --describe and the scripts know of it, together
/// with what its run() hands to Session::run().
struct Program {
    std::string name;         // "2_matmul_sharedmem"
    std::string summary;      // what it does, for --help
    std::vector<Type> types;  // with several --dtype chooses, the first by default
    bool talk = false;        // takes --talk S
    size_t default_talk = 0;  // S of a program that takes --talk S alone, and no N; else 0
    bool any_n = false;       // takes every N from 1
    bool any_shape = false;   // likewise, and --rows R --cols C
    std::string n_means = "the matrices are N x N";  // for --help
    size_t default_n = kSimulator ? 256 : 4096;
    uint64_t device = 0;               // index of the GPU, where --device does not say another
    std::vector<Option> options = {};  // its own

    // What is worth measuring when GPUs are compared.
    std::vector<size_t> sizes = {1024, 2048, 4096, 8192, 16384};   // N
    std::vector<size_t> talk_sizes = {128, 256, 512, 1024, 2048};  // S, of a program with --talk
    std::vector<Extent> shapes = {};                               // of one with --rows
    std::vector<std::string> variants = {};  // command lines with options of its own
    Grid grid = {};                          // what compare_gpus.sh --grid measures

    Sweep sweep = Sweep::kNever;  // over shapes; over sizes up to N, where it is always
    // The N of a sweep that is always, where they are not 32, 64, 128, ...
    std::vector<size_t> (*sweep_sizes)(const Options&, const Gpu&) = nullptr;

    size_t step() const { return any_n || any_shape ? 1 : 32; }  // N is a multiple of it
};

/// All options of a program: its own, then those that all programs share.
inline std::vector<Option> options_of(const Program& program) {
    std::vector<Option> all;
    const Numbers from_one{.first = 1};
    if (program.talk) {
        const std::string instead = program.default_talk ? "" : " instead";
        Numbers S{.first = 16, .multiple = 16};
        if (program.default_talk) S.usual = program.default_talk;
        all.push_back({.name = "--talk",
                       .help = "x[4*S*S, 128] and W[128, 64]" + instead + ": S a multiple of 16",
                       .numbers = S,
                       .value = "S"});
    }
    if (program.any_shape) {
        all.push_back({.name = "--rows",
                       .help = "with --cols C: R x C instead, any sizes from 1",
                       .numbers = from_one,
                       .value = "R"});
        all.push_back(
            {.name = "--cols", .help = "columns, with --rows", .numbers = from_one, .value = "C"});
    }
    if (program.types.size() > 1) {
        std::vector<std::string> names;
        for (const Type& type : program.types) names.push_back(type.name);
        all.push_back({.name = "--dtype", .help = "data type", .choices = names, .value = "TYPE"});
    }
    all.insert(all.end(), program.options.begin(), program.options.end());
    if (program.sweep == Sweep::kOnRequest)
        all.push_back({.name = "--sweep", .help = "a line for each of the sizes worth measuring"});
    all.push_back(
        {.name = "--kernel", .help = "run this one alone, or these alone: A,B", .any_text = true});
    all.push_back({.name = "--seed",
                   .help = "seed of the random data",
                   .numbers = Numbers{.usual = 1},
                   .value = "S"});
    all.push_back({.name = "--device",
                   .help = "index of the GPU",
                   .numbers = Numbers{.last = INT32_MAX, .usual = program.device},
                   .value = "I"});
    all.push_back({.name = "--rounds",
                   .help = "measure every kernel so many times, in turns",
                   .numbers = Numbers{.first = 1, .last = 99, .usual = 1},
                   .value = "COUNT"});
    all.push_back({.name = "--hot", .help = "do not flush the cache between launches"});
    all.push_back(
        {.name = "--once",
         .help = "one verified launch, no timing: for ncu, compute-sanitizer, debuggers"});
    all.push_back({.name = "--verbose",
                   .help = "what the GPU has; spread, launches and bytes of every kernel"});
    all.push_back({.name = "--csv", .help = "print rows for scripts instead of a table"});
    all.push_back({.name = "--describe", .help = "print what this program is and takes, as JSON"});
    all.push_back({.name = "--help", .help = "this text"});
    return all;
}

// --- What the user asked for --------------------------------------------------------------------

/// A size that the user chose: "N", what it is, and what it must be a multiple of.
struct Size {
    std::string name;
    size_t value, step;
};

struct Options {
    Size size;                  // N, S of --talk, or R of --rows
    size_t n = 0;               // N
    size_t talk = 0;            // S of --talk; 0 where it was not given
    size_t rows = 0, cols = 0;  // of --rows and --cols; 0 where they were not given
    size_t type = 0;            // of --dtype: an index of Program::types
    uint64_t seed = 1;          // of the random data
    int device = 0;             // CUDA's index of the GPU
    int rounds = 1;             // turns of each kernel
    bool hot = false;           // keep what the launch before left in the cache
    bool once = false;          // one verified launch, no timing
    bool verbose = false;       // print all that is known of a result
    bool csv = false;           // rows for scripts instead of a table for people
    bool describe = false;
    bool help = false;
    bool sweep = false;                         // one size after the other
    std::vector<std::string> kernels;           // of --kernel; empty where it was not given
    std::map<std::string, std::string> values;  // of all options that were given or have a default

    /// Whether --kernel leaves this one.
    bool wants(const std::string& kernel) const {
        return kernels.empty() || std::ranges::find(kernels, kernel) != kernels.end();
    }
    /// Whether a flag was given.
    bool flag(const std::string& option) const { return values.count(option) > 0; }
    /// What a choice is.
    const std::string& choice(const std::string& option) const { return values.at(option); }
    /// What a number is.
    uint64_t number(const std::string& option) const { return std::stoull(values.at(option)); }

    /// Replaces the size by another of the same kind: another N, S or R.
    void resize(size_t value) {
        size.value = value;
        (talk ? talk : rows ? rows : n) = value;
    }
};

using UsageError = std::invalid_argument;

inline std::string join(const std::vector<std::string>& names, const std::string& separator) {
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : separator) + name;
    return joined;
}

/// The words of "one,two".
inline std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words(1);
    for (const char c : text)
        if (c == ',')
            words.emplace_back();
        else
            words.back() += c;
    return words;
}

/// "a multiple of 32 from 32 up", "a whole number from 1 to 99".
inline std::string to_text(const Numbers& numbers) {
    const std::string kind = numbers.multiple == 1
                                 ? "a whole number"
                                 : "a multiple of " + std::to_string(numbers.multiple);
    return kind + " from " + std::to_string(numbers.first) +
           (numbers.last == INT64_MAX ? " up" : " to " + std::to_string(numbers.last));
}

/// One of `numbers`, without sign, blanks or exponent. Throws UsageError, which says what `what`
/// takes.
inline uint64_t parse_number(std::string_view text, const std::string& what,
                             const Numbers& numbers) {
    int64_t value = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    const bool too_large = error == std::errc::result_out_of_range;
    if (error != std::errc() || end != last || value < int64_t(numbers.first) ||
        uint64_t(value) > numbers.last || value % int64_t(numbers.multiple) != 0)
        throw UsageError(what + " takes " + to_text(numbers) + ", not '" + std::string(text) + "'" +
                         (too_large ? " (too large)" : ""));
    return uint64_t(value);
}

/// One of `names`. Throws UsageError, which lists them.
inline std::string parse_name(std::string_view text, const std::string& what,
                              const std::vector<std::string>& names) {
    if (std::find(names.begin(), names.end(), text) != names.end()) return std::string(text);
    throw UsageError(what + " takes one of " + join(names, ", ") + ", not '" + std::string(text) +
                     "'");
}

/// Reads `arguments` (without the program's own name). Throws UsageError. Whether there is a kernel
/// of --kernel's name is not known yet.
inline Options parse(const Program& program, std::span<const char* const> arguments) {
    const std::vector<Option> known = options_of(program);
    Options options;
    options.n = program.default_n;
    std::set<std::string_view> given;
    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string_view argument =
            arguments[i] == std::string_view("-h") ? "--help" : arguments[i];
        const bool is_option = argument.starts_with("--");
        const std::string key = is_option ? std::string(argument) : "N";
        if (!given.insert(is_option ? argument : "N").second)
            throw UsageError(key + " was given twice: '" + std::string(argument) +
                             "' is one too many");
        if (!is_option && program.default_talk)
            throw UsageError("takes no N: its size is --talk S, not '" + std::string(argument) +
                             "'");
        if (!is_option) {
            options.n =
                parse_number(argument, "N", {.first = program.step(), .multiple = program.step()});
            continue;
        }
        const auto option = std::ranges::find(known, argument, &Option::name);
        if (option == known.end()) throw UsageError("no option '" + key + "'; see --help");
        if (option->is_flag()) {
            options.values[key] = "";
            continue;
        }
        if (++i == arguments.size() || (option->any_text && !*arguments[i]))
            throw UsageError(key + " needs a value; see --help");
        options.values[key] =
            option->any_text  ? arguments[i]
            : option->numbers ? std::to_string(parse_number(arguments[i], key, *option->numbers))
                              : parse_name(arguments[i], key, option->choices);
    }
    if (given.contains("--talk") && given.contains("N"))
        throw UsageError("N and --talk exclude each other: give one of them");
    if (program.any_shape && given.contains("--rows") != given.contains("--cols"))
        throw UsageError("--rows and --cols belong together: give both");
    if (program.any_shape && given.contains("--rows") && given.contains("N"))
        throw UsageError("N and --rows exclude each other: N is for square matrices");
    const bool sized = given.contains("N") || given.contains("--talk") || given.contains("--rows");
    if (options.flag("--sweep") && (sized || given.contains("--kernel")))
        throw UsageError("--sweep has sizes of its own and runs all kernels: give no others");

    for (const Option& option : known) {
        if (!option.choices.empty()) options.values.emplace(option.name, option.choices.front());
        if (option.numbers && option.numbers->usual)
            options.values.emplace(option.name, std::to_string(*option.numbers->usual));
    }
    auto number = [&](const char* name) { return options.flag(name) ? options.number(name) : 0; };
    options.talk = number("--talk");
    if (program.any_shape) options.rows = number("--rows"), options.cols = number("--cols");
    if (program.types.size() > 1)
        while (program.types[options.type].name != options.choice("--dtype")) ++options.type;
    options.seed = number("--seed");
    options.device = int(number("--device"));
    options.rounds = int(number("--rounds"));
    if (options.flag("--kernel")) options.kernels = split(options.choice("--kernel"));
    options.hot = options.flag("--hot");
    options.once = options.flag("--once");
    options.verbose = options.flag("--verbose");
    options.csv = options.flag("--csv");
    options.describe = options.flag("--describe");
    options.help = options.flag("--help");
    options.sweep = options.flag("--sweep") || program.sweep == Sweep::kAlways;
    options.size = options.talk   ? Size{"S", options.talk, 16}
                   : options.rows ? Size{"R", options.rows, 1}
                                  : Size{"N", options.n, program.step()};
    return options;
}

// --- --help -------------------------------------------------------------------------------------

/// `text`, broken into lines of at most 79 columns, of which all but the first are indented.
inline std::string wrapped(const std::string& text, size_t indent) {
    std::string lines, line;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        if (!line.empty() && line.size() + 1 + word.size() > 79) {
            lines += line + "\n";
            line = std::string(indent, ' ') + word;
        } else {
            line += (begin == 0 ? "" : " ") + word;
        }
        begin = end + 1;
    }
    return lines + line + "\n";
}

/// `kernels`: what --kernel takes.
inline void print_help(const Program& program, const std::vector<std::string>& kernels) {
    static constexpr size_t kIndent = 17;
    auto line = [](const std::string& option, const std::string& help) {
        std::string text = "  " + option;
        text.resize(std::max(kIndent, text.size() + 1), ' ');
        std::printf("%s", wrapped(text + help, kIndent).c_str());
    };
    const char* const size = program.default_talk ? "--talk S"
                             : program.talk       ? "N | --talk S"
                             : program.any_shape  ? "N | --rows R --cols C"
                                                  : "N";
    std::printf("%s", wrapped(program.name + ": " + program.summary, 4).c_str());
    std::printf("\nusage: ./%s [%s] [options]\n\n", program.name.c_str(), size);
    const std::string sizes = to_text({.first = program.step(), .multiple = program.step()});
    if (!program.default_talk)
        line("N", (program.sweep == Sweep::kAlways ? "the largest size" : program.n_means) + ": " +
                      sizes + " (default " + std::to_string(program.default_n) + ")");
    for (const Option& option : options_of(program)) {
        std::string help = option.help;
        if (!option.choices.empty())
            help += ": " + join(option.choices, ", ") + " (default the first)";
        if (option.name == "--kernel") help += ": " + join(kernels, ", ");
        if (option.numbers && option.numbers->usual)
            help += " (default " + std::to_string(*option.numbers->usual) + ")";
        line(option.name + (option.is_flag() ? "" : " " + option.value), help);
    }
    std::printf(
        "\nexit codes: 0 every result verified, 1 a wrong result, 2 usage, 3 a CUDA or\n"
        "library error or too little memory, 77 nothing here can run it\n");
}

}  // namespace demo
