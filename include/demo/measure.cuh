// Measuring kernels on the GPU, alternating, and reporting what came out.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <bit>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device.cuh"
#include "verify.cuh"

namespace demo {

/// What all the kernels of one comparison compute.
struct Workload {
    std::string shape;          // "square", "talk", or rows x columns
    size_t size;                // N, or S of the talk's shape
    std::string dtype;          // "fp32"
    double flops;               // floating-point operations, counted from the formula
    size_t least_bytes = 0;     // inputs read once, output written once
    bool memory_bound = false;  // report GB/s of least_bytes as well
};

/// One way to compute it.
struct Contender {
    std::string kernel;            // its name
    Check check;                   // of its output
    std::function<void()> launch;  // enqueues it on the default stream
    size_t launches = 1;           // kernels it launches
    size_t temporary_bytes = 0;    // device memory between its kernels
    size_t moved_bytes = 0;        // what it reads and writes, counted; 0 where nobody counted
    std::string note = "";         // shown behind its figures
    std::function<void()> prepare = [] {};  // enqueued before each launch, and not timed
};

/// What measuring a contender gave.
struct Result {
    Verdict verdict;
    std::vector<double> ms;  // time of each sample; empty where nothing was timed

    double median_ms() const { return median(ms); }
    double spread() const { return spread_percent(ms); }
    double per_ms(double amount) const { return median_ms() > 0 ? amount / median_ms() : 0; }
    double tflops(const Workload& work) const { return per_ms(work.flops) / 1e9; }
    double gb_per_s(const Workload& work) const { return per_ms(double(work.least_bytes)) / 1e6; }
};

/// A named range of the program, from here to the end of the scope, for profilers: it groups what
/// scripts/profile.sh and Nsight Systems show. Without a profiler it costs a few nanoseconds.
struct Range {
    explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
    ~Range() { nvtxRangePop(); }
    Range(const Range&) = delete;
};

/// Verifies every contender, then times those that are right: in turn, one launch each, so that
/// all of them see the same clocks and temperatures. Each is verified again on its last sample.
inline std::vector<Result> measure(const Options& options, const Gpu& gpu,
                                   const std::vector<Contender>& contenders) {
    std::vector<Result> results(contenders.size());
    auto launch = [&](size_t i) {
        contenders[i].launch();
        check(cudaGetLastError(), "launch of " + contenders[i].kernel);
    };
    auto verify = [&](size_t i) {
        check(cudaDeviceSynchronize(), contenders[i].kernel);
        results[i].verdict = contenders[i].check.verify();
        if (!results[i].verdict.ok()) results[i].ms.clear();
        return results[i].verdict.ok();
    };

    std::vector<size_t> right;
    for (size_t i = 0; i < contenders.size(); ++i) {
        const Range phase("verify"), kernel(contenders[i].kernel);
        contenders[i].check.poison();
        contenders[i].prepare(), launch(i);
        if (verify(i)) right.push_back(i);
    }
    if (options.once || right.empty()) return results;

    using Clock = std::chrono::steady_clock;
    auto seconds_since = [](Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const double share = 1.0 / double(right.size());  // of the elapsed time that each one had

    if (!kCpuLane) {  // warm up: clocks rise, caches and pages settle
        const Range phase("warm-up");
        const auto start = Clock::now();
        do {
            for (size_t i : right) {
                const Range kernel(contenders[i].kernel);
                contenders[i].prepare(), launch(i);
            }
            check(cudaDeviceSynchronize(), "warm-up");
        } while (seconds_since(start) * share < 0.2);
    }

    const Range phase("timed");
    const bool flush = !options.hot && !kCpuLane;
    Buffer<char> flushed(flush ? gpu.flush_bytes() : 1);
    cudaEvent_t begin, end;
    DEMO_CHECK(cudaEventCreate(&begin));
    DEMO_CHECK(cudaEventCreate(&end));
    const auto start = Clock::now();
    for (bool last = false; !last;) {
        const size_t samples = results[right[0]].ms.size() + 1;  // with the one to come
        const double seconds = seconds_since(start) * share;
        last = kCpuLane ? samples >= 3
                        : samples >= 3 && (seconds >= 5 || (samples >= 30 && seconds >= 0.5));
        for (size_t i : right) {
            if (last) contenders[i].check.poison();
            contenders[i].prepare();
            if (flush) {
                // What a launch asked the cache to keep would outlast the memset. (GPUs before 8.0
                // keep nothing, and may refuse: an error to be forgotten.)
                cudaCtxResetPersistingL2Cache(), cudaGetLastError();
                DEMO_CHECK(cudaMemsetAsync(flushed.data(), int(samples), flushed.bytes()));
            }
            float ms = 0;
            {
                const Range kernel(contenders[i].kernel);  // around what is timed, not inside
                DEMO_CHECK(cudaEventRecord(begin));
                launch(i);
                DEMO_CHECK(cudaEventRecord(end));
                check(cudaEventSynchronize(end), contenders[i].kernel);
            }
            DEMO_CHECK(cudaEventElapsedTime(&ms, begin, end));
            results[i].ms.push_back(ms);
            if (last) verify(i);
        }
    }
    DEMO_CHECK(cudaEventDestroy(begin));
    DEMO_CHECK(cudaEventDestroy(end));
    return results;
}

/// `value` with four significant digits, without an exponent.
inline std::string four_digits(double value) {
    int decimals = 3;
    for (double v = value; v > 0 && v < 1 && decimals < 9; v *= 10) ++decimals;
    for (double v = value; v >= 10 && decimals > 0; v /= 10) --decimals;
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

/// Prints results as they come and remembers whether all of them were verified.
class Report {
  public:
    /// Prints the header line; `subject` says what is computed, e.g. "N = 4096, fp32".
    Report(const Options& options, const Gpu& gpu, const std::string& subject)
        : options_(options), gpu_(gpu) {
        if (options.csv)
            std::printf(
                "program,kernel,gpu,sm,dtype,shape,n,median_ms,spread_pct,tflops,gb_per_s,"
                "verified,error_of_bound,launches,temp_bytes,moved_bytes,least_bytes\n");
        else
            std::printf("%s on %s (%s): %s\n", program_name.c_str(), gpu.name.c_str(),
                        gpu.arch.c_str(), subject.c_str());
        std::fflush(stdout);
    }

    /// Measures the contenders that --kernel leaves and prints a line for each.
    void run(const Workload& work, std::vector<Contender> contenders) {
        std::erase_if(contenders, [&](const Contender& c) { return !options_.wants(c.kernel); });
        const std::vector<Result> results = measure(options_, gpu_, contenders);
        for (size_t i = 0; i < contenders.size(); ++i)
            medians_[contenders[i].kernel] = results[i].median_ms();
        for (size_t i = 0; i < contenders.size(); ++i) {
            if (!options_.csv) print_line(work, contenders[i], results[i]);
            record(work, contenders[i], results[i]);
        }
    }

    /// Keeps the score, says what is wrong with a wrong result, and prints the row of --csv.
    void record(const Workload& work, const Contender& contender, const Result& result) {
        if (options_.csv) print_row(work, contender, result);
        std::fflush(stdout);
        if (!result.verdict.ok()) explain(contender, result.verdict);
        if (exit_code_ != kWrong) exit_code_ = result.verdict.ok() ? kVerified : kWrong;
    }

    /// Prints how many times as fast `kernel` is as `rival`, where both were timed.
    void ratio(const std::string& kernel, const std::string& rival) {
        const double own = medians_[kernel], other = medians_[rival];
        if (own > 0 && other > 0)
            note(kernel + " runs at " + four_digits(other / own) + " x the speed of " + rival);
    }

    /// Prints a remark, for people only.
    void note(const std::string& text) const {
        if (!options_.csv) std::printf("  %s\n", text.c_str());
    }

    /// What main() returns: kSkipped where nothing ran.
    int exit_code() const { return exit_code_; }

  private:
    void print_line(const Workload& work, const Contender& contender, const Result& result) const {
        std::printf("  %-18s", contender.kernel.c_str());
        if (!result.ms.empty()) {
            std::printf(" %10s ms %8s TFLOP/s", four_digits(result.median_ms()).c_str(),
                        four_digits(result.tflops(work)).c_str());
            if (work.memory_bound)
                std::printf(" %8s GB/s", four_digits(result.gb_per_s(work)).c_str());
            if (const auto copy = medians_.find("copy"); copy != medians_.end())
                std::printf(" %5.1f%% of copy", 100 * copy->second / result.median_ms());
            std::printf("   spread %.1f%%%s", result.spread(),
                        result.spread() > 2 ? " (noisy)" : "");
        }
        std::printf("   %s", result.verdict.ok() ? "verified" : "WRONG");
        if (contender.moved_bytes)
            std::printf("   %zu launch%s, %s temporary, %s moved", contender.launches,
                        contender.launches == 1 ? "" : "es",
                        human_bytes(double(contender.temporary_bytes)).c_str(),
                        human_bytes(double(contender.moved_bytes)).c_str());
        if (!contender.note.empty()) std::printf("   (%s)", contender.note.c_str());
        std::printf("\n");
    }

    void print_row(const Workload& work, const Contender& contender, const Result& result) const {
        std::printf("%s,%s,\"%s\",%s,%s,%s,%zu,", program_name.c_str(), contender.kernel.c_str(),
                    gpu_.name.c_str(), kCpuLane ? "" : gpu_.arch.c_str() + 3, work.dtype.c_str(),
                    work.shape.c_str(), work.size);
        if (result.ms.empty())
            std::printf(",,,");
        else
            std::printf("%.6f,%.2f,%s,", result.median_ms(), result.spread(),
                        four_digits(result.tflops(work)).c_str());
        if (!result.ms.empty() && work.memory_bound)
            std::printf("%s", four_digits(result.gb_per_s(work)).c_str());
        auto known = [](size_t bytes) { return bytes ? std::to_string(bytes) : ""; };
        std::printf(",%s,%.4f,%zu,%zu,%s,%s\n", result.verdict.ok() ? "yes" : "no",
                    std::bit_cast<float>(result.verdict.error_of_bound), contender.launches,
                    contender.temporary_bytes, known(contender.moved_bytes).c_str(),
                    known(work.least_bytes).c_str());
    }

    /// One line on stderr: what is wrong with a result, and where.
    static void explain(const Contender& contender, const Verdict& verdict) {
        std::fprintf(stderr, "%s: %s: ", program_name.c_str(), contender.kernel.c_str());
        if (verdict.unwritten)
            std::fprintf(stderr, "%llu elements never written (or NaN); ", verdict.unwritten);
        if (verdict.written_behind)
            std::fprintf(stderr, "%llu bytes written behind the output; ", verdict.written_behind);
        if (verdict.wrong)
            std::fprintf(stderr,
                         "%llu of %llu checked elements wrong; first at row %zu, column %zu: "
                         "%.9g instead of %.9g +- %.2g\n",
                         verdict.wrong, verdict.checked, verdict.row, verdict.column, verdict.got,
                         verdict.expected.value, verdict.expected.tolerance);
        else if (verdict.unwritten)
            std::fprintf(stderr, "first at row %zu, column %zu\n", verdict.row, verdict.column);
        else
            std::fprintf(stderr, "the output itself is right\n");
    }

    Options options_;
    const Gpu& gpu_;
    ExitCode exit_code_ = kSkipped;          // until there is a result
    std::map<std::string, double> medians_;  // by kernel, in ms
};

}  // namespace demo
