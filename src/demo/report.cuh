// Measuring contenders in turns, and printing what came of them.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "demo/experiment.cuh"
#include "internal.hpp"

namespace demo {

// --- measure.cu ---------------------------------------------------------------------------------

/// Verifies contenders, and times those that are right, so many rounds of turns as --rounds says.
/// Calls `on_result`(i) once contender i has had its last turn. `arrays`: inputs and outputs.
/// `largest`: see Session::largest.
std::vector<Result> take_turns(const Options& options, const Gpu& gpu,
                               const std::list<Array>& arrays,
                               const std::vector<Contender>& contenders,
                               const std::function<double(double)>& largest,
                               const std::function<void(size_t, const Result&)>& on_result);

// --- report.cu ----------------------------------------------------------------------------------

/// Prints results as they come, and remembers whether all of them were verified: a table for people
/// at the back of the room, or rows for scripts.
class Report {
  public:
    /// Prints the header: the program, the GPU and what `plan` says will be computed.
    Report(const Options& options, const Gpu& gpu, const Plan& plan);

    /// Notes a contender's result. Prints it only as a row for scripts, which ends with `columns`,
    /// and on stderr what is wrong with it.
    void count(const Workload& work, const Contender& contender, const Result& result,
               const std::string& columns = ",,,");

    /// Notes it and prints its line; in a sweep end() does. `copy`: null where there is none.
    void add(const Workload& work, const Contender& contender, const Result& result,
             const Result* copy);

    /// Ends a comparison: in a sweep prints the line of all that add() noted. `alone`: it has one
    /// contender, and is compared with what stands above it.
    void end(const Workload& work, bool alone);

    /// See print_row() in demo/experiment.cuh.
    void row(const std::vector<Cell>& cells);

    /// Prints a line of the table, which ends with `verdict` if the result is right.
    void print_line(const Workload& work, const Contender& contender, const Result& result,
                    const Result* copy, const std::string& verdict);

    /// Prints that a contender cannot run here, and notes the last such one.
    void skip(const Contender& contender);
    const std::string& skipped() const { return skipped_; }  // "chain: needs ..."

    /// Prints a remark, for people only.
    void note(const std::string& text) const;

    /// Prints what stands below the table.
    void finish() const;

    /// What main() returns: kSkipped where nothing ran.
    ExitCode exit_code() const { return exit_code_; }

  private:
    /// What is printed of a contender's result outside its own line.
    struct Time {
        std::string kernel;
        Role role;
        double ms;  // 0 where it was not timed
        bool computes;
    };
    static const Time* best_of(const std::vector<Time>& all);

    enum Style { kGood, kBad, kAside, kBold };
    std::string styled(Style style, const std::string& text) const;
    std::string subject(const Plan& plan) const;
    bool compares() const;
    void print_head(const std::string& head);
    void compare_limits() const;
    void compare_best() const;

    const Options& options_;
    const Gpu& gpu_;
    size_t names_ = 6;                     // columns of the kernels' names
    size_t kernels_ = 0;                   // how many there are
    double first_ms_ = 0;                  // of the comparison's first line
    bool noisy_ = false;                   // whether a line was marked ~
    bool right_ = true;                    // whether all results of the next row() are
    std::vector<std::string> above_peak_;  // kernels with more TFLOP/s than the GPU has
    std::string skipped_;                  // a kernel, and why it cannot run here
    std::string record_;                   // where a record's kernel comes from
    std::vector<Time> times_;              // of all timed contenders
    std::vector<Time> line_;               // of a sweep: what its next line shows
    std::string head_;                     // what stands above the last line
    ExitCode exit_code_ = kSkipped;        // until there is a result
};

}  // namespace demo
