// Verifying on the GPU: outputs are compared with what an fp64 reference says of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "device.cuh"
#include "error_bounds.hpp"

namespace demo {

template <class T>
inline constexpr Format kFormat = std::is_integral_v<T>              ? kInteger
                                  : std::is_same_v<T, double>        ? kFp64
                                  : std::is_same_v<T, __half>        ? kFp16
                                  : std::is_same_v<T, __nv_bfloat16> ? kBf16
                                                                     : kFp32;

/// What was found of a launch's output.
struct Verdict {
    unsigned long long unwritten = 0;            // elements that are NaN: of all
    unsigned long long huge = 0;                 // elements too large to be right: of all
    unsigned long long wrong = 0;                // elements off by more than rounding: of `checked`
    unsigned long long checked = 0;              // elements compared with the reference
    unsigned long long written_outside = 0;      // bytes around the output that changed
    unsigned long long changed = 0;              // elements of an input that changed
    unsigned long long first_wrong = ~0ull;      // index among the checked
    unsigned long long first_unwritten = ~0ull;  // index in the output
    unsigned long long first_huge = ~0ull;       // likewise
    unsigned long long first_changed = ~0ull;    // index in the input
    unsigned int error_of_bound = 0;             // largest error / tolerance: a float's bits
    unsigned long long output_hash = 0;          // of all bits of the output and their places
    unsigned long long first_hash = 0;           // of the first timed launch
    bool differs = false;                        // from the output of the same launch before
    size_t row = 0, column = 0;                  // where the first element is that is not right
    double got = 0;                              // what the first wrong one is
    Expected expected = {0, 0};                  // and what it must be
    const char* input = "";                      // the one that changed
    const char* output = "";                     // of several, the one that is wrong
    size_t timed = 0;                            // the timed launch at which it was found; 0: none
    bool elsewhere = false;                      // something is wrong with another process's

    DEMO_HOST_DEVICE bool faulty() const {
        return differs || unwritten + huge + wrong + written_outside + changed > 0;
    }
    bool ok() const { return checked > 0 && !elsewhere && !faulty(); }
};

/// A verdict on the device, for kernels to add to.
class DeviceVerdict : public Buffer<Verdict> {
  public:
    DeviceVerdict() : Buffer<Verdict>(1) {}
    void reset() const;
    Verdict get() const;
};

/// An output to be verified. A launch must write all of it, whatever it holds before.
struct Check {
    void* output = nullptr;
    size_t bytes = 0;
    std::function<Verdict()> verify = {};  // of the whole output
    // For timed launches, whose inputs are not those that `verify` knows. renew() is called when
    // the inputs have changed. note() enqueues a check of a launch, without waiting: it compares a
    // few rows of the `first` one with the reference, and the hashes of later ones with the first
    // one's. If each rounds differently, it compares those rows of each. (It still hashes them, for
    // the same work between launches.) noted() returns the first fault.
    std::function<void()> renew = {};
    std::function<void(size_t launch, bool first, bool repeatable)> note = {};
    std::function<Verdict()> noted = {};
    std::function<void(int)> others = {};  // scribbles over the launch's other outputs

    int poison_byte = 0xFF;  // many of them are a NaN

    /// Overwrites the output with NaNs, or integers with numbers that are too large.
    void poison() const { scribble(poison_byte); }
    /// Overwrites it with finite numbers: shows kernels that only write where there is a NaN.
    void scribble(int byte) const;
};

/// Verifies both outputs of a launch: `first`, which is called `name`, and `last`. `last.renew`
/// must compute the references of both.
Check in_turn(const Check& first, const char* name, Check last);

/// Blocks of 256 threads for kernels that visit `size` elements in strides of the whole grid.
inline unsigned int blocks_to_visit(size_t size) {
    return unsigned(std::clamp<size_t>((size + 255) / 256, 1, 1024));
}

/// An element as the number that it is.
template <class T>
__device__ double to_double(T element) {
    if constexpr (std::is_same_v<T, double> || std::is_integral_v<T>)
        return double(element);
    else
        return double(float(element));
}

/// Counts the elements of output[size] that are NaN, or larger than `largest`, and adds up a hash
/// of each element's place and bits: a sum, so that its order does not matter.
template <class T>
__global__ void scan_output(const T* output, size_t size, double largest, Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    unsigned long long hash = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        const float value = float(output[i]);
        uint64_t bits = __float_as_uint(value);
        if constexpr (std::is_same_v<T, double> || (std::is_integral_v<T> && sizeof(T) == 4))
            bits = __double_as_longlong(to_double(output[i]));  // more than fp32 holds
        hash += random_bits(bits, i);
        if (fabsf(value) <= largest) continue;
        const bool is_nan = value != value;
        atomicAdd(is_nan ? &verdict->unwritten : &verdict->huge, 1ull);
        atomicMin(is_nan ? &verdict->first_unwritten : &verdict->first_huge,
                  (unsigned long long)(i));
    }
    atomicAdd(&verdict->output_hash, hash);
}

/// Compares output[rows[i], j] with expect(i, rows[i], j) for i from `first` to first + count - 1
/// and all columns j, unless an earlier launch was wrong.
template <class T, class Expect>
__global__ void compare_rows(const T* output, const size_t* rows, size_t first, size_t count,
                             size_t columns, Expect expect, Verdict* verdict) {
    if (verdict->timed > 0) return;
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t e = size_t(blockIdx.x) * blockDim.x + threadIdx.x; e < count * columns;
         e += stride) {
        const size_t i = first + e / columns, row = rows[i], column = e % columns;
        const double got = to_double(output[row * columns + column]);
        const Expected expected = expect(i, row, column);
        const float error = float(fabs(got - expected.value) / expected.tolerance);
        if (error <= 3e38f) atomicMax(&verdict->error_of_bound, __float_as_uint(error));
        if (!is_wrong(got, expected)) continue;
#ifdef SIMULATOR
        simulator::found_wrong(&output[row * columns + column]);
#endif
        atomicAdd(&verdict->wrong, 1ull);
        atomicMin(&verdict->first_wrong, (unsigned long long)(e));
    }
}

/// Fills in how many elements were compared, and what the first wrong one is. One thread.
template <class T, class Expect>
__global__ void explain_first_wrong(const T* output, const size_t* rows, size_t first, size_t count,
                                    size_t columns, Expect expect, Verdict* verdict) {
    verdict->checked = count * columns;
    if (verdict->wrong == 0 || verdict->timed > 0) return;
    const size_t i = first + verdict->first_wrong / columns;
    verdict->row = rows[i];
    verdict->column = verdict->first_wrong % columns;
    verdict->got = to_double(output[verdict->row * columns + verdict->column]);
    verdict->expected = expect(i, verdict->row, verdict->column);
}

/// The rows of an output that are compared with the reference, as a list on the device: first
/// `compared` of them for Check::verify(), then `kSpots` at random for Check::note().
class CheckedRows : public Buffer<size_t> {
  public:
    const size_t compared;
    static constexpr size_t kSpots = 4;

    /// All M, where the reference costs no more than the output.
    static CheckedRows all(size_t M, uint64_t seed) { return {M, M, seed}; }
    /// All M if that takes a GPU at most a second, and the reference at most 256 MiB; else
    /// sampled_rows(). A row has `elements`, and the reference adds up `terms` for them.
    static CheckedRows some(size_t M, size_t elements, size_t terms, uint64_t seed);

    /// sampled_rows(M, seed).size(), for huge M too.
    static size_t sample_size(size_t M);

    /// `compared`: M, or sample_size(M).
    CheckedRows(size_t M, size_t compared, uint64_t seed);
};

/// Adds a hash of output[bytes] to the verdict, and notes what was found of this launch.
void note_hash(const void* output, size_t bytes, size_t launch, bool first, bool repeatable,
               Verdict* verdict);

/// How to verify output[M, columns]: no element is NaN or beyond `largest`, and in the i-th of
/// `rows` expect(i, row, column) says what an element is. Its data must be there already for the
/// compared rows; `renew` computes it for the spots. The check must not outlive `rows`.
template <class T, class Expect>
Check check_of(
    T* output, size_t M, size_t columns, const CheckedRows& rows, Expect expect, double largest,
    std::function<void()> renew = [] {}) {
    const size_t size = saturating_product(M, columns), bytes = saturating_product(size, sizeof(T));
    const auto found = std::make_shared<const DeviceVerdict>();
    auto compare = [=, &rows](size_t first, size_t count) {
        compare_rows<<<blocks_to_visit(count * columns), 256>>>(output, rows.data(), first, count,
                                                                columns, expect, found->data());
        explain_first_wrong<<<1, 1>>>(output, rows.data(), first, count, columns, expect,
                                      found->data());
    };
    auto verify = [=, &rows] {
        found->reset();
        scan_output<<<blocks_to_visit(size), 256>>>(output, size, largest, found->data());
        compare(0, rows.compared);
        Verdict verdict = found->get();
        if (verdict.wrong == 0 && verdict.unwritten + verdict.huge > 0) {
            const auto element = std::min(verdict.first_unwritten, verdict.first_huge);
            verdict.row = element / columns, verdict.column = element % columns;
        }
        return verdict;
    };
    auto note = [=, &rows](size_t launch, bool first, bool repeatable) {
        if (first) found->reset();
        if (first || !repeatable) compare(rows.compared, rows.kSpots);
        note_hash(output, bytes, launch, first, repeatable, found->data());
    };
    return {.output = output,
            .bytes = bytes,
            .verify = verify,
            .renew = renew,
            .note = note,
            .noted = [=] { return found->get(); },
            .poison_byte = std::is_integral_v<T> && sizeof(T) > 1 ? 0x7F : 0xFF};
}

}  // namespace demo
