// What a program's run() works with: Session::run() compares kernels. And main_of(), its main().
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "contender.cuh"
#include "device.cuh"

namespace demo {

/// run() is called twice: first in a dry run (workload.hpp), then to do it.
class Session {
  public:
    Session(const Program& program, const Options& options, const Gpu& gpu, class Report* report)
        : program(program), options(options), gpu(gpu), report(report) {}
    Session(const Session&) = delete;

    const Program& program;
    const Options& options;
    const Gpu& gpu;        // in a dry run perhaps none
    Report* const report;  // what is printed; null in a dry run

    size_t n() const { return options.n; }
    const std::string& dtype() const { return program.types[options.type].name; }

    /// The least traffic: inputs read once, outputs written once; saturates.
    size_t least_bytes() const;

    /// Whether --kernel leaves this one.
    bool wants(const std::string& kernel) const { return options.wants(kernel); }

    /// Verifies every contender's output by `check`, or by its own, measures those that are right,
    /// and prints a line for each. Leaves out what --kernel, the shape or the GPU rules out.
    /// `records`: the suite's fastest kernels for the same, which other programs are about, the
    /// fastest first. One joins the contenders, in front of a copy: the first that can run here, or
    /// the one that --kernel names. Returns each kernel's median, in ms; 0 where it was not timed.
    std::map<std::string, double> run(const Workload& work, const Check& check,
                                      const std::vector<Contender>& contenders,
                                      const std::vector<Contender>& records = {});

    /// Prints a remark, for people only.
    void note(const std::string& text) const;

    /// Whether times are taken, and say something about a GPU.
    bool timed() const { return report && !options.once && !kSimulator; }

    /// The arrays that are there now: what the kernels may read, and what they must write.
    std::list<Array> arrays;

    /// A parameter of the formula, drawn from [low, high).
    float parameter(const std::string& name, float low, float high);

    /// The largest value of the processes that measure together. All call it at the same time, so
    /// that they measure equally often.
    std::function<double(double)> largest = [](double value) { return value; };

    std::vector<Parameter> parameters;  // of the formula: --describe names them
};

/// A program's main(). Returns the exit code, once all that was printed has arrived.
int main_of(const Program& program, int argc, char** argv);

}  // namespace demo
