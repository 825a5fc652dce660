// What is compared: a contender, and what measuring it gave.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify.cuh"

namespace demo {

/// One way to compute a workload: a kernel, several, or calls of a library.
struct Contender {
    std::string kernel;                 // its name, which --kernel takes
    Role role = Role::kOurs;            // what it is to the program
    std::function<void()> launch = {};  // enqueues it on the default stream
    // Instead of `launch`, where preparing takes time or needs a GPU: called once, before it first
    // runs, to set `launch` and all else that a choice decides.
    std::function<void(Contender&)> setup = {};
    Check check = Check();  // of its output, where that is not the comparison's
    size_t launches = 1;
    bool repeatable = true;      // whether it rounds in the same way each time
    size_t temporary_bytes = 0;  // device memory between its kernels
    size_t moved_bytes = 0;      // what it reads and writes; 0 where nobody counted
    bool computes = true;        // a copy does not: it has GB/s and no TFLOP/s
    std::string note = "";       // for --verbose
    std::string program = "";    // of a record: the program that is about it
    std::string only = "";       // the one shape that it is for: "talk"
    std::string why_not = "";    // why it cannot run here; empty where it can
    int gpus = 1;                // that it runs on
    // Enqueued before each launch, and when the inputs have changed. Neither is timed. Copies right
    // before a launch give a GPU at its power limit a rest: a product was 6% faster then. So work
    // that is needed once, such as packing weights, belongs in `renew`.
    std::function<void()> prepare = [] {}, renew = [] {};
    // Takes a sample in its own way, instead of: flush the cache, event, launch, event. It launches
    // the kernel, whose output is verified as usual, and returns milliseconds.
    std::function<double()> sample = {};
    // Of an experiment: the range of its speed-up on an NVIDIA H100 or H200, for compare_gpus.sh.
    SpeedUp expected = {};
};

/// A kernel as other programs run it, below their own: `program` is about it.
inline Contender record(const std::string& program, Contender contender) {
    contender.role = Role::kRecord;
    contender.program = program;
    return contender;
}

/// What measuring a contender gave.
struct Result {
    Verdict verdict;
    std::vector<double> ms;  // time of each sample; empty where nothing was timed

    double median_ms() const { return median(ms); }
    double spread() const { return spread_percent(ms); }
    bool noisy() const { return spread() > 2; }
    double per_ms(double amount) const { return median_ms() > 0 ? amount / median_ms() : 0; }
    double tflops(const Workload& work) const { return per_ms(work.flops) / 1e9; }
    double gb_per_s(const Workload& work) const { return per_ms(double(work.least_bytes)) / 1e6; }
};

}  // namespace demo
