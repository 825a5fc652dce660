// The dry run. Before a program touches the GPU its run() is called once without doing anything:
// buffers only add up their bytes, CUDA calls are left out, kernels are listed instead of launched.
// That tells what there is (--help, --describe), whether it fits, and the largest size that does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "error_bounds.hpp"
#include "numbers.hpp"

namespace demo {

/// What a kernel is to its program. Tables, plots and comparisons go by this, never by names.
enum class Role {
    kOurs,       // what the program is about
    kChain,      // the many launches that a framework makes of it
    kLibrary,    // the library's best
    kYardstick,  // measured for comparison alone: a copy, a gemm beside our kernels
    kRecord,     // the suite's fastest kernel, another program's
    kMistake,    // measured in a wrong way, to show what that claims
    kLimit,      // what our kernels' instructions allow at most: nothing else, over and over
};

inline const char* to_text(Role role) {
    constexpr const char* kNames[] = {"ours",   "chain",   "library", "yardstick",
                                      "record", "mistake", "limit"};
    return kNames[int(role)];
}

/// What is done to random data before kernels see it (inputs.cuh). Ids are uniform, or kZipf.
enum class Then { kNothing, kRoundToTf32, kOffsetRows, kZipf, kCount, kCountFrom32, kPassOn };

inline const char* to_text(Then then) {
    constexpr const char* kNames[] = {"",         "rounded to TF32",  "offset by rows", "zipf",
                                      "counting", "counting from 32", "passing on"};
    return kNames[int(then)];
}

/// How an input is filled: uniform in [-scale, scale] from a seed, then changed.
struct Fill {
    float scale = 1;
    Then then = Then::kNothing;
    uint64_t seed = 0;  // set by Input
    HardRows hard = {};
};

/// A range for a contender's speed-up over the first of its comparison; 0 to 0: nobody says.
struct SpeedUp {
    double least = 0, most = 0;
};

struct Verdict;

/// An array that a program computes from, or into.
struct Array {
    std::string name;           // "W1"
    std::string dtype;          // "fp16"
    std::vector<size_t> shape;  // row-major
    size_t bytes;
    const void* data;  // on the device
    bool is_output;
    Fill fill = {};  // of an input, as --seed chose it
    // Of an input, too: fills it, and notes where it is not what it was filled with.
    std::function<void(const Fill&)> refill = {};
    std::function<void(const Fill&, Verdict*)> compare = {};
};

/// A number in the formula, which the seed draws, so that no kernel can take it for granted.
struct Parameter {
    std::string name;
    float value;
};

/// What all the kernels of one comparison compute.
struct Workload {
    std::string shape;            // "square", "talk", or rows x columns
    size_t size;                  // N, S of the talk's shape, or rows
    std::string dtype;            // "fp32"
    double flops;                 // floating-point operations, counted from the formula
    size_t least_bytes = 0;       // inputs read once, output written once
    bool memory_bound = false;    // GB/s of least_bytes says how good a kernel is
    std::string text = "";        // the size for people: "N = 4096"
    std::string arithmetic = "";  // what the type alone does not tell: "fp32 sums"
    // What else a line of a sweep says of its size: a column's name, and what stands in it.
    std::vector<std::pair<std::string, std::string>> facts = {};
};

/// What a dry run found.
struct Plan {
    /// A kernel, and where it runs.
    struct Kernel {
        std::string name;
        Role role;
        std::string only;     // the one shape that it is for; empty: all
        std::string why_not;  // why it cannot run here; empty where it can
        std::string program;  // of a record: the program that is about it
        size_t lines;         // of its source; 0 where nobody counts them
        bool repeatable;      // whether it rounds in the same way each time
        SpeedUp expected;     // on an NVIDIA H100 or H200
    };
    /// One call of Session::run().
    struct Comparison {
        Workload work;
        std::vector<Kernel> kernels;
        std::vector<Array> arrays;
        std::vector<Parameter> parameters;
    };

    size_t device_bytes = 0;  // the most that buffers take at one time; saturates
    size_t host_bytes = 0;
    std::vector<Comparison> comparisons;

    /// All kernels' names.
    std::vector<std::string> kernel_names() const {
        std::vector<std::string> names;
        for (const Comparison& comparison : comparisons)
            for (const Kernel& kernel : comparison.kernels)
                if (std::ranges::find(names, kernel.name) == names.end())
                    names.push_back(kernel.name);  // a copy may stand in several comparisons
        return names;
    }

    void take(size_t bytes) {
        taken_ = saturating_sum(taken_, bytes);
        device_bytes = std::max(device_bytes, taken_);
    }
    void give_back(size_t bytes) { taken_ = taken_ == SIZE_MAX ? SIZE_MAX : taken_ - bytes; }
    void take_on_host(size_t bytes) { host_bytes = saturating_sum(host_bytes, bytes); }

  private:
    size_t taken_ = 0;
};

/// The plan that is being made; null in a real run.
inline Plan* dry_run = nullptr;

}  // namespace demo
