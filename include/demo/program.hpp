// What a program declares of itself, and what the user asked for: ./program [N] [options]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace demo {

#ifdef SIMULATOR
inline constexpr bool kSimulator = true;  // built for the CPU: small sizes, few samples
#else
inline constexpr bool kSimulator = false;
#endif

class Session;

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
    std::pair<std::string, std::string> only_with = {};  // {"--op", "add_mul"}: refused otherwise

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

/// Whether a program runs one size after the other, a line each.
enum class Sweep {
    kNever,
    kOnRequest,  // --sweep: over its shapes
    kAlways,     // over sizes up to N
    kByItself,   // likewise, but run() goes over them, and prints the lines (Session::measure)
};

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

    Sweep sweep = Sweep::kNever;

    size_t step() const { return any_n || any_shape ? 1 : 32; }  // N is a multiple of it
};

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
};

/// One of `numbers`, without sign, blanks or exponent. Throws UsageError for `what` otherwise.
uint64_t parse_number(std::string_view text, const std::string& what, const Numbers& numbers);

}  // namespace demo
