// One run of a program: the comparison of its kernels, and main().
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "describe.hpp"
#include "device.cuh"
#include "measure.cuh"
#include "report.cuh"

namespace demo {

/// What a program's run() works with. run() is called more than once: first in dry runs (plan.hpp).
class Session {
  public:
    Session(const Program& program, const Options& options, const Gpu& gpu, Report* report)
        : program(program), options(options), gpu(gpu), report_(report) {}
    Session(const Session&) = delete;

    const Program& program;
    const Options& options;
    const Gpu& gpu;  // in a dry run perhaps none

    size_t n() const { return options.n; }
    const std::string& dtype() const { return program.types[options.type].name; }

    /// The traffic that nobody can do without: inputs read once, outputs written once; saturates.
    size_t least_bytes() const {
        size_t bytes = 0;
        for (const Array& array : arrays) bytes = saturating_sum(bytes, array.bytes);
        return bytes;
    }

    /// Whether --kernel leaves this one.
    bool wants(const std::string& kernel) const { return options.wants(kernel); }

    /// Verifies every contender's output by `check`, or by its own, then measures those that are
    /// right and prints a line for each. Leaves out what --kernel, the shape or the GPU rules out.
    /// `records`: the suite's fastest kernels for the same, which other programs are about, the
    /// fastest first. One joins the contenders, in front of a copy: the first that can run here, or
    /// the one that --kernel names. Returns each kernel's median, in ms; 0 where it was not timed.
    std::map<std::string, double> run(const Workload& work, const Check& check,
                                      std::vector<Contender> contenders,
                                      const std::vector<Contender>& records = {});

    /// Whether times are taken, and say something about a GPU.
    bool timed() const { return report_ && !options.once && !kSimulator; }

    /// Prints a remark, for people only.
    void note(const std::string& text) const {
        if (report_ && !options.sweep) report_->note(text);
    }

    /// The arrays that are there now: what the kernels may read, and what they must write.
    std::list<Array> arrays;

    /// A parameter of the formula, drawn from [low, high).
    float parameter(const std::string& name, float low, float high) {
        const uint64_t bits = random_bits(~options.seed, parameters_.size()) >> 40;
        parameters_.push_back({name, fmaf(high - low, float(bits) * 0x1p-24f, low)});
        return parameters_.back().value;
    }

    /// Of several processes that measure together: the largest value that one of them has. All call
    /// it at the same time, and so they measure equally often.
    std::function<double(double)> largest = [](double value) { return value; };

  private:
    Report* report_;  // null in a dry run
    std::vector<Parameter> parameters_;
};

inline std::map<std::string, double> Session::run(const Workload& work, const Check& check,
                                                  std::vector<Contender> contenders,
                                                  const std::vector<Contender>& records) {
    const auto is_copy = [](const Contender& c) { return !c.computes; };
    const auto can_run = [&](const Contender& c) {
        return wants(c.kernel) && c.why_not.empty() && (c.only.empty() || c.only == work.shape);
    };
    const auto record = std::ranges::find_if(records, can_run);
    const auto first = dry_run ? records.begin() : record;
    const auto last = dry_run || record == records.end() ? records.end() : record + 1;
    contenders.insert(std::ranges::find_if(contenders, is_copy), first, last);
    if (dry_run) {
        Plan::Comparison comparison{work, {}, {arrays.begin(), arrays.end()}, parameters_};
        for (const Contender& c : contenders)
            comparison.kernels.push_back({c.kernel, c.role, c.only, c.why_not, c.program, c.lines,
                                          c.repeatable, c.expected});
        dry_run->comparisons.push_back(comparison);
        const bool flushes = !options.hot && !options.once && !kSimulator;
        const Buffer<char> flushed(flushes ? gpu.flush_bytes() : 0);
        return {};
    }
    std::erase_if(contenders, [&](const Contender& c) {
        return !wants(c.kernel) || (!c.only.empty() && c.only != work.shape);
    });
    const std::vector<Contender> all = contenders;
    std::erase_if(contenders, [](const Contender& c) { return !c.why_not.empty(); });
    for (Contender& contender : contenders) {
        if (!contender.check.verify) contender.check = check;
        report_->terminal.progress("preparing " + contender.kernel);
        if (contender.setup) contender.setup(contender);
    }

    Measurement measurement(
        options, gpu, arrays, [&](const std::string& what) { report_->terminal.progress(what); },
        largest);
    // Lines come in the contenders' order, as soon as they can: those of percentages of a copy, or
    // of the record where lines are counted, when that has been measured.
    const bool counts_lines = std::ranges::any_of(contenders, [](auto& c) { return c.lines > 0; });
    const auto is_beside = [&](const Contender& c) {
        return counts_lines ? c.lines == 0 : is_copy(c);
    };
    const size_t beside = size_t(std::ranges::find_if(contenders, is_beside) - contenders.begin());
    std::vector<const Result*> done(contenders.size());
    size_t printed = 0;
    std::map<std::string, double> medians;
    measurement.measure(contenders, [&](size_t i, const Result& result) {
        done[i] = &result;
        medians[contenders[i].kernel] = result.median_ms();
        const bool has = beside < contenders.size();
        while (printed < done.size() && done[printed] && (!has || done[beside])) {
            const Result* const other = has && !done[beside]->ms.empty() ? done[beside] : nullptr;
            report_->add(work, contenders[printed], *done[printed], other);
            ++printed;
        }
    });
    report_->end_line(work);
    for (const Contender& contender : all)
        if (!contender.why_not.empty()) report_->skip(contender);
    return medians;
}

// --- main() -------------------------------------------------------------------------------------

/// What run() would do with these options, without doing it.
inline Plan plan_of(const Program& program, const Options& options, const Gpu& gpu) {
    Plan plan;
    dry_run = &plan;
    Session session(program, options, gpu, nullptr);
    program.types[options.type].run(session);
    dry_run = nullptr;
    return plan;
}

/// Throws UsageError unless some contender bears each name of --kernel and takes the shape.
inline void check_kernels(const Options& options, const Plan& plan) {
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

/// Exits with 77 if nothing but yardsticks could run here.
inline void require_kernels(const Options& options, const Plan& plan) {
    std::string why_not;
    for (const Plan::Comparison& comparison : plan.comparisons)
        for (const Plan::Kernel& kernel : comparison.kernels) {
            const bool counts = options.kernels.empty() ? kernel.role != Role::kYardstick
                                                        : options.wants(kernel.name);
            if (!counts) continue;
            if (kernel.why_not.empty()) return;
            why_not = kernel.why_not;
        }
    fail(kSkipped, why_not);
}

/// Exits with 3 unless there is memory for it, and says which size would fit.
inline void require_memory(const Program& program, const Options& options, const Gpu& gpu) {
    const Size size = options.size;
    auto require = [&](const std::string& where, size_t Plan::*bytes, size_t free_bytes) {
        auto needed = [&](size_t value) {
            Options other = options;
            other.resize(value);
            return plan_of(program, other, gpu).*bytes;
        };
        if (needed(size.value) <= free_bytes) return;
        const size_t largest = largest_that_fits(size.step, free_bytes, needed);
        fail(kFailed, size.name + " = " + std::to_string(size.value) + " needs " +
                          human_bytes(double(needed(size.value))) + " of " + where +
                          " memory, but " + human_bytes(double(free_bytes)) + " are free; " +
                          (largest > 0 ? "the largest " + size.name + " that fits is " +
                                             std::to_string(largest)
                                       : "no " + size.name + " fits"));
    };
    require("GPU", &Plan::device_bytes, free_device_memory());
    require("host", &Plan::host_bytes, free_host_memory());
}

/// The sizes of --sweep, each as the options that ask for it.
inline std::vector<Options> sweep_of(const Program& program, const Options& options,
                                     const Gpu& gpu) {
    std::vector<Options> all;
    auto add = [&](Size size, size_t n, size_t talk, Extent shape) {
        Options other = options;
        other.size = size, other.n = n, other.talk = talk;
        other.rows = shape.rows, other.cols = shape.cols;
        all.push_back(other);
    };
    // 32, 64, 128, ... up to `last`, and `last` itself.
    auto doubling = [](size_t first, size_t last) {
        std::vector<size_t> sizes;
        for (size_t size = first; size < last; size *= 2) sizes.push_back(size);
        sizes.push_back(last);
        return sizes;
    };
    if (program.sweep == Sweep::kOnRequest) {
        for (const Extent& shape : program.shapes)
            if (!kSimulator || shape.rows * shape.cols <= 1 << 16)
                add({"R", shape.rows, 1}, 0, 0, shape);
        return all;
    }
    if (program.sweep_sizes) {
        for (const size_t N : program.sweep_sizes(options, gpu))
            add({"N", N, program.step()}, N, 0, {});
        return all;
    }
    const size_t talk = options.talk ? options.talk : std::max<size_t>(32, options.n / 8 / 16 * 16);
    for (const size_t S : doubling(std::min<size_t>(32, talk), talk)) add({"S", S, 16}, 0, S, {});
    if (!options.talk)
        for (const size_t N : doubling(std::min<size_t>(1024, options.n), options.n))
            add({"N", N, 32}, N, 0, {});
    return all;
}

/// Runs the program, or each size of its sweep for which there is memory.
inline ExitCode run_all(const Program& program, const Options& options) {
    const Gpu gpu(options);
    const Plan plan = plan_of(program, options, gpu);
    require_kernels(options, plan);
    const bool shapes = options.sweep && program.sweep == Sweep::kOnRequest;
    if (!shapes) require_memory(program, options, gpu);
    Report report(options, gpu, plan);
    bool fits = false;
    for (const Options& each :
         options.sweep ? sweep_of(program, options, gpu) : std::vector<Options>{options}) {
        const size_t needed = plan_of(program, each, gpu).device_bytes;
        if (shapes && needed > free_device_memory()) {
            complain(std::to_string(each.rows) + " x " + std::to_string(each.cols) +
                     " is left out: it needs " + human_bytes(double(needed)) + " of GPU memory");
            continue;
        }
        fits = true;
        report.terminal.progress("making the data and the reference");
        Session session(program, each, gpu, &report);
        program.types[each.type].run(session);
    }
    if (!fits) return kFailed;
    report.finish();
    return report.exit_code();
}

/// Does what the command line asks for. Throws UsageError.
inline ExitCode answer(const Program& program, std::span<const char* const> arguments) {
    const Options options = parse(program, arguments);
    const Gpu none;
    const Plan plan = plan_of(program, options, none);
    if (options.help) {
        print_help(program, plan.kernel_names());
        return kVerified;
    }
    check_kernels(options, plan);
    if (!options.describe) return run_all(program, options);
    std::vector<Plan> plans;
    for (size_t type = 0; type < program.types.size(); ++type) {
        Options other = options;
        other.type = type;
        plans.push_back(plan_of(program, other, none));
    }
    print_description(program, plans, options.type);
    return kVerified;
}

/// A program's main(). Returns the exit code, once all that was printed has arrived.
inline int main_of(const Program& program, int argc, char** argv) {
    program_name = program.name;
    try {
        const ExitCode code = answer(program, {argv + 1, argv + std::max(argc, 1)});
        if (std::fflush(stdout) != 0 || std::ferror(stdout))
            fail(kFailed, "stdout takes no more: results are lost");
        return code;
    } catch (const UsageError& error) {
        fail(kUsage, error.what());
    } catch (const std::bad_alloc&) {
        fail(kFailed, "not enough host memory; try a smaller size");
    } catch (const std::exception& error) {  // no thread could be started, say
        fail(kFailed, error.what());
    }
}

}  // namespace demo
