// Verifying on the GPU: outputs are compared with what an fp64 reference says of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
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
    size_t row = 0, column = 0;                  // where the first element is that is not right
    double got = 0;                              // what the first wrong one is
    Expected expected = {0, 0};                  // and what it must be
    const char* input = "";                      // the one that changed
    const char* output = "";                     // of several, the one that is wrong
    size_t timed = 0;                            // which of the timed launches it was; 0: none

    bool ok() const {
        return checked > 0 && unwritten + huge + wrong + written_outside + changed == 0;
    }
};

/// A verdict on the device, for kernels to add to.
class DeviceVerdict : public Buffer<Verdict> {
  public:
    DeviceVerdict() : Buffer<Verdict>(1) {}
    void reset() const {
        const Verdict none;
        DEMO_CHECK(cudaMemcpy(data(), &none, sizeof none, cudaMemcpyHostToDevice));
    }
    Verdict get() const {
        Verdict verdict;
        DEMO_CHECK(cudaMemcpy(&verdict, data(), sizeof verdict, cudaMemcpyDeviceToHost));
        return verdict;
    }
};

/// An output to be verified. A launch must write all of it, whatever it holds before.
struct Check {
    void* output = nullptr;
    size_t bytes = 0;
    std::function<Verdict()> verify = {};  // of the whole output
    // A few rows, where the inputs are others than those that `verify` knows: renew() is called
    // when they have changed, before spot().
    std::function<void()> renew = {};
    std::function<Verdict()> spot = {};
    std::shared_ptr<const Check> before = {};  // of an earlier output: see in_turn()

    int poison_byte = 0xFF;  // many of them are a NaN

    /// Overwrites the output with NaNs, or integers with numbers that are too large.
    void poison() const { scribble(poison_byte); }
    /// Overwrites it with finite numbers: what is skipped where there is no NaN then shows.
    void scribble(int byte) const {
        DEMO_CHECK(cudaMemsetAsync(output, byte, bytes));
        if (before) before->scribble(byte);
    }
};

/// For a launch that also leaves `first`, which is called `name`, on its way to `last`: verifies
/// both. What `last.renew` computes must do for both.
inline Check in_turn(const Check& first, const char* name, Check last) {
    auto both = [=](std::function<Verdict()> one, std::function<Verdict()> other) {
        return [=] {
            Verdict found = one();
            found.output = name;
            if (!found.ok()) return found;
            Verdict verdict = other();
            verdict.checked += found.checked;
            verdict.error_of_bound = std::max(verdict.error_of_bound, found.error_of_bound);
            verdict.output_hash += 3 * found.output_hash;
            return verdict;
        };
    };
    last.verify = both(first.verify, last.verify), last.spot = both(first.spot, last.spot);
    last.before = std::make_shared<const Check>(first);
    return last;
}

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
/// and all columns j.
template <class T, class Expect>
__global__ void compare_rows(const T* output, const size_t* rows, size_t first, size_t count,
                             size_t columns, Expect expect, Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t e = size_t(blockIdx.x) * blockDim.x + threadIdx.x; e < count * columns;
         e += stride) {
        const size_t i = first + e / columns, row = rows[i], column = e % columns;
        const double got = to_double(output[row * columns + column]);
        const Expected expected = expect(i, row, column);
        const float error = float(fabs(got - expected.value) / expected.tolerance);
        if (error <= 3e38f) atomicMax(&verdict->error_of_bound, __float_as_uint(error));
        if (!is_wrong(got, expected)) continue;
        atomicAdd(&verdict->wrong, 1ull);
        atomicMin(&verdict->first_wrong, (unsigned long long)(e));
    }
}

/// Fills in what the first wrong element is. One thread.
template <class T, class Expect>
__global__ void explain_first_wrong(const T* output, const size_t* rows, size_t first,
                                    size_t columns, Expect expect, Verdict* verdict) {
    const size_t i = first + verdict->first_wrong / columns;
    verdict->row = rows[i];
    verdict->column = verdict->first_wrong % columns;
    verdict->got = to_double(output[verdict->row * columns + verdict->column]);
    verdict->expected = expect(i, verdict->row, verdict->column);
}

/// The rows of an output that are compared with what they must be, as a list on the device: first
/// `compared` of them for Check::verify(), then `kSpots` at random for Check::spot().
class CheckedRows : public Buffer<size_t> {
  public:
    const size_t compared;
    static constexpr size_t kSpots = 4;

    /// All M, where the reference costs no more than the output.
    static CheckedRows all(size_t M, uint64_t seed) { return {M, M, seed}; }
    /// Those of sampled_rows().
    static CheckedRows sampled(size_t M, uint64_t seed) { return {M, sample_size(M), seed}; }

    /// sampled_rows(M, seed).size(), for huge M too.
    static size_t sample_size(size_t M) {
        if (M <= 2048) return M;
        const size_t before_last = (M - 1) / 32;  // strips of 32 rows
        return 32 + (before_last - 1) + (M - 32 * before_last);
    }

    /// `compared`: M, or sample_size(M).
    CheckedRows(size_t M, size_t compared, uint64_t seed)
        : Buffer<size_t>(saturating_sum(compared, kSpots)), compared(compared) {
        if (dry_run) return;
        std::vector<size_t> list(compared);
        std::iota(list.begin(), list.end(), 0);
        if (compared < M) list = sampled_rows(M, seed);
        for (size_t i = 0; i < kSpots; ++i) list.push_back(random_bits(seed, i) % M);
        DEMO_CHECK(cudaMemcpy(data(), list.data(), bytes(), cudaMemcpyHostToDevice));
    }
};

/// How to verify output[M, columns]: no element is NaN or beyond `largest`, and those of the rows
/// are what expect(i, row, column) says, where i counts `rows`. What expect() reads must have been
/// computed for the rows that are compared; `renew` computes it for the spots. The check must not
/// outlive `rows`.
template <class T, class Expect>
Check check_of(
    T* output, size_t M, size_t columns, const CheckedRows& rows, Expect expect, double largest,
    std::function<void()> renew = [] {}) {
    const auto found = std::make_shared<DeviceVerdict>();
    auto compare = [=, &rows](bool spot) {
        const size_t first = spot ? rows.compared : 0, count = spot ? rows.kSpots : rows.compared;
        const size_t size = M * columns;
        found->reset();
        if (!spot)
            scan_output<<<blocks_to_visit(size), 256>>>(output, size, largest, found->data());
        compare_rows<<<blocks_to_visit(count * columns), 256>>>(output, rows.data(), first, count,
                                                                columns, expect, found->data());
        Verdict verdict = found->get();
        if (verdict.wrong > 0) {
            explain_first_wrong<<<1, 1>>>(output, rows.data(), first, columns, expect,
                                          found->data());
            verdict = found->get();
        } else if (verdict.unwritten + verdict.huge > 0) {
            const auto element = std::min(verdict.first_unwritten, verdict.first_huge);
            verdict.row = element / columns, verdict.column = element % columns;
        }
        verdict.checked = count * columns;
        return verdict;
    };
    return {.output = output,
            .bytes = saturating_product(M, columns, sizeof(T)),
            .verify = [=] { return compare(false); },
            .renew = renew,
            .spot = [=] { return compare(true); },
            .poison_byte = std::is_integral_v<T> && sizeof(T) > 1 ? 0x7F : 0xFF};
}

}  // namespace demo
