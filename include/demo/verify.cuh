// Verifying on the GPU: an fp64 reference for sampled rows, and the comparison with it.
#pragma once

#include <functional>
#include <vector>

#include "device.cuh"
#include "error_bounds.hpp"

namespace demo {

template <class T>
inline constexpr Format kFormat = std::is_same_v<T, __half>          ? kFp16
                                  : std::is_same_v<T, __nv_bfloat16> ? kBf16
                                                                     : kFp32;

/// What a comparison found.
struct Verdict {
    unsigned long long unwritten = 0;            // elements that are NaN: of all
    unsigned long long wrong = 0;                // elements off by more than rounding: of `checked`
    unsigned long long written_behind = 0;       // bytes after the output that changed
    unsigned long long checked = 0;              // elements compared with the reference
    unsigned long long first_wrong = ~0ull;      // index among the checked
    unsigned long long first_unwritten = ~0ull;  // index in the output
    unsigned int error_of_bound = 0;             // largest error / tolerance: a float's bits
    size_t row = 0, column = 0;                  // where the first wrong element is
    double got = 0;                              // what it is
    Expected expected = {0, 0};                  // and what it must be

    bool ok() const { return checked > 0 && wrong + unwritten + written_behind == 0; }
};

/// An output to be verified: poisoned before a launch, checked after it.
struct Check {
    void* output = nullptr;
    size_t bytes = 0;
    std::function<Verdict()> verify = {};

    /// Overwrites the output with NaN bytes.
    void poison() const { DEMO_CHECK(cudaMemsetAsync(output, 0xFF, bytes)); }
};

/// Counts the NaNs of output[size].
template <class T>
__global__ void count_unwritten(const T* output, size_t size, Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        const float value = float(output[i]);
        if (value == value) continue;
        atomicAdd(&verdict->unwritten, 1ull);
        atomicMin(&verdict->first_unwritten, (unsigned long long)(i));
    }
}

/// Compares output[rows[i], j] with expect(i, rows[i], j) for all i < samples and all columns j.
template <class T, class Expect>
__global__ void compare_rows(const T* output, const size_t* rows, size_t samples, size_t columns,
                             Expect expect, Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t e = size_t(blockIdx.x) * blockDim.x + threadIdx.x; e < samples * columns;
         e += stride) {
        const size_t row = rows[e / columns], column = e % columns;
        const double got = double(float(output[row * columns + column]));
        const Expected expected = expect(e / columns, row, column);
        const float error = float(fabs(got - expected.value) / expected.tolerance);
        if (error <= 3e38f) atomicMax(&verdict->error_of_bound, __float_as_uint(error));
        if (!is_wrong(got, expected)) continue;
        atomicAdd(&verdict->wrong, 1ull);
        atomicMin(&verdict->first_wrong, (unsigned long long)(e));
    }
}

/// Fills in what the first wrong element is. One thread.
template <class T, class Expect>
__global__ void explain_first_wrong(const T* output, const size_t* rows, size_t columns,
                                    Expect expect, Verdict* verdict) {
    const size_t i = verdict->first_wrong / columns;
    verdict->row = rows[i];
    verdict->column = verdict->first_wrong % columns;
    verdict->got = double(float(output[verdict->row * columns + verdict->column]));
    verdict->expected = expect(i, verdict->row, verdict->column);
}

/// Verifies output[M, columns]: every element is written, and every element of the sampled rows is
/// what expect(i, row, column) says (i counts the sampled rows).
template <class T, class Expect>
Verdict verify_output(const T* output, size_t M, size_t columns, const Buffer<size_t>& rows,
                      Expect expect) {
    Buffer<Verdict> result(1);
    Verdict verdict;
    DEMO_CHECK(cudaMemcpy(result.data(), &verdict, sizeof verdict, cudaMemcpyHostToDevice));
    count_unwritten<<<1024, 256>>>(output, M * columns, result.data());
    compare_rows<<<1024, 256>>>(output, rows.data(), rows.size(), columns, expect, result.data());
    DEMO_CHECK(cudaMemcpy(&verdict, result.data(), sizeof verdict, cudaMemcpyDeviceToHost));
    if (verdict.wrong > 0) {
        explain_first_wrong<<<1, 1>>>(output, rows.data(), columns, expect, result.data());
        DEMO_CHECK(cudaMemcpy(&verdict, result.data(), sizeof verdict, cudaMemcpyDeviceToHost));
    } else if (verdict.unwritten > 0) {
        verdict.row = verdict.first_unwritten / columns;
        verdict.column = verdict.first_unwritten % columns;
    }
    verdict.checked = rows.size() * columns;
    return verdict;
}

/// The sampled rows of an output with M rows, on the device.
struct SampledRows : Buffer<size_t> {
    SampledRows(size_t M, uint64_t seed) : Buffer<size_t>(count(M)) {
        if (!dry_run) upload(sampled_rows(M, seed));
    }
    explicit SampledRows(const std::vector<size_t>& rows) : Buffer<size_t>(rows.size()) {
        upload(rows);
    }
    /// How many rows are sampled of M: sampled_rows(M, seed).size(), for huge M too.
    static size_t count(size_t M) {
        if (M <= 2048) return M;
        const size_t before_last = (M - 1) / 32;  // strips of 32 rows
        return 32 + (before_last - 1) + (M - 32 * before_last);
    }

  private:
    void upload(const std::vector<size_t>& rows) {
        DEMO_CHECK(cudaMemcpy(data(), rows.data(), bytes(), cudaMemcpyHostToDevice));
    }
};

}  // namespace demo
