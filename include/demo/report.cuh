// Printing results: a table for people at the back of the room, or rows for scripts.
#pragma once

#include <unistd.h>

#include <bit>
#include <string>
#include <vector>

#include "measure.cuh"

namespace demo {

/// `value` with `digits` significant digits, without an exponent.
inline std::string significant(double value, int digits) {
    int decimals = digits - 1;
    for (double v = value; v > 0 && v < 1 && decimals < 9; v *= 10) ++decimals;
    for (double v = value; v >= 10 && decimals > 0; v /= 10) --decimals;
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

/// "20.93 ms"; on the simulator "(CPU) 20.93 ms", since it says nothing of a GPU.
inline std::string time_text(double ms) {
    return (kSimulator ? "(CPU) " : "") + significant(ms, 4) + " ms";
}

/// The terminal, if results go to one.
class Terminal {
  public:
    enum Style { kGood, kBad, kAside, kBold };

    /// `text` in a style, where the terminal has colors and the user wants them (NO_COLOR).
    std::string styled(Style style, const std::string& text) const {
        constexpr const char* kCodes[] = {"\033[32m", "\033[1;31m", "\033[90m", "\033[1m"};
        return colored_ ? kCodes[style] + text + "\033[0m" : text;
    }
    bool is_one() const { return output_; }

    /// Shows what is being done, until the next line is printed.
    void progress(const std::string& text) const {
        if (!messages_) return;
        erase_progress();
        std::fprintf(stderr, "  %s ...", text.c_str());
        std::fflush(stderr);
        progress_shown = true;
    }

  private:
    static bool knows_codes() {
        const char* const term = std::getenv("TERM");
        return term && std::string(term) != "dumb";
    }
    const bool output_ = isatty(STDOUT_FILENO) && knows_codes();
    const bool messages_ = isatty(STDERR_FILENO) && knows_codes();
    const bool colored_ = output_ && !(std::getenv("NO_COLOR") && *std::getenv("NO_COLOR"));
};

/// Prints results as they come, and remembers whether all of them were verified.
class Report {
  public:
    static constexpr size_t kColumns = 79;

    /// Prints the header: the program, the GPU and what `plan` says will be computed.
    Report(const Options& options, const Gpu& gpu, const Plan& plan)
        : options_(options), gpu_(gpu) {
        for (const Plan::Comparison& comparison : plan.comparisons)
            for (const Plan::Kernel& kernel : comparison.kernels) {
                names_ = std::max(names_, kernel.name.size());
                counts_lines_ |= kernel.lines > 0;
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
            std::printf("%s:%s", terminal.styled(Terminal::kBold, who).c_str(), rest.c_str());
            if (options.verbose && !gpu.machine.empty()) note(gpu.machine);
        }
        std::fflush(stdout);
    }

    /// Prints what came of a contender: a line of the table or a row for scripts, and on stderr
    /// what is wrong with a wrong result. `beside`: the copy's result, or the record's where lines
    /// are counted; null where there is none.
    void add(const Workload& work, const Contender& contender, const Result& result,
             const Result* beside) {
        erase_progress();
        if (options_.csv)
            print_row(work, contender, result);
        else if (options_.sweep)
            line_.push_back({contender, result});
        else
            print_line(work, contender, result, beside);
        count(work, contender, result);
        std::fflush(stdout);
    }

    /// Prints that a contender cannot run here.
    void skip(const Contender& contender) const {
        if (options_.csv || options_.sweep) return;
        std::printf("  %-*s  skipped: %s\n", int(names_), contender.kernel.c_str(),
                    contender.why_not.c_str());
    }

    /// Prints the line of --sweep for what add() was told since the last one.
    void end_line(const Workload& work) {
        if (!options_.sweep || line_.empty()) return;
        if (!options_.csv) print_sweep_line(work);
        line_.clear();
    }

    /// Prints a remark, for people only.
    void note(const std::string& text) const {
        if (!options_.csv) std::printf("  %s\n", text.c_str());
    }

    /// Prints what stands below the table.
    void finish() const {
        if (options_.csv) return;
        if (!record_.empty() && !options_.sweep) note(record_);
        if (noisy_) note("~ noisy: the middle half of the samples spreads over more than 2%");
        if (missed_) note("! not as predicted");
        auto list = [](const std::string& text) { std::printf("%s", wrapped(text, 4).c_str()); };
        if (!above_peak_.empty() && !options_.sweep)
            list("  above what this GPU can do, so not its speed: " + join(above_peak_, ", "));
        if (kSimulator && times_.size() > 0) {
            note("(CPU): this computer's time, which says nothing about a GPU's. To see what");
            note("the kernels touch: DEMO_COUNT=1 in front of the command");
        }
        compare_limits();
        compare_best();
    }

    /// What main() returns: kSkipped where nothing ran.
    ExitCode exit_code() const { return exit_code_; }

    const Terminal terminal;

  private:
    struct Measured {
        Contender contender;
        Result result;
    };

    /// "N = 4096, fp16, fp32 sums".
    std::string subject(const Plan& plan) const {
        std::vector<std::string> parts;
        auto add = [&](const std::string& part) {
            if (!part.empty() && std::find(parts.begin(), parts.end(), part) == parts.end())
                parts.push_back(part);
        };
        if (!options_.sweep)
            for (const Plan::Comparison& comparison : plan.comparisons) add(comparison.work.text);
        for (const Plan::Comparison& comparison : plan.comparisons) add(comparison.work.dtype);
        const Workload& work = plan.comparisons.front().work;
        if (plan.comparisons.size() == 1) add(work.arithmetic);
        if (work.memory_bound && !options_.sweep)
            add("at least " + human_bytes(double(work.least_bytes)) + " to move");
        return join(parts, ", ");
    }

    void count(const Workload& work, const Contender& contender, const Result& result) {
        if (!result.verdict.ok()) explain(contender, result.verdict);
        if (exit_code_ != kWrong) exit_code_ = result.verdict.ok() ? kVerified : kWrong;
        noisy_ |= !result.ms.empty() && result.noisy() && !kSimulator;
        const double peak = work.memory_bound ? 0 : gpu_.peak(work.dtype);
        if (!kSimulator && contender.computes && peak > 0 &&
            result.tflops(work) > 1.05 * peak * contender.gpus)
            above_peak_.push_back(contender.kernel);
        if (!contender.program.empty()) record_ = contender.kernel + ": see " + contender.program;
        if (result.median_ms() > 0)
            times_.push_back(
                {contender.kernel, contender.role, result.median_ms(), contender.computes});
    }

    // --- The table ------------------------------------------------------------------------------
    // Columns: the kernel, its lines where they are counted, its time, its rate, the part of the
    // peak or of the speed of what stands beside it, the speed-up over the first line where all do
    // the same; on the simulator no parts and speed-ups, since they would say something of a GPU.

    static constexpr size_t kLines = 7, kTime = kSimulator ? 20 : 13, kPart = 9, kSpeedUp = 10;

    size_t rate_width() const { return kSimulator ? 16 : counts_lines_ ? 16 : 9; }
    bool compares() const {
        return !kSimulator && kernels_ > 1 && options_.kernels.size() != 1 && !counts_lines_;
    }

    void print_head(const Workload& work, bool has_part, const Result* beside) {
        if (headed_ || options_.once) return;
        headed_ = true;
        const bool bytes = work.memory_bound && !kSimulator;
        std::string head = "  " + std::string(names_, ' ');
        if (counts_lines_) head += right("lines", kLines);
        head += right("time", kTime);
        const bool units = counts_lines_ && !kSimulator;  // in the lines, which differ in them
        head += right(units ? "rate" : bytes ? "GB/s" : "TFLOP/s", rate_width());
        if (has_part) head += right(units ? "of next" : beside ? "of copy" : "of peak", kPart);
        if (compares()) head += right("speed-up", kSpeedUp);
        std::printf("%s\n", terminal.styled(Terminal::kAside, head).c_str());
    }

    void print_line(const Workload& work, const Contender& contender, const Result& result,
                    const Result* beside) {
        const double ms = result.median_ms(), peak = work.memory_bound ? 0 : gpu_.peak(work.dtype);
        const bool has_part = !kSimulator && (beside || peak > 0 || counts_lines_);
        print_head(work, has_part, beside);
        std::string line = "  " + left(contender.kernel, names_), bar;
        if (counts_lines_ && !options_.once)
            line += right(contender.lines ? std::to_string(contender.lines) : "", kLines);
        if (kSimulator && ms > 0) {
            const double tflops = result.tflops(work);
            const std::string rate = tflops < 0.001 ? "<0.001" : significant(tflops, 3);
            line +=
                terminal.styled(Terminal::kAside,
                                right("(CPU) " + significant(ms, 3) + " ms", kTime) +
                                    right(contender.computes ? "(CPU) " + rate : "", rate_width()));
        } else if (ms > 0) {
            const double rate = work.memory_bound ? result.gb_per_s(work) : result.tflops(work);
            const char* const unit = work.memory_bound ? " GB/s   " : " TFLOP/s";
            line += right((result.noisy() ? "~" : "") + significant(ms, 4) + " ms", kTime);
            line += right(significant(rate, 4) + (counts_lines_ ? unit : ""), rate_width());
            const double all_peak = peak * contender.gpus;
            const double part = beside ? beside->median_ms() / ms : result.tflops(work) / all_peak;
            const bool stands_beside = counts_lines_ && (contender.lines == 0 || !beside);
            if (has_part) line += right(stands_beside ? "" : percent(part), kPart);
            if (first_ms_ == 0) first_ms_ = ms;
            const std::string speed_up = significant(first_ms_ / ms, 3) + "x";
            if (compares()) {
                const std::string text = contender.computes ? speed_up : "";
                line += right(text, std::max(kSpeedUp, text.size() + 2));
            }
            if (has_part && !stands_beside && terminal.is_one()) bar = this->bar(part, line.size());
        } else if (!options_.once) {
            line += right("-", kTime) + right("-", rate_width());
        }
        std::printf("%s  %s%s\n", line.c_str(), verdict(contender, result).c_str(), bar.c_str());
        if (options_.verbose) print_details(contender, result);
    }

    /// As long as `part` of the room that the line and its verdict leave.
    static std::string bar(double part, size_t line) {
        const size_t taken = line + 2 + std::string("verified").size() + 2;
        const double room = taken < kColumns ? double(kColumns - taken) : 0;
        return "  " + std::string(size_t(std::min(part, 1.0) * room + 0.5), '#');
    }

    std::string verdict(const Contender& contender, const Result& result) const {
        if (!result.verdict.ok()) return terminal.styled(Terminal::kBad, "WRONG");
        return contender.rejected ? terminal.styled(Terminal::kBad, "rejected")
                                  : terminal.styled(Terminal::kGood, "verified");
    }

    void print_details(const Contender& contender, const Result& result) const {
        std::vector<std::string> parts;
        if (!result.ms.empty())
            parts.push_back(std::to_string(result.ms.size()) + " samples, spread " +
                            significant(result.spread(), 2) + "%");
        parts.push_back(std::to_string(contender.launches) +
                        (contender.launches == 1 ? " launch" : " launches"));
        if (contender.moved_bytes) {
            parts.push_back(human_bytes(double(contender.temporary_bytes)) + " temporary");
            parts.push_back(human_bytes(double(contender.moved_bytes)) + " moved");
        }
        if (!contender.note.empty()) parts.push_back(contender.note);
        std::printf("%s", wrapped("      " + join(parts, "; "), 6).c_str());
    }

    /// How much of what their instructions allow our kernels reach.
    void compare_limits() const {
        if (kSimulator || options_.sweep) return;
        for (const Time& limit : times_) {
            std::vector<std::string> parts;
            for (const Time& time : times_)
                if (limit.role == Role::kLimit && is_ours(time.role))
                    parts.push_back(time.kernel + " " + percent(limit.ms / time.ms));
            if (!parts.empty())
                std::printf("%s",
                            wrapped("  of " + limit.kernel + ": " + join(parts, ", "), 4).c_str());
        }
    }

    /// How the best of our kernels compares with the library and with other yardsticks.
    void compare_best() const {
        const Time* best = nullptr;
        for (const Time& time : times_)
            if (is_ours(time.role))
                if (!best || time.ms < best->ms) best = &time;
        if (!best || kSimulator || options_.sweep) return;
        std::vector<std::string> parts;
        for (const Time& time : times_)
            if (time.role == Role::kLibrary || (time.role == Role::kYardstick && time.computes))
                parts.push_back(significant(time.ms / best->ms, 3) + "x " + time.kernel);
        if (!parts.empty())
            std::printf(
                "%s", wrapped("  " + best->kernel + " against the library: " + join(parts, ", "), 4)
                          .c_str());
    }

    // --- The table of --sweep, a line for each size ---------------------------------------------

    void print_sweep_line(const Workload& work) {
        const Measured* best = nullptr;  // of our kernels
        for (const Measured& each : line_)
            if (is_ours(each.contender.role) && each.result.median_ms() > 0)
                if (!best || each.result.median_ms() < best->result.median_ms()) best = &each;
        const std::string size = work.text.substr(0, work.text.find(':'));
        const bool is_shape = size.find(" x ") != std::string::npos;
        const size_t largest = std::string("N = ").size() + std::to_string(options_.n).size();
        const size_t size_width = is_shape ? 13 : std::max<size_t>(9, largest);  // "262144 x 1024"
        std::string line = "  " + left(size, size_width);
        const std::string ms_text = kSimulator ? "(CPU) ms" : "ms";
        const bool has_units = !kSimulator && std::ranges::any_of(line_, [](auto& m) {
            return m.contender.unit != "";
        });
        std::string head = "  " + left(has_units ? "" : ms_text, size_width);
        std::string units = "  " + left("", size_width);  // a line of its own
        bool ok = true;
        auto cell = [&](const std::string& title, const std::string& text,
                        const std::string& unit = "") {
            const size_t width = std::max<size_t>(title.size(), 8) + 1;
            head += right(title, width), line += right(text, width), units += right(unit, width);
        };
        auto figure = [](double ms) { return ms > 0 ? significant(ms, 4) : "-"; };
        for (const auto& [title, text] : work.facts) cell(title, text);
        for (const Measured& each : line_) {
            const Contender& contender = each.contender;
            const double ms = each.result.median_ms();
            const bool off = ms > 0 && !as_predicted(contender, ms);
            if (contender.within > 0) cell("predicted", figure(contender.predicted_ms));
            const bool has_unit = !kSimulator && contender.figure;
            const double shown = has_unit && ms > 0 ? contender.figure(ms) : ms;
            cell(contender.kernel, figure(shown) + (off ? "!" : ""),
                 has_unit ? contender.unit : ms_text);
            ok = ok && each.result.verdict.ok();
            missed_ |= off;
        }
        for (const Measured& each : line_) {
            const Role role = each.contender.role;
            if (kSimulator || (role != Role::kChain && role != Role::kLibrary)) continue;
            const bool timed = best && each.result.median_ms() > 0;
            const double ratio = timed ? each.result.median_ms() / best->result.median_ms() : 0;
            const std::string title = std::string("x ") + to_text(role);
            head += right(title, title.size() + 1);
            line += right(timed ? significant(ratio, 3) + "x" : "-", title.size() + 1);
        }
        if (has_units) head += "\n" + units;
        if (head != sweep_head_) {
            std::printf("%s%s\n", sweep_head_.empty() ? "" : "\n",
                        terminal.styled(Terminal::kAside, head).c_str());
            sweep_head_ = head;
        }
        std::printf(
            "%s %s\n", line.c_str(),
            terminal.styled(ok ? Terminal::kGood : Terminal::kBad, ok ? " ok" : "WRONG").c_str());
    }

    // --- Pieces ---------------------------------------------------------------------------------

    static bool is_ours(Role role) { return role == Role::kOurs || role == Role::kRecord; }

    static std::string left(const std::string& text, size_t width) {
        return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
    }
    static std::string right(const std::string& text, size_t width) {
        return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
    }
    static std::string percent(double part) {
        char text[32];
        std::snprintf(text, sizeof text, part < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * part);
        return text;
    }

    // --- Rows for scripts -----------------------------------------------------------------------

    void print_row(const Workload& work, const Contender& contender, const Result& result) const {
        const bool timed = !result.ms.empty();
        std::printf("%s,%s,\"%s\",%s,%s,%s,%zu,", program_name.c_str(), contender.kernel.c_str(),
                    gpu_.name.c_str(), kSimulator ? "" : gpu_.arch.c_str() + 3, work.dtype.c_str(),
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
        std::printf("%s,%s,%zu,%zu,%s,%s,%s,%016llx,", result.verdict.ok() ? "yes" : "no",
                    significant(error, 4).c_str(), contender.launches, contender.temporary_bytes,
                    counted(contender.moved_bytes).c_str(), counted(work.least_bytes).c_str(),
                    to_text(contender.role), result.verdict.output_hash);
        const bool predicted = contender.predicted_ms > 0;
        if (predicted) std::printf("%.6f", contender.predicted_ms);
        const char* const agrees = as_predicted(contender, result.median_ms()) ? "yes" : "no";
        std::printf(",%s,", predicted && timed ? agrees : "");
        const bool has_figure = timed && !kSimulator && contender.figure;
        std::printf("%s,%s\n",
                    has_figure ? significant(contender.figure(result.median_ms()), 4).c_str() : "",
                    contender.unit.c_str());
    }

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

    struct Time {
        std::string kernel;
        Role role;
        double ms;
        bool computes;
    };

    const Options& options_;
    const Gpu& gpu_;
    size_t names_ = 6;           // columns of the kernels' names
    size_t kernels_ = 0;         // how many there are
    bool counts_lines_ = false;  // of source: kernels of several operations stand in one table
    bool headed_ = false;        // whether the table's head was printed
    double first_ms_ = 0;        // of the table's first line
    bool noisy_ = false;         // whether a line was marked ~
    bool missed_ = false;        // whether a prediction was missed
    std::vector<std::string> above_peak_;  // kernels with more TFLOP/s than the GPU has
    std::string record_;                   // where a record's kernel comes from
    std::vector<Time> times_;              // of every line
    std::vector<Measured> line_;           // of --sweep: what its next line shows
    std::string sweep_head_;
    ExitCode exit_code_ = kSkipped;  // until there is a result
};

}  // namespace demo
