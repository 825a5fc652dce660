// Measuring kernels on the GPU, in turns.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device.cuh"
#include "inputs.cuh"
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
    size_t lines = 0;            // of its source, where the program compares that
    std::string note = "";       // for --verbose
    std::string program = "";    // of a record: the program that is about it
    std::string only = "";       // the one shape that it is for: "talk"
    std::string why_not = "";    // why it cannot run here; empty where it can
    // Its time by arithmetic, and by what part of it the median may differ before a sweep's line
    // marks it. `within` 0: nobody predicts it; `predicted_ms` 0: nobody can here.
    double predicted_ms = 0, within = 0;
    int gpus = 1;  // that it runs on
    // Enqueued before each launch, and when the inputs have changed. Neither is timed. But copies
    // right before a launch give a GPU at its power limit a rest: a product was 6% faster then. So
    // what is needed once, as packing weights is, belongs into `renew`.
    std::function<void()> prepare = [] {}, renew = [] {};
    // Takes a sample in a way of its own, instead of: flush the cache, event, launch, event. It
    // launches the kernel, whose output is then verified as ever, and returns milliseconds.
    std::function<double()> sample = {};
    // Of an experiment: the range of its speed-up on an NVIDIA H100 or H200, for compare_gpus.sh.
    SpeedUp expected = {};
    // What a sweep's line shows instead of milliseconds: a function of them, and its unit.
    std::function<double(double ms)> figure = {};
    std::string unit = "";
    // Wrong on purpose: its own check is content if the usual one rejects the output.
    bool rejected = false;
};

/// Whether a median is what was predicted of the contender, or nothing was.
inline bool as_predicted(const Contender& contender, double median_ms) {
    const double off = std::abs(median_ms - contender.predicted_ms);
    return contender.predicted_ms == 0 || off <= contender.within * contender.predicted_ms;
}

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

/// A named range of the program, from here to the end of the scope, for profilers: it groups what
/// scripts/profile.sh and Nsight Systems show. Without a profiler it costs a few nanoseconds.
struct Range {
    explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
    ~Range() { nvtxRangePop(); }
    Range(const Range&) = delete;
};

/// One timed launch of so many is checked, at random. A check takes less power than a product, so a
/// GPU at its power limit runs the next launch faster: on an NVIDIA H200 a product of 4096 or 8192
/// was 2.5% faster where each launch was checked. And it leaves the output in the cache, which with
/// --hot should hold what the launch before left there.
inline constexpr int kCheckedOneIn = 4, kHotCheckedOneIn = 8;

/// Verifies contenders, and times those that are right. They take turns: within its turn a kernel
/// runs alone, since a GPU at its power limit would lend one kernel the headroom that another left.
class Measurement {
  public:
    /// `arrays`: inputs and outputs. `on_progress` is called now and then with what is being done.
    /// `largest`: see Session::largest.
    Measurement(
        const Options& options, const Gpu& gpu, const std::list<Array>& arrays,
        std::function<void(const std::string&)> on_progress,
        std::function<double(double)> largest = [](double value) { return value; })
        : options_(options),
          gpu_(gpu),
          inputs_(arrays),
          on_progress_(on_progress),
          largest_(largest) {}

    /// Calls `on_result`(i) once contender i has had its last turn, or failed.
    std::vector<Result> measure(const std::vector<Contender>& contenders,
                                std::function<void(size_t, const Result&)> on_result) {
        std::vector<Result> results(contenders.size());
        if (contenders.empty()) return results;
        for (size_t i = 0; i < contenders.size(); ++i) {
            on_progress_("verifying " + contenders[i].kernel);
            const Range phase("verify"), kernel(contenders[i].kernel);
            contenders[i].check.poison();
            contenders[i].prepare(), launch(contenders[i]);
            verify(contenders[i], results[i]);
        }
        const bool timed = !options_.once;
        const size_t last = contenders.size() - 1;
        const Buffer<char> flushed(timed && flushes() ? gpu_.flush_bytes() : 1);
        const int rounds = timed ? options_.rounds : 1;
        int turns = 0;
        for (int round = 0; round < rounds; ++round)
            for (size_t turn = 0; turn <= last; ++turn) {
                const size_t i = round % 2 == 0 ? turn : last - turn;
                if (timed && results[i].verdict.ok()) {
                    if (turns++ > 0) rest();
                    take_turn(contenders[i], results[i], flushed);
                }
                if (round == rounds - 1) on_result(i, results[i]);
            }
        return results;
    }

  private:
    bool flushes() const { return !options_.hot && !kSimulator; }

    static void launch(const Contender& contender) {
        contender.launch();
        check(cudaGetLastError(), "launch of " + contender.kernel);
    }

    /// What was found of the latest launch: nothing that was measured of a wrong kernel stays.
    void conclude(Result& result, Verdict verdict) const {
        verdict.elsewhere = largest_(!verdict.ok()) > 0 && verdict.ok();
        if (verdict.timed == 0) verdict.timed = result.ms.size();
        result.verdict = verdict;
        if (!verdict.ok()) result.ms.clear();
    }

    /// Verifies the latest launch: the inputs, and the whole output, which is compared with them
    /// and, by its hash, with the output that was verified before.
    void verify(const Contender& contender, Result& result) const {
        check(cudaDeviceSynchronize(), contender.kernel);
        Verdict verdict = inputs_.verify();
        if (verdict.changed == 0) {
            verdict = contender.check.verify();
            verdict.differs = contender.repeatable && verdict.ok() && result.verdict.ok() &&
                              verdict.output_hash != result.verdict.output_hash;
        }
        conclude(result, verdict);
    }

    /// Between turns the GPU idles for half a second: at its power limit a kernel would run slower
    /// after another kernel than it does alone.
    static void rest() {
        if (!kSimulator) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }

    /// Clocks rise, caches and pages settle.
    void warm_up(const Contender& contender) const {
        const Range phase("warm-up"), kernel(contender.kernel);
        const Stopwatch time;
        do {
            contender.prepare(), launch(contender);
            check(cudaDeviceSynchronize(), "warm-up");
        } while (largest_(time.ms()) < 200);
    }

    /// One turn: 0.2 s of warm-up; then at least 0.5 s and 30 samples, but at most 5 s, and never
    /// fewer than 3. The last sample is verified as the first launch was. All before it compute
    /// from other inputs, into an output that held other numbers each time. Each is checked, but
    /// the host reads what was found before the last: waiting would give the GPU a rest each time.
    void take_turn(const Contender& contender, Result& result, const Buffer<char>& flushed) {
        on_progress_("timing " + contender.kernel);
        inputs_.fill(1), contender.renew(), contender.check.renew();
        if (!kSimulator) warm_up(contender);

        const Range phase("timed");
        const Stopwatch time;
        const int one_in = kSimulator ? 1 : options_.hot ? kHotCheckedOneIn : kCheckedOneIn;
        bool last = false;
        for (int samples = 1; !last; ++samples) {
            const double ms = largest_(time.ms());
            const bool enough = ms >= 5000 || (ms >= 500 && samples >= 30);
            last = samples >= 3 && (kSimulator || enough);
            const bool checked =
                samples == 1 || random_bits(options_.seed, uint64_t(samples)) % one_in == 0;
            if (last) {
                const Verdict inputs = inputs_.verify();
                const Verdict so_far = inputs.changed > 0 ? inputs : contender.check.noted();
                if (largest_(so_far.faulty()) > 0) {
                    conclude(result, so_far);
                    break;
                }
                inputs_.fill(0), contender.renew(), contender.check.poison();
            } else if (checked) {
                contender.check.scribble(0x30 + samples % 12);  // bytes of numbers in every type
            }
            result.ms.push_back(sample(contender, flushed, samples));
            if (last)
                verify(contender, result);
            else if (checked)
                contender.check.note(result.ms.size(), samples == 1, contender.repeatable);
        }
        inputs_.fill(0);
    }

    /// The time of one launch, in ms, with nothing of it in the cache; or the contender's sample.
    double sample(const Contender& contender, const Buffer<char>& flushed, int number) const {
        contender.prepare();
        if (flushes() && !contender.sample) {
            // What a launch asked the cache to keep would outlast the memset. (GPUs before 8.0
            // keep nothing, and may refuse: that error is dropped.)
            cudaCtxResetPersistingL2Cache(), cudaGetLastError();
            DEMO_CHECK(cudaMemsetAsync(flushed.data(), number, flushed.bytes()));
        }
        const Range kernel(contender.kernel);  // around what is timed, not inside
        if (!contender.sample)
            return largest_(timer_.ms([&] { launch(contender); }, contender.kernel));
        const double ms = contender.sample();
        check(cudaGetLastError(), "launch of " + contender.kernel);
        check(cudaDeviceSynchronize(), contender.kernel);
        return largest_(ms);
    }

    const Options& options_;
    const Gpu& gpu_;
    Inputs inputs_;
    std::function<void(const std::string&)> on_progress_;
    std::function<double(double)> largest_;
    const EventTimer timer_;
};

}  // namespace demo
