// A device copy: its kernel, and how it is verified.
#include <memory>

#include "demo/choose.cuh"
#include "demo/copy.cuh"
#include "ptx.cuh"

namespace demo {

constexpr int kCopyThreads = 256, kCopiesPerThread = 2;

/// Copies bytes, 16 at a time, twice per thread. (1 GiB on an H200: four times is 1% slower, once
/// 5%, and without the hint evict_last, which 7_gelu explains, 4%.)
__global__ void copy_vectorized(const signed char* from, signed char* to, size_t size) {
    const size_t vectors = size / sizeof(uint4);
    const size_t first = size_t(blockIdx.x) * kCopyThreads * kCopiesPerThread + threadIdx.x;
    uint4 values[kCopiesPerThread];
#pragma unroll
    for (int i = 0; i < kCopiesPerThread; ++i)
        if (const size_t v = first + i * kCopyThreads; v < vectors)
            ptx::ld_global_evict_last(values[i], reinterpret_cast<const uint4*>(from) + v);
#pragma unroll
    for (int i = 0; i < kCopiesPerThread; ++i)
        if (const size_t v = first + i * kCopyThreads; v < vectors)
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

class Copy {
  public:
    /// `traffic` bytes in all: half of them are read, half written.
    Copy(const Options& options, size_t traffic)
        : from_(std::max<size_t>(traffic / 2, 1)),
          to_(from_.size()),
          row_(CheckedRows::all(1, options.seed)) {
        fill_uniform(from_, options.seed, 127);
        if (!options.once && !kSimulator)
            by_kernel_ = quick_time([&] { copy(true); }) < quick_time([&] { copy(false); });
    }

    /// How to verify it: exactly. Must not outlive the object.
    Check check() const {
        return check_of(to_.data(), 1, to_.size(), row_, ExpectCopy{from_.data()}, INFINITY);
    }
    void launch() const { copy(by_kernel_); }
    size_t traffic() const { return saturating_product(2, from_.bytes()); }
    const char* how() const { return by_kernel_ ? "a vectorized kernel" : "cudaMemcpyAsync"; }

  private:
    void copy(bool by_kernel) const {
        if (by_kernel) {
            const size_t bytes = kCopyThreads * kCopiesPerThread * sizeof(uint4);  // of a block
            const size_t blocks = (from_.size() + bytes - 1) / bytes;
            copy_vectorized<<<blocks, kCopyThreads>>>(from_.data(), to_.data(), from_.size());
        } else {
            DEMO_CHECK(
                cudaMemcpyAsync(to_.data(), from_.data(), from_.bytes(), cudaMemcpyDeviceToDevice));
        }
    }

    Buffer<signed char> from_, to_;
    CheckedRows row_;
    bool by_kernel_ = false;
};

Contender copy_contender(const Session& session, const Workload& work, const std::string& only) {
    const bool runs = session.wants("copy") && (only.empty() || only == work.shape);
    const auto copy = std::make_shared<Copy>(session.options, runs ? work.least_bytes : 0);
    return {.kernel = "copy",
            .role = Role::kYardstick,
            .launch = [copy] { copy->launch(); },
            .check = copy->check(),
            .moved_bytes = copy->traffic(),
            .computes = false,
            .note = copy->how(),
            .only = only};
}

}  // namespace demo
