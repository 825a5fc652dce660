// What a program computes: its arrays, its parameters, its operations. All of it is known before
// the GPU is touched, from a dry run: run() is called once while buffers only add up their bytes,
// CUDA calls are left out, and kernels are listed instead of launched. That tells what there is
// (--help, --describe), whether it fits, and the largest size that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "error_bounds.hpp"

namespace demo {

/// The plan that a dry run makes; null in a real run.
extern struct Plan* dry_run;

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

/// What is done to random data before kernels see it (inputs.cuh). Ids are uniform, or kZipf.
enum class Then { kNothing, kRoundToTf32, kOffsetRows, kZipf, kCount, kCountFrom32, kPassOn };

/// How an input is filled: uniform in offset +- scale from a seed, then changed.
struct Fill {
    float scale = 1, offset = 0;
    Then then = Then::kNothing;
    uint64_t seed = 0;  // set by Input
    HardRows hard = {};
};

/// The range of a contender's speed-up over the first of its comparison; {0, 0}: no expectation.
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

/// A number in the formula, which the seed draws, so that no kernel knows it, or an option gives.
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
};

}  // namespace demo
