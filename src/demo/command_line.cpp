// The command line: ./program [N] [options], and --help.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>
#include <string_view>

#include "internal.hpp"

namespace demo {

std::vector<Option> options_of(const Program& program) {
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
                   .help = "the GPU, what limits it here; every kernel's spread and bytes"});
    all.push_back({.name = "--csv", .help = "print rows for scripts instead of a table"});
    all.push_back({.name = "--describe", .help = "print what this program is and takes, as JSON"});
    all.push_back({.name = "--help", .help = "this text"});
    return all;
}

std::string join(const std::vector<std::string>& names, const std::string& separator) {
    std::string joined;
    for (const std::string& name : names) joined += (joined.empty() ? "" : separator) + name;
    return joined;
}

/// The words of "one,two".
static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words(1);
    for (const char c : text)
        if (c == ',')
            words.emplace_back();
        else
            words.back() += c;
    return words;
}

/// "a multiple of 32 from 32 up", "a whole number from 1 to 99".
static std::string to_text(const Numbers& numbers) {
    const std::string kind = numbers.multiple == 1
                                 ? "a whole number"
                                 : "a multiple of " + std::to_string(numbers.multiple);
    return kind + " from " + std::to_string(numbers.first) +
           (numbers.last == INT64_MAX ? " up" : " to " + std::to_string(numbers.last));
}

uint64_t parse_number(std::string_view text, const std::string& what, const Numbers& numbers) {
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
static std::string parse_name(std::string_view text, const std::string& what,
                              const std::vector<std::string>& names) {
    if (std::find(names.begin(), names.end(), text) != names.end()) return std::string(text);
    throw UsageError(what + " takes one of " + join(names, ", ") + ", not '" + std::string(text) +
                     "'");
}

Options parse(const Program& program, std::span<const char* const> arguments) {
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
    for (const Option& option : known) {
        const auto& [other, choice] = option.only_with;
        if (given.contains(option.name) && !other.empty() && options.choice(other) != choice)
            throw UsageError(option.name + " is for " + other + " " + choice + ": add that");
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
    options.sweep = options.flag("--sweep") || program.sweep >= Sweep::kAlways;
    options.size = options.talk   ? Size{"S", options.talk, 16}
                   : options.rows ? Size{"R", options.rows, 1}
                                  : Size{"N", options.n, program.step()};
    return options;
}

void check_kernels(const Options& options, const Plan& plan) {
    for (const std::string& name : options.kernels) {
        parse_name(name, "--kernel", plan.kernel_names());
        std::string only;  // the shape that the kernel is for, if this is another
        bool fits = false;
        for (const Plan::Comparison& comparison : plan.comparisons)
            for (const Plan::Kernel& kernel : comparison.kernels) {
                if (kernel.name != name) continue;
                fits = fits || kernel.only.empty() || kernel.only == comparison.work.shape;
                only = kernel.only;
            }
        if (!fits)
            throw UsageError(
                "--kernel " + name + " is for " +
                (only == "talk" ? "--talk alone: add it" : "N alone: leave --talk out"));
    }
}

std::vector<std::string> Plan::kernel_names() const {
    std::vector<std::string> names;
    for (const Comparison& comparison : comparisons)
        for (const Kernel& kernel : comparison.kernels)
            if (std::ranges::find(names, kernel.name) == names.end())
                names.push_back(kernel.name);  // a copy may stand in several comparisons
    return names;
}

bool Plan::needs_something() const {
    return std::ranges::any_of(comparisons, [](const Comparison& comparison) {
        return !std::ranges::all_of(comparison.kernels, &std::string::empty, &Kernel::why_not);
    });
}

// --- --help -------------------------------------------------------------------------------------

std::string wrapped(const std::string& text, size_t indent) {
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

void print_help(const Program& program, const std::vector<std::string>& kernels) {
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
        line("N", (program.sweep >= Sweep::kAlways ? "the largest size" : program.n_means) + ": " +
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
