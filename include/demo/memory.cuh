// What bonus_memory measures with: a chain through a working set, what loads of it must find, and
// contenders whose samples are scaled to a million loads.
#pragma once

#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data.cuh"

namespace demo {

constexpr uint32_t kLineBytes = 128;            // of a cache
constexpr uint32_t kPointers = kLineBytes / 8;  // in a line
constexpr double kScaledLoads = 1e6;            // of 4 bytes, in a sample
constexpr size_t kScaledBytes = size_t(4 * kScaledLoads);

/// The line that a chain leads to from line i, of 2^n: from any line to all others, and back to
/// it. Steps of this form do that if the factor is a multiple of 4 and one more, and the summand is
/// odd (Knuth, The Art of Computer Programming, volume 2, 3.2.1.2, theorem A).
DEMO_HOST_DEVICE inline uint32_t next_line(uint32_t i, uint32_t lines) {
    return (2654435761u * i + 12345u) % lines;
}

/// The first number in each line of chain[lines * kPointers] becomes the address of the next one's.
__global__ void link_lines(uint64_t* chain, uint32_t lines) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < lines)
        chain[size_t(i) * kPointers] = uint64_t(chain + size_t(next_line(i, lines)) * kPointers);
}

/// A chain through a working set of so many lines, and where a chase says how long it took.
class Chain {
  public:
    explicit Chain(uint32_t lines) : chain_(size_t(lines) * kPointers), cycles_(1) {
        if (!dry_run) link_lines<<<(lines + 255) / 256, 256>>>(chain_.data(), lines);
    }
    uint64_t* lines() const { return chain_.data(); }
    long long* cycles() const { return cycles_.data(); }

  private:
    const Buffer<uint64_t> chain_;
    const Buffer<long long> cycles_;
};

/// Where so many steps through the chain end, by arithmetic alone.
struct ExpectLine {
    const uint32_t* begin;
    uint32_t lines, steps;
    DEMO_HOST_DEVICE Expected operator()(size_t, size_t, size_t) const {
        uint32_t line = *begin % lines;
        for (uint32_t i = 0; i < steps; ++i) line = next_line(line, lines);
        return {double(line), 0};
    }
};

/// The sum, modulo 2^32, of what a thread loads of x[size], where the first number follows the
/// last: in each step `width` numbers, `apart` numbers after those of the step before. A thread
/// begins `thread` numbers after its neighbor, a block `block` numbers after the one before.
struct ExpectSum {
    const uint32_t* x;
    size_t size, block, thread, apart, steps, width, offset = 0;
    DEMO_HOST_DEVICE Expected operator()(size_t, size_t row, size_t column) const {
        const size_t first = row * block + column * thread + offset;
        uint32_t sum = 0;
        for (size_t step = 0; step < steps; ++step)
            for (size_t i = 0; i < width; ++i) sum += x[(first + step * apart + i) % size];
        return {double(sum), 0};
    }
};

/// A line of the table. No operation counts.
inline Workload million_loads(const Session& session,
                              std::vector<std::pair<std::string, std::string>> facts) {
    const std::string& show = session.options.choice("--show");
    return {.shape = show == "working_sets" ? "square" : show,
            .size = session.n(),
            .dtype = kTypeName<uint32_t>,
            .flops = 0,
            .least_bytes = kScaledBytes,
            .memory_bound = true,
            .text = "N = " + std::to_string(session.n()),
            .facts = std::move(facts)};
}

/// The nearest memory that holds so many bytes.
inline std::string level_of(const Gpu& gpu, size_t bytes) {
    return bytes <= gpu.shared_per_block ? "L1" : bytes <= gpu.l2_bytes ? "L2" : "DRAM";
}

/// Why no block can have this much of it in shared memory; empty where it can. (What a dry run
/// knows holds for every size.)
template <class Kernel>
std::string no_room_for(size_t bytes, Kernel kernel) {
    constexpr size_t kMost = 128 << 10;  // as much fits into L1, too
    return dry_run || bytes <= kMost ? try_shared_bytes(kernel, bytes) : "it is too large";
}

/// Those from `first` to `last`; at least one.
inline std::vector<size_t> powers_of_two(size_t first, size_t last) {
    last = std::bit_floor(last);
    std::vector<size_t> all;
    for (size_t N = std::min(first, last); N <= last; N *= 2) all.push_back(N);
    return all;
}

/// A contender whose launch makes so many loads. Caches hold what the launch before left there.
inline Contender bandwidth(const std::string& kernel, std::function<void()> launch, Check check,
                           double loads) {
    const auto timer = std::make_shared<EventTimer>();
    return {.kernel = kernel,
            .launch = launch,
            .check = check,
            .sample = [=] { return timer->ms(launch) * kScaledLoads / loads; },
            .figure = [](double ms) { return double(kScaledBytes) / ms / 1e6; },
            .unit = "GB/s"};
}

/// A contender whose kernel counts the cycles of so many loads, one after the other.
inline Contender latency(const std::string& kernel, std::function<void()> launch, Check check,
                         const Chain& chain, double loads, double ghz) {
    if (ghz == 0) ghz = 1;  // the simulator's clock64() counts nanoseconds
    auto sample = [=, from = chain.cycles()] {
        long long cycles = 0;
        launch();
        DEMO_CHECK(cudaMemcpy(&cycles, from, sizeof cycles, cudaMemcpyDeviceToHost));
        return double(cycles) / loads / ghz;  // nanoseconds of a load: milliseconds of a million
    };
    return {.kernel = kernel,
            .launch = launch,
            .check = check,
            .sample = sample,
            .figure = [=](double ms) { return ms * ghz; },
            .unit = "cycles"};
}

}  // namespace demo
