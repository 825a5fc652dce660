// What the memory-bound demos share: the shape of their matrices, outputs that nothing may be
// written behind, how exact they must be, and the copy that they are measured against.
#pragma once

#include "choose.cuh"
#include "device.cuh"
#include "measure.cuh"
#include "verify.cuh"

namespace demo {

/// A matrix of any size from 1 x 1: N x N, or what --rows and --cols say.
struct MatrixShape {
    size_t rows, cols;
    bool square;

    /// The one that the command line asks for, with `size` in place of its N or R.
    static MatrixShape of(const Options& options, size_t size) {
        const bool square = options.rows == 0;
        return {size, square ? size : options.cols, square};
    }
    static MatrixShape of(const Options& options) { return of(options, options.size.value); }

    /// Elements; saturates.
    size_t size() const { return saturating_product(rows, cols); }

    std::string text() const {
        return (square ? "N = " + std::to_string(rows) + ": " : "") + "x[" + std::to_string(rows) +
               ", " + std::to_string(cols) + "]";
    }

    /// `operations` on each element, and `least_bytes` of traffic in all: bound by memory.
    Workload workload(const std::string& dtype, double operations, size_t least_bytes) const {
        const std::string name = std::to_string(rows) + "x" + std::to_string(cols);
        return {square ? "square" : name,
                rows,
                dtype,
                operations * double(rows) * double(cols),
                least_bytes,
                true};
    }
};

/// How far from `value` a result may lie: `terms` is the sum of the formula's terms, each taken
/// as positive, and `out` the format that it is stored in. Measured on an H200, right kernels stay
/// within a third of what is allowed beside the last rounding.
DEMO_HOST_DEVICE inline Expected expect_elementwise(double value, double terms, Format out) {
    return {value, 0x1p-19 * fabs(value) + 0x1p-23 * terms + out.roundoff * fabs(value) +
                       out.subnormal + 0x1p-149};
}

/// An output of M x N elements, followed by some that nobody may write. On the device.
template <class T>
class GuardedOutput {
  public:
    explicit GuardedOutput(const MatrixShape& shape, uint64_t seed)
        : shape_(shape), rows_(shape.rows, seed), buffer_(shape.size() + kGuard) {}

    T* data() const { return buffer_.data(); }
    const SampledRows& rows() const { return rows_; }

    /// How to verify it: expect(i, row, column) says what an element of the i-th sampled row is.
    /// Must not outlive the object.
    template <class Expect>
    Check check(Expect expect) const {
        return {data(), buffer_.bytes(), [this, expect] {
                    Verdict verdict =
                        verify_output(data(), shape_.rows, shape_.cols, rows_, expect);
                    std::vector<unsigned char> guard(kGuard * sizeof(T));
                    DEMO_CHECK(cudaMemcpy(guard.data(), data() + shape_.size(), guard.size(),
                                          cudaMemcpyDeviceToHost));
                    for (unsigned char byte : guard) verdict.written_behind += byte != 0xFF;
                    return verdict;
                }};
    }

    /// Device memory that it takes, what verifying takes included, in bytes; saturates.
    static size_t bytes(const MatrixShape& shape) {
        return saturating_sum(saturating_product(shape.size(), sizeof(T)), kGuard * sizeof(T),
                              saturating_product(SampledRows::count(shape.rows), sizeof(size_t)));
    }

  private:
    static constexpr size_t kGuard = 64 << 10;  // elements
    MatrixShape shape_;
    SampledRows rows_;
    Buffer<T> buffer_;
};

/// Copies bytes, 16 at a time, four times per thread.
__global__ void copy_vectorised(const signed char* from, signed char* to, size_t size) {
    constexpr int kAtOnce = 4;
    const size_t vectors = size / sizeof(uint4);
    const size_t first = size_t(blockIdx.x) * blockDim.x * kAtOnce + threadIdx.x;
    uint4 values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
        if (const size_t v = first + i * blockDim.x; v < vectors)
            values[i] = reinterpret_cast<const uint4*>(from)[v];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
        if (const size_t v = first + i * blockDim.x; v < vectors)
            reinterpret_cast<uint4*>(to)[v] = values[i];
    const size_t rest = vectors * sizeof(uint4) + first;
    if (blockIdx.x == 0 && rest < size) to[rest] = from[rest];
}

/// The byte that a copy must produce, exactly.
struct ExpectCopy {
    const signed char* from;
    DEMO_HOST_DEVICE Expected operator()(size_t, size_t, size_t column) const {
        return {double(from[column]), 0};
    }
};

/// A device copy, the yardstick of kernels that move data: a vectorised kernel or cudaMemcpyAsync,
/// whichever is faster here.
class Copy {
  public:
    /// `traffic` bytes in all: half of them are read, half written.
    Copy(const Options& options, size_t traffic, uint64_t seed)
        : from_(std::max<size_t>(traffic / 2, 1)), to_(from_.size()), row_(1, seed) {
        fill_uniform(from_, seed, 127);
        if (!options.once && !kCpuLane)
            by_kernel_ = quick_time([&] { copy(true); }) < quick_time([&] { copy(false); });
    }

    /// Must not outlive the object.
    Contender contender() const {
        const ExpectCopy expect{from_.data()};
        return {.kernel = "copy",
                .check = {to_.data(), to_.bytes(),
                          [this, expect] {
                              return verify_output(to_.data(), 1, to_.size(), row_, expect);
                          }},
                .launch = [this] { copy(by_kernel_); },
                .moved_bytes = 2 * from_.bytes(),
                .note = by_kernel_ ? "a vectorised kernel" : "cudaMemcpyAsync"};
    }

    /// Device memory that it takes, in bytes.
    static size_t bytes(size_t traffic) { return traffic; }

  private:
    void copy(bool by_kernel) const {
        if (by_kernel) {
            const size_t blocks = (from_.size() + 4 * 256 * 16 - 1) / (4 * 256 * 16);
            copy_vectorised<<<blocks, 256>>>(from_.data(), to_.data(), from_.size());
        } else {
            DEMO_CHECK(
                cudaMemcpyAsync(to_.data(), from_.data(), from_.bytes(), cudaMemcpyDeviceToDevice));
        }
    }

    Buffer<signed char> from_, to_;
    SampledRows row_;
    bool by_kernel_ = false;
};

}  // namespace demo
