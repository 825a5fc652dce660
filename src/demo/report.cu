// Printing results: a table for people at the back of the room, or rows for scripts.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "report.cuh"

namespace demo {

static constexpr size_t kColumns = 79;

std::string left(const std::string& text, size_t width) {
    return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

std::string right(const std::string& text, size_t width) {
    return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string figure(double value) { return right(value > 0 ? significant(value, 4) : "-", 8); }

static void print_wrapped(const std::string& text) { std::printf("%s", wrapped(text, 4).c_str()); }

static bool is_ours(Role role) { return role == Role::kOurs || role == Role::kRecord; }

/// The fastest of our kernels; null where none was timed.
const Report::Time* Report::best_of(const std::vector<Time>& all) {
    const Time* best = nullptr;
    for (const Time& each : all)
        if (is_ours(each.role) && each.ms > 0)
            if (!best || each.ms < best->ms) best = &each;
    return best;
}

/// `text` in a style, where the terminal has colors and the user wants them (NO_COLOR).
std::string Report::styled(Style style, const std::string& text) const {
    constexpr const char* kCodes[] = {"\033[32m", "\033[1;31m", "\033[90m", "\033[1m"};
    const char* const no_color = std::getenv("NO_COLOR");
    if (!is_terminal(STDOUT_FILENO) || (no_color && *no_color)) return text;
    return kCodes[style] + text + "\033[0m";
}

// --- The header, and what stands below the table ------------------------------------------------

Report::Report(const Options& options, const Gpu& gpu, const Plan& plan)
    : options_(options), gpu_(gpu) {
    for (const Plan::Comparison& comparison : plan.comparisons)
        for (const Plan::Kernel& kernel : comparison.kernels) {
            names_ = std::max(names_, kernel.name.size());
            ++kernels_;
        }
    if (options.csv) {
        std::printf(
            "program,kernel,gpu,sm,dtype,shape,n,median_ms,spread_pct,tflops,gb_per_s,"
            "verified,error_of_bound,launches,temp_bytes,moved_bytes,least_bytes,role,"
            "output_hash,predicted_ms,as_predicted,figure,unit\n");
    } else {
        const std::string where = gpu.name + (kSimulator ? " (not a GPU)" : "");
        const std::string who = program_name + " on " + where, what = subject(plan);
        const bool fits = who.size() + 2 + what.size() <= kColumns;
        const std::string rest = fits ? " " + what + "\n" : "\n" + wrapped("  " + what, 2);
        std::printf("%s:%s", styled(kBold, who).c_str(), rest.c_str());
        if (options.verbose && !gpu.machine.empty()) note(gpu.machine);
    }
    std::fflush(stdout);
}

/// "N = 4096, fp16, fp32 sums".
std::string Report::subject(const Plan& plan) const {
    std::vector<std::string> texts;
    auto add = [&](const std::string& text) {
        if (!text.empty() && std::find(texts.begin(), texts.end(), text) == texts.end())
            texts.push_back(text);
    };
    if (!options_.sweep)
        for (const Plan::Comparison& comparison : plan.comparisons) add(comparison.work.text);
    for (const Plan::Comparison& comparison : plan.comparisons) add(comparison.work.dtype);
    const Workload& work = plan.comparisons.front().work;
    if (plan.comparisons.size() == 1) add(work.arithmetic);
    if (work.memory_bound && !options_.sweep)
        add("at least " + human_bytes(double(work.least_bytes)) + " to move");
    return join(texts, ", ");
}

void Report::skip(const Contender& contender) {
    skipped_ = contender.kernel + ": " + contender.why_not;
    if (options_.csv || options_.sweep) return;
    std::printf("  %-*s  skipped: %s\n", int(names_), contender.kernel.c_str(),
                contender.why_not.c_str());
}

void Report::note(const std::string& text) const {
    erase_progress();
    if (!options_.csv) std::printf("  %s\n", text.c_str());
}

void Report::finish() const {
    if (options_.csv) return;
    if (!record_.empty() && !options_.sweep) note(record_);
    if (noisy_)
        note("~ noisy: the middle half of samples spreads over 2%: run again, or --rounds 3");
    if (!above_peak_.empty() && !options_.sweep)
        print_wrapped("  above what this GPU can do, so not its speed: " + join(above_peak_, ", "));
    if (kSimulator && times_.size() > 0) {
        note("(CPU): this computer's time, which says nothing about a GPU's. To see what");
        note("the kernels touch: DEMO_COUNT=1 in front of the command");
    }
    compare_limits();
    compare_best();
}

/// How much of what their instructions allow our kernels reach.
void Report::compare_limits() const {
    if (kSimulator || options_.sweep) return;
    for (const Time& limit : times_) {
        std::vector<std::string> texts;
        for (const Time& time : times_)
            if (limit.role == Role::kLimit && is_ours(time.role))
                texts.push_back(time.kernel + " " + percent(limit.ms / time.ms));
        if (!texts.empty()) print_wrapped("  of " + limit.kernel + ": " + join(texts, ", "));
    }
}

/// How the best of our kernels compares with the library and with other yardsticks.
void Report::compare_best() const {
    const Time* const best = best_of(times_);
    if (!best || kSimulator || options_.sweep) return;
    std::vector<std::string> texts;
    for (const Time& time : times_)
        if (time.role == Role::kLibrary || (time.role == Role::kYardstick && time.computes))
            texts.push_back(significant(time.ms / best->ms, 3) + "x " + time.kernel);
    if (!texts.empty())
        print_wrapped("  " + best->kernel + " against the library: " + join(texts, ", "));
}

// --- What is wrong, and rows for scripts --------------------------------------------------------

/// One line on stderr: what is wrong with a result, and where.
static void explain(const Contender& contender, const Verdict& verdict) {
    std::vector<std::string> found;
    auto add = [&](unsigned long long count, const std::string& what) {
        if (count) found.push_back(std::to_string(count) + " " + what);
    };
    add(verdict.unwritten, "elements never written (or NaN)");
    add(verdict.huge, "elements too large to be right");
    add(verdict.written_outside, "bytes written around the output");
    add(verdict.changed, "elements of the input " + std::string(verdict.input) + " changed");
    add(verdict.wrong, "of " + std::to_string(verdict.checked) + " checked elements wrong");
    if (verdict.differs)
        found.push_back("the output differs from that of the first launch with these inputs");
    std::string text = join(found, "; ");
    if (verdict.elsewhere) return complain(contender.kernel + ": wrong in another process");
    if (verdict.timed) text = "timed launch " + std::to_string(verdict.timed) + ": " + text;
    if (verdict.unwritten + verdict.huge + verdict.changed + verdict.wrong)
        text += "; first at row " + std::to_string(verdict.row) + ", column " +
                std::to_string(verdict.column) +
                (*verdict.output ? " of " + std::string(verdict.output) : "");
    else if (!verdict.differs)
        text += "; the output itself is right";
    if (verdict.wrong) {
        char values[96];
        std::snprintf(values, sizeof values, ": %.9g instead of %.9g +- %.2g", verdict.got,
                      verdict.expected.value, verdict.expected.tolerance);
        text += values;
    }
    complain(contender.kernel + ": " + text);
}

static void print_csv(const Gpu& gpu, const Workload& work, const Contender& contender,
                      const Result& result, const std::string& columns) {
    const bool timed = !result.ms.empty();
    std::printf("%s,%s,\"%s\",%s,%s,%s,%zu,", program_name.c_str(), contender.kernel.c_str(),
                gpu.name.c_str(), kSimulator ? "" : gpu.arch.c_str() + 3, work.dtype.c_str(),
                work.shape.c_str(), work.size);
    if (timed)
        std::printf("%.6f,%.2f,", result.median_ms(), result.spread());
    else
        std::printf(",,");
    auto rate = [&](bool known, double value) {
        std::printf("%s,", timed && known ? significant(value, 4).c_str() : "");
    };
    rate(contender.computes, result.tflops(work));
    rate(work.memory_bound && !kSimulator, result.gb_per_s(work));
    auto counted = [](size_t bytes) { return bytes ? std::to_string(bytes) : ""; };
    const float error = std::bit_cast<float>(result.verdict.error_of_bound);
    std::printf("%s,%s,%zu,%zu,%s,%s,%s,%016llx,%s\n", result.verdict.ok() ? "yes" : "no",
                significant(error, 4).c_str(), contender.launches, contender.temporary_bytes,
                counted(contender.moved_bytes).c_str(), counted(work.least_bytes).c_str(),
                to_text(contender.role), result.verdict.output_hash, columns.c_str());
}

void Report::count(const Workload& work, const Contender& contender, const Result& result,
                   const std::string& columns) {
    erase_progress();
    if (options_.csv) print_csv(gpu_, work, contender, result, columns);
    if (!result.verdict.ok()) explain(contender, result.verdict);
    if (exit_code_ != kWrong) exit_code_ = result.verdict.ok() ? kVerified : kWrong;
    right_ &= result.verdict.ok();
    noisy_ |= !result.ms.empty() && result.noisy() && !kSimulator;
    const double peak = work.memory_bound ? 0 : gpu_.peak(work.dtype);
    if (!kSimulator && contender.computes && peak > 0 &&
        result.tflops(work) > 1.05 * peak * contender.gpus)
        above_peak_.push_back(contender.kernel);
    if (!contender.program.empty()) record_ = contender.kernel + ": see " + contender.program;
    if (result.median_ms() > 0)
        times_.push_back(
            {contender.kernel, contender.role, result.median_ms(), contender.computes});
    std::fflush(stdout);
}

// --- The table ----------------------------------------------------------------------------------
// Columns: the kernel, its time, its rate, the percentage of the peak or of a copy's speed, the
// speed-up over the first line. The simulator has no percentages or speed-ups: it is no GPU.

static constexpr size_t kTime = kSimulator ? 20 : 13, kRate = kSimulator ? 16 : 9, kPercent = 9,
                        kSpeedUp = 10;

bool Report::compares() const {
    return !kSimulator && kernels_ > 1 && options_.kernels.size() != 1;
}

/// Prints what stands above a line, where it is another than before.
void Report::print_head(const std::string& head) {
    if (head == head_) return;
    std::printf("%s%s\n", head_.empty() ? "" : "\n", styled(kAside, head).c_str());
    head_ = head;
    first_ms_ = 0;
}

/// As long as `fraction` of the room that the line and its verdict leave.
static std::string bar_of(double fraction, size_t line) {
    const size_t taken = line + 2 + std::string("verified").size() + 2;
    const double room = taken < kColumns ? double(kColumns - taken) : 0;
    return "  " + std::string(size_t(std::min(fraction, 1.0) * room + 0.5), '#');
}

static void print_details(const Contender& contender, const Result& result) {
    std::vector<std::string> texts;
    if (!result.ms.empty())
        texts.push_back(std::to_string(result.ms.size()) + " samples, spread " +
                        significant(result.spread(), 2) + "%");
    texts.push_back(std::to_string(contender.launches) +
                    (contender.launches == 1 ? " launch" : " launches"));
    if (contender.moved_bytes) {
        texts.push_back(human_bytes(double(contender.temporary_bytes)) + " temporary");
        texts.push_back(human_bytes(double(contender.moved_bytes)) + " moved");
    }
    if (!contender.note.empty()) texts.push_back(contender.note);
    std::printf("%s", wrapped("      " + join(texts, "; "), 6).c_str());
}

void Report::print_line(const Workload& work, const Contender& contender, const Result& result,
                        const Result* copy, const std::string& verdict) {
    if (options_.csv) return;
    const double ms = result.median_ms(), peak = work.memory_bound ? 0 : gpu_.peak(work.dtype);
    const bool has_percent = !kSimulator && (copy || peak > 0);
    std::string head = "  " + std::string(names_, ' ') + right("time", kTime);
    head += right(work.memory_bound && !kSimulator ? "GB/s" : "TFLOP/s", kRate);
    if (has_percent) head += right(copy ? "of copy" : "of peak", kPercent);
    if (compares()) head += right("speed-up", kSpeedUp);
    if (!options_.once) print_head(head);
    std::string line = "  " + left(contender.kernel, names_), bar;
    if (kSimulator && ms > 0) {
        const double tflops = result.tflops(work);
        const std::string rate = tflops < 0.001 ? "<0.001" : significant(tflops, 3);
        line += styled(kAside, right("(CPU) " + significant(ms, 3) + " ms", kTime) +
                                   right(contender.computes ? "(CPU) " + rate : "", kRate));
    } else if (ms > 0) {
        const double rate = work.memory_bound ? result.gb_per_s(work) : result.tflops(work);
        line += right((result.noisy() ? "~" : "") + significant(ms, 4) + " ms", kTime);
        line += right(significant(rate, 4), kRate);
        const double all_peak = peak * contender.gpus;
        const double fraction = copy ? copy->median_ms() / ms : result.tflops(work) / all_peak;
        if (has_percent) line += right(percent(fraction), kPercent);
        if (first_ms_ == 0) first_ms_ = ms;
        if (compares()) {
            const std::string speed_up = significant(first_ms_ / ms, 3) + "x";
            const std::string text = contender.computes ? speed_up : "";
            line += right(text, std::max(kSpeedUp, text.size() + 2));
        }
        if (has_percent && is_terminal(STDOUT_FILENO)) bar = bar_of(fraction, line.size());
    } else if (!options_.once) {
        line += right("-", kTime) + right("-", kRate);
    }
    const std::string end = result.verdict.ok()
                                ? styled(verdict == "verified" ? kGood : kBad, verdict)
                                : styled(kBad, "WRONG");
    std::printf("%s  %s%s\n", line.c_str(), end.c_str(), bar.c_str());
    if (options_.verbose) print_details(contender, result);
}

void Report::add(const Workload& work, const Contender& contender, const Result& result,
                 const Result* copy) {
    erase_progress();
    if (options_.sweep)
        line_.push_back({contender.kernel, contender.role, result.median_ms(), contender.computes});
    else
        print_line(work, contender, result, copy, "verified");
    count(work, contender, result);
}

// --- Lines of sweeps and experiments ------------------------------------------------------------

void Report::row(const std::vector<Cell>& cells) {
    std::string head = " ", units = " ", line = " ";
    bool has_units = false;
    for (const auto& [title, text, unit] : cells) {
        const size_t width = std::max(title.size(), text.size());
        const auto cell = head == " " ? left : right;
        head += " " + cell(title, width), line += " " + cell(text, width);
        units += " " + cell(unit, width), has_units |= !unit.empty();
    }
    if (has_units) head += "\n" + units;
    if (options_.csv) return;
    print_head(head);
    const std::string verdict = styled(right_ ? kGood : kBad, right_ ? " ok" : "WRONG");
    std::printf("%s %s\n", line.c_str(), verdict.c_str());
    std::fflush(stdout);
    right_ = true;
}

void Report::end(const Workload& work, bool alone) {
    if (!alone) first_ms_ = 0;  // lines that are alone, such as a type's each, are one comparison
    if (line_.empty()) return;
    const std::string size = work.text.substr(0, work.text.find(':'));
    const bool is_shape = size.find(" x ") != std::string::npos;
    const size_t largest = std::string("N = ").size() + std::to_string(options_.n).size();
    const size_t width = is_shape ? 13 : std::max<size_t>(9, largest);  // "262144 x 1024"
    std::vector<Cell> cells = {{kSimulator ? "(CPU) ms" : "ms", left(size, width)}};
    for (const Time& each : line_) cells.push_back({each.kernel, figure(each.ms)});
    const Time* const best = best_of(line_);
    for (const Time& each : line_) {
        if (kSimulator || (each.role != Role::kChain && each.role != Role::kLibrary)) continue;
        const bool timed = best && each.ms > 0;
        cells.push_back({std::string("x ") + to_text(each.role),
                         timed ? significant(each.ms / best->ms, 3) + "x" : "-"});
    }
    row(cells);
    line_.clear();
}

}  // namespace demo
