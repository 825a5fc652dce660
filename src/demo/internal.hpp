// What the harness's sources share, and programs need not see.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "demo/errors.hpp"
#include "demo/numbers.hpp"
#include "demo/program.hpp"
#include "demo/workload.hpp"

namespace demo {

/// What a dry run found.
struct Plan {
    /// A kernel, and where it runs.
    struct Kernel {
        std::string name;
        Role role;
        std::string only;     // the one shape that it is for; empty: all
        std::string why_not;  // why it cannot run here; empty where it can
        std::string program;  // of a record: the program that is about it
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

    size_t taken = 0;         // bytes of the buffers there are now; saturates, like the others
    size_t device_bytes = 0;  // the most that they take at one time
    size_t host_bytes = 0;
    std::vector<Comparison> comparisons;

    /// All kernels' names, each once.
    std::vector<std::string> kernel_names() const;
    /// Whether some kernel cannot run on every GPU, so that only a GPU can tell.
    bool needs_something() const;
};

// --- command_line.cpp ---------------------------------------------------------------------------

/// All options of a program: its own, then those that all programs share.
std::vector<Option> options_of(const Program& program);

/// Reads `arguments` (without the program's own name). Throws UsageError. Whether there is a kernel
/// of --kernel's name is not known yet.
Options parse(const Program& program, std::span<const char* const> arguments);

/// Throws UsageError unless some contender bears each name of --kernel and takes the shape.
void check_kernels(const Options& options, const Plan& plan);

/// `kernels`: what --kernel takes.
void print_help(const Program& program, const std::vector<std::string>& kernels);

std::string join(const std::vector<std::string>& names, const std::string& separator);

/// `text`, broken into lines of at most 79 columns, of which all but the first are indented.
std::string wrapped(const std::string& text, size_t indent);

// --- describe.cpp -------------------------------------------------------------------------------

/// Prints what --describe asks for. `plans`: a dry run in each of the program's types, for the size
/// on the command line; `chosen`: the one of --dtype.
void print_description(const Program& program, const std::vector<Plan>& plans, size_t chosen);

const char* to_text(Role role);  // "ours"

// --- numbers.cpp --------------------------------------------------------------------------------

/// The p-quantile (0 <= p <= 1) of `samples`, interpolated linearly between neighbors; 0 of none.
double quantile(std::vector<double> samples, double p);

/// The largest multiple of `step` whose bytes(multiple) is at most `free_bytes`; 0 if none is.
/// `bytes` must not fall as its argument grows.
size_t largest_that_fits(size_t step, size_t free_bytes,
                         const std::function<size_t(size_t)>& bytes);

// --- peak.cpp -----------------------------------------------------------------------------------

/// Dense TFLOP/s of a data type whose sums are in fp32; of fp64 and of int8 in their own kind (fp32
/// itself: on the ordinary units). `capability`: 90 for compute capability 9.0. 0 where the type is
/// not supported, or unknown.
double peak_tflops(const std::string& gpu, int capability, int multiprocessors, double boost_ghz,
                   const std::string& dtype);

/// GB/s of a GPU's memory by its data sheet; 0 where that is not listed, or does not say.
double peak_gb_per_s(const std::string& gpu);

/// "memory, 0.592 ms at 90%": what takes any kernel longest, moving the least bytes or computing
/// at the type's peak, and how long at 90% of that rate. Bytes and operations are those of one
/// fused kernel; a chain moves more. Empty where a rate is unknown (0).
std::string limit_of(const Workload& work, double tflops, double gb_per_s);

// --- device.cu ----------------------------------------------------------------------------------

/// GPU memory that may be asked for: what is free, less a reserve for what libraries and the
/// driver take by themselves. In bytes.
size_t free_device_memory();

/// Host memory that may be asked for, in bytes: the machine's, or what the limit of its container
/// (cgroup v2 or v1) leaves. SIZE_MAX where the system does not say.
size_t free_host_memory();

// --- errors.cpp ---------------------------------------------------------------------------------

/// Erases the line of progress, if there is one: called before anything else is printed.
void erase_progress();

/// Whether a file (STDOUT_FILENO) is a terminal that knows escape codes.
bool is_terminal(int file);

}  // namespace demo
