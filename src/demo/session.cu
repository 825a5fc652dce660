// One run of a program: its plan, whether it fits, the comparison of its kernels, and main().
#include <algorithm>
#include <cmath>
#include <new>
#include <span>

#include "demo/session.cuh"
#include "report.cuh"

namespace demo {

size_t Session::least_bytes() const {
    size_t bytes = 0;
    for (const Array& array : arrays) bytes = saturating_sum(bytes, array.bytes);
    return bytes;
}

float Session::parameter(const std::string& name, float low, float high) {
    const uint64_t bits = random_bits(~options.seed, parameters.size()) >> 40;
    parameters.push_back({name, fmaf(high - low, float(bits) * 0x1p-24f, low)});
    return parameters.back().value;
}

void Session::note(const std::string& text) const {
    if (report && (!options.sweep || program.sweep == Sweep::kByItself)) report->note(text);
}

// --- A comparison -------------------------------------------------------------------------------

/// The contenders and records that can run here, set up. A dry run lists all of them.
static std::vector<Contender> ready(Session& session, const Workload& work, const Check& check,
                                    std::vector<Contender> contenders,
                                    const std::vector<Contender>& records) {
    const auto fits = [&](const Contender& c) {
        return session.wants(c.kernel) && (c.only.empty() || c.only == work.shape);
    };
    const auto record = std::ranges::find_if(
        records, [&](const Contender& c) { return fits(c) && c.why_not.empty(); });
    const auto first = dry_run ? records.begin() : record;
    const auto last = dry_run || record == records.end() ? records.end() : record + 1;
    contenders.insert(std::ranges::find(contenders, false, &Contender::computes), first, last);
    if (dry_run) {
        Plan::Comparison comparison{
            work, {}, {session.arrays.begin(), session.arrays.end()}, session.parameters};
        for (const Contender& c : contenders)
            comparison.kernels.push_back(
                {c.kernel, c.role, c.only, c.why_not, c.program, c.repeatable, c.expected});
        dry_run->comparisons.push_back(comparison);
        const Options& options = session.options;
        const bool flushes = !options.hot && !options.once && !kSimulator;
        const Buffer<char> flushed(flushes ? session.gpu.flush_bytes() : 0);
        return {};
    }
    std::erase_if(contenders, [&](const Contender& c) { return !fits(c); });
    for (Contender& contender : contenders) {
        if (!contender.why_not.empty()) continue;
        if (!contender.check.verify) contender.check = check;
        show_progress("preparing " + contender.kernel);
        if (contender.setup) contender.setup(contender);
    }
    return contenders;
}

std::map<std::string, double> Session::run(const Workload& work, const Check& check,
                                           const std::vector<Contender>& contenders,
                                           const std::vector<Contender>& records) {
    const std::vector<Contender> wanted = ready(*this, work, check, contenders, records);
    if (dry_run) return {};
    const std::string limit = limit_of(work, gpu.peak(work.dtype), gpu.gb_per_s);
    if (options.verbose && !limit.empty()) note("limit: " + limit);
    std::vector<Contender> all = wanted;
    std::erase_if(all, [](const Contender& c) { return !c.why_not.empty(); });

    // A row that shows "% of copy" is held back until the copy has been measured.
    const size_t copy = size_t(std::ranges::find(all, false, &Contender::computes) - all.begin());
    std::vector<const Result*> done(all.size());
    size_t printed = 0;
    std::map<std::string, double> medians;
    take_turns(options, gpu, arrays, all, largest, [&](size_t i, const Result& result) {
        done[i] = &result;
        medians[all[i].kernel] = result.median_ms();
        const bool has_copy = copy < all.size();
        while (printed < done.size() && done[printed] && (!has_copy || done[copy])) {
            const Result* const beside = has_copy && !done[copy]->ms.empty() ? done[copy] : nullptr;
            report->add(work, all[printed], *done[printed], beside);
            ++printed;
        }
    });
    report->end(work, all.size() == 1);
    for (const Contender& contender : wanted)
        if (!contender.why_not.empty()) report->skip(contender);
    return medians;
}

std::vector<Measured> measure(Session& session, const Workload& work, const Check& check,
                              const std::vector<Contender>& contenders,
                              const std::vector<Contender>& records,
                              const std::function<std::string(const Contender&, double)>& columns) {
    std::vector<Contender> all = ready(session, work, check, contenders, records);
    std::erase_if(all, [](const Contender& c) { return !c.why_not.empty(); });
    std::vector<Measured> measured;
    if (dry_run) return measured;
    const std::vector<Result> results =
        take_turns(session.options, session.gpu, session.arrays, all, session.largest,
                   [](size_t, const Result&) {});
    for (size_t i = 0; i < all.size(); ++i) {
        const double ms = results[i].median_ms();
        session.report->count(work, all[i], results[i], columns ? columns(all[i], ms) : ",,,");
        measured.push_back({all[i], results[i]});
    }
    return measured;
}

void print_row(const Session& session, const std::vector<Cell>& cells) {
    if (session.report) session.report->row(cells);
}

void print_line(const Session& session, const Workload& work, const Measured& measured,
                const std::string& verdict) {
    session.report->print_line(work, measured.contender, measured.result, nullptr, verdict);
}

// --- A run --------------------------------------------------------------------------------------

/// What run() would do with these options, without doing it.
static Plan plan_of(const Program& program, const Options& options, const Gpu& gpu) {
    Plan plan;
    dry_run = &plan;
    Session session(program, options, gpu, nullptr);
    program.types[options.type].run(session);
    dry_run = nullptr;
    return plan;
}

/// Exits with 77 if nothing but yardsticks could run here.
static void require_kernels(const Options& options, const Plan& plan) {
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

/// Exits with 3 unless there is memory for the plan, and says which size would fit.
static void require_memory(const Program& program, const Options& options, const Gpu& gpu,
                           const Plan& plan) {
    const Size size = options.size;
    auto require = [&](const std::string& where, size_t Plan::*bytes, size_t free_bytes) {
        if (plan.*bytes <= free_bytes) return;
        const size_t largest = largest_that_fits(size.step, free_bytes, [&](size_t value) {
            Options other = options;
            other.size.value = value;
            (other.talk ? other.talk : other.rows ? other.rows : other.n) = value;
            return plan_of(program, other, gpu).*bytes;
        });
        fail(kFailed, size.name + " = " + std::to_string(size.value) + " needs " +
                          human_bytes(double(plan.*bytes)) + " of " + where + " memory, but " +
                          human_bytes(double(free_bytes)) + " are free; " +
                          (largest > 0 ? "the largest " + size.name + " that fits is " +
                                             std::to_string(largest)
                                       : "no " + size.name + " fits"));
    };
    require("GPU", &Plan::device_bytes, free_device_memory());
    require("host", &Plan::host_bytes, free_host_memory());
}

/// The sizes of a sweep, each as the options that ask for it.
static std::vector<Options> sweep_of(const Program& program, const Options& options) {
    std::vector<Options> all;
    auto add = [&](Size size, size_t n, size_t talk, Extent shape) {
        Options other = options;
        other.size = size, other.n = n, other.talk = talk;
        other.rows = shape.rows, other.cols = shape.cols;
        all.push_back(other);
    };
    // `first`, twice that, ... up to `last`, and `last` itself.
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
    const size_t talk = options.talk ? options.talk : std::max<size_t>(32, options.n / 8 / 16 * 16);
    for (const size_t S : doubling(std::min<size_t>(32, talk), talk)) add({"S", S, 16}, 0, S, {});
    if (!options.talk)
        for (const size_t N : doubling(std::min<size_t>(1024, options.n), options.n))
            add({"N", N, 32}, N, 0, {});
    return all;
}

/// Runs the program, or each size of its sweep for which there is memory. `plan`: without a GPU.
static ExitCode run_all(const Program& program, const Options& options, Plan plan) {
    const Gpu gpu(options);
    if (plan.needs_something()) plan = plan_of(program, options, gpu);
    require_kernels(options, plan);
    const bool shapes = options.sweep && program.sweep == Sweep::kOnRequest;
    if (!shapes) require_memory(program, options, gpu, plan);
    Report report(options, gpu, plan);
    const bool one = !options.sweep || program.sweep == Sweep::kByItself;
    bool fits = false;
    for (const Options& each : one ? std::vector<Options>{options} : sweep_of(program, options)) {
        const size_t needed = shapes ? plan_of(program, each, gpu).device_bytes : 0;
        if (shapes && needed > free_device_memory()) {
            complain(std::to_string(each.rows) + " x " + std::to_string(each.cols) +
                     " is left out: it needs " + human_bytes(double(needed)) + " of GPU memory");
            continue;
        }
        fits = true;
        show_progress("making the data and the reference");
        Session session(program, each, gpu, &report);
        program.types[each.type].run(session);
    }
    if (!fits) return kFailed;
    // By the plan some kernel can run here. If none did, there was no memory: why_no_room().
    if (report.exit_code() == kSkipped && !report.skipped().empty())
        fail(kFailed, report.skipped());
    report.finish();
    return report.exit_code();
}

/// Does what the command line asks for. Throws UsageError.
static ExitCode answer(const Program& program, std::span<const char* const> arguments) {
    const Options options = parse(program, arguments);
    const Gpu none;
    const Plan plan = plan_of(program, options, none);
    if (options.help) {
        print_help(program, plan.kernel_names());
        return kVerified;
    }
    check_kernels(options, plan);
    if (!options.describe) return run_all(program, options, plan);
    std::vector<Plan> plans;
    for (size_t type = 0; type < program.types.size(); ++type) {
        Options other = options;
        other.type = type;
        plans.push_back(plan_of(program, other, none));
    }
    print_description(program, plans, options.type);
    return kVerified;
}

int main_of(const Program& program, int argc, char** argv) {
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
