// How the time of a kernel comes about: take_turn().
#include <chrono>
#include <thread>

#include "demo/range.hpp"
#include "report.cuh"

namespace demo {

namespace {

/// The inputs of a comparison. Kernels may only read them: one that writes is found by verify(), or
/// on the simulator stopped.
class Inputs {
  public:
    /// Of the arrays, which must stay as long as this; they have been filled.
    explicit Inputs(const std::list<Array>& arrays) : arrays_(arrays) { protect(true); }
    ~Inputs() { protect(false); }
    Inputs(const Inputs&) = delete;

    /// Fills all of them: with data set 0, the one that --seed chose, or with another.
    void fill(uint64_t set) {
        set_ = set;
        protect(false);
        for (const Array& array : arrays_)
            if (!array.is_output) array.refill(fill_of(array));
        protect(true);
    }

    /// Which of them has changed since it was filled, as a verdict on nothing else. Fills it again.
    Verdict verify() const {
        Verdict verdict;
        for (const Array& array : arrays_) {
            if (array.is_output) continue;
            found_.reset();
            array.compare(fill_of(array), found_.data());
            const Verdict here = found_.get();
            if (here.changed == 0) continue;
            protect(false), array.refill(fill_of(array)), protect(true);
            const size_t columns = array.shape.back();
            verdict.changed = here.changed, verdict.input = array.name.c_str();
            verdict.row = here.first_changed / columns;
            verdict.column = here.first_changed % columns;
        }
        return verdict;
    }

  private:
    void protect([[maybe_unused]] bool on) const {
#ifdef SIMULATOR
        for (const Array& array : arrays_)
            if (!array.is_output && array.bytes > 0) simulator::set_read_only(array.data, on);
#endif
    }
    Fill fill_of(const Array& array) const {
        Fill fill = array.fill;
        fill.seed += set_ << 32;  // far from the seeds of other inputs
        return fill;
    }

    const std::list<Array>& arrays_;
    const DeviceVerdict found_;
    uint64_t set_ = 0;
};

/// One timed launch of so many is checked, at random. A check takes less power than a product, so a
/// GPU at its power limit runs the next launch faster: on an NVIDIA H200 a product of 4096 or 8192
/// was 2.5% faster where each launch was checked. And it leaves the output in the cache, which with
/// --hot should hold what the launch before left there.
constexpr int kCheckedOneIn = 4, kHotCheckedOneIn = 8;

class Measurement {
  public:
    Measurement(const Options& options, const Gpu& gpu, const std::list<Array>& arrays,
                const std::function<double(double)>& largest)
        : options_(options),
          largest_(largest),
          inputs_(arrays),
          flushes_(!options.hot && !options.once && !kSimulator),
          flushed_(flushes_ ? gpu.flush_bytes() : 1) {}

    /// One turn of a contender, which runs alone meanwhile.
    void take_turn(const Contender& contender, Result& result, bool is_first);

  private:
    static void launch(const Contender& contender) {
        contender.launch();
        check(cudaGetLastError(), "launch of " + contender.kernel);
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

    /// Empties the cache, by other numbers each time. First resets lines that a launch asked it to
    /// keep, which would outlast the memset. (GPUs before 8.0 may refuse: that error is dropped.)
    void flush(int number) const {
        cudaCtxResetPersistingL2Cache(), cudaGetLastError();
        DEMO_CHECK(cudaMemsetAsync(flushed_.data(), number, flushed_.bytes()));
    }

    static double own_sample(const Contender& contender) {
        const double ms = contender.sample();
        check(cudaGetLastError(), "launch of " + contender.kernel);
        check(cudaDeviceSynchronize(), contender.kernel);
        return ms;
    }

    /// Verifies the latest launch: the inputs have not changed; the output is right, its checked
    /// rows by the reference; and its hash is that of the output verified before.
    void verify(const Contender& contender, Result& result) const {
        check(cudaDeviceSynchronize(), contender.kernel);
        Verdict verdict = contender.check.verify();
        verdict.differs = contender.repeatable && verdict.ok() && result.verdict.ok() &&
                          verdict.output_hash != result.verdict.output_hash;
        const Verdict inputs = inputs_.verify();
        conclude(result, inputs.changed > 0 ? inputs : verdict);
    }

    /// Whether all checked launches were right.
    bool right_so_far(const Contender& contender, Result& result) const {
        const Verdict inputs = inputs_.verify();
        const Verdict found = inputs.changed > 0 ? inputs : contender.check.noted();
        const bool right = largest_(found.faulty()) == 0;
        if (right) return true;
        conclude(result, found);
        contender.check.verify();  // mends the guards, for the next kernel
        return false;
    }

    /// Keeps the verdict on the latest launch, and drops the samples of a wrong kernel.
    void conclude(Result& result, Verdict verdict) const {
        verdict.elsewhere = largest_(!verdict.ok()) > 0 && verdict.ok();
        if (verdict.timed == 0) verdict.timed = result.ms.size();
        result.verdict = verdict;
        if (!verdict.ok()) result.ms.clear();
    }

    const Options& options_;
    const std::function<double(double)> largest_;
    Inputs inputs_;
    const bool flushes_;
    const Buffer<char> flushed_;
    const EventTimer timer_;
};

/// A kernel's time is the median of its samples: of 30 or more in at least 0.5 s; after 5 s three
/// are enough. All but the last compute from other inputs than the verified launch. Some are
/// checked: the output holds other numbers before them, and the GPU notes what it finds. The host
/// reads that only before the last sample: a second wait for each would give the GPU a rest.
void Measurement::take_turn(const Contender& contender, Result& result, bool is_first) {
    if (is_first) {  // verify a launch into an output of NaNs
        show_progress("verifying " + contender.kernel);
        const Range phase("verify"), kernel(contender.kernel);
        contender.check.poison();
        contender.prepare(), launch(contender);
        verify(contender, result);
    }
    if (options_.once || !result.verdict.ok()) return;

    show_progress("timing " + contender.kernel);
    inputs_.fill(1), contender.renew(), contender.check.renew();
    if (!kSimulator) warm_up(contender);

    const Range phase("timed");
    const Stopwatch time;
    const int one_in = kSimulator ? 1 : options_.hot ? kHotCheckedOneIn : kCheckedOneIn;
    bool last = false;
    for (int number = 1; !last; ++number) {
        const double spent = largest_(time.ms());
        const bool enough = spent >= 5000 || (spent >= 500 && number >= 30);
        last = number >= 3 && (kSimulator || enough);
        const bool checked =
            number == 1 || random_bits(options_.seed, uint64_t(number)) % one_in == 0;
        if (last) {  // is verified as the first launch was
            if (!right_so_far(contender, result)) break;
            inputs_.fill(0), contender.renew(), contender.check.poison();
        } else if (checked) {
            contender.check.scribble(0x30 + number % 12);  // bytes of numbers in every type
        }
        contender.prepare();
        if (flushes_ && !contender.sample) flush(number);
        double ms = 0;
        {
            const Range kernel(contender.kernel);  // around what is timed, not inside
            if (contender.sample)
                ms = own_sample(contender);
            else  // an event, the launch, an event
                ms = timer_.ms([&] { launch(contender); }, contender.kernel);
        }
        result.ms.push_back(largest_(ms));
        if (last)
            verify(contender, result);
        else if (checked)
            contender.check.note(result.ms.size(), number == 1, contender.repeatable);
    }
    inputs_.fill(0);
}

}  // namespace

std::vector<Result> take_turns(const Options& options, const Gpu& gpu,
                               const std::list<Array>& arrays,
                               const std::vector<Contender>& contenders,
                               const std::function<double(double)>& largest,
                               const std::function<void(size_t, const Result&)>& on_result) {
    std::vector<Result> results(contenders.size());
    if (contenders.empty()) return results;
    Measurement measurement(options, gpu, arrays, largest);
    const size_t last = contenders.size() - 1;
    const int rounds = options.once ? 1 : options.rounds;
    for (int round = 0; round < rounds; ++round)
        for (size_t turn = 0; turn <= last; ++turn) {
            const size_t i = round % 2 == 0 ? turn : last - turn;
            // The GPU idles for half a second: at its power limit a kernel would run slower after
            // another kernel than it does alone.
            if (round + turn > 0 && !options.once && !kSimulator)
                std::this_thread::sleep_for(std::chrono::milliseconds(500));
            measurement.take_turn(contenders[i], results[i], round == 0);
            if (round == rounds - 1) on_result(i, results[i]);
        }
    return results;
}

}  // namespace demo
