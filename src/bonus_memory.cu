// Bonus: what a load costs: latency, bandwidth, and what becomes of it if a warp's loads lie apart.
//
//     ./bonus_memory                   working sets of 16 KiB to 1 GiB. N is the largest, in KiB
//     ./bonus_memory --show strides    a warp's loads N = 1 to 32 numbers apart
//     ./bonus_memory --show offsets    next to each other, N numbers after a multiple of 128 bytes
//
// chase    latency. One thread follows pointers through all lines of 128 bytes, in an order that
//          looks random. A load brings the address of the next one, so no two are under way:
//
//               line 0    line 1    line 2    line 3    line 4
//               *---------------------------->*    ...
//                         *<------------------
//
// read     bandwidth. Each multiprocessor (SM) reads the whole working set, again and again, from
//          a place of its own on. So a cache helps only as far as it holds all of it.
// strided  bandwidth, counting only bytes that were asked for. Memory delivers sectors of 32 bytes:
//          from stride 8 on 4 bytes of each are used.
//
// A sample is scaled to a million loads of 4 bytes, so a chase's milliseconds (--csv) are also the
// nanoseconds of one load. docs/experiments/memory.md says what to see.
#include <array>
#include <bit>

#include "demo.cuh"
#include "demo/experiment.cuh"
#include "demo/launch.cuh"

namespace memory {

using demo::Buffer, demo::Expected, demo::kSimulator;

constexpr uint32_t kLineBytes = 128;            // of a cache
constexpr uint32_t kPointers = kLineBytes / 8;  // in a line
constexpr double kScaledLoads = 1e6;            // of 4 bytes, in a sample
constexpr size_t kScaledBytes = size_t(4 * kScaledLoads);

constexpr int kThreads = kSimulator ? 64 : 1024;  // of a block; an SM runs one
constexpr int kReads = kSimulator ? 16 : 8192;    // loads of a thread: 0.5 ms from L1
constexpr int kFirst = kSimulator ? 64 : 2048;    // loads of a chase that fill L1: 256 KiB
constexpr int kLoads = kSimulator ? 256 : 4096;   // loads that it times
constexpr size_t kStridedBytes = kSimulator ? 1 << 18 : 1 << 30;  // far more than L2 holds

// --- What is loaded, and what must come of it ---------------------------------------------------

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
        if (!demo::dry_run) link_lines<<<(lines + 255) / 256, 256>>>(chain_.data(), lines);
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

// --- Latency ------------------------------------------------------------------------------------

/// One thread. L1 is empty when a kernel starts, so it walks some steps before it counts cycles.
__global__ void chase(const uint64_t* chain, uint32_t lines, const uint32_t* begin, uint32_t* last,
                      long long* cycles) {
    const uint64_t* at = chain + size_t(*begin % lines) * kPointers;
    // __ldca: as any load, but known to be from global memory, wherever the address comes from
    auto follow = [&](int steps) {
#pragma unroll 16
        for (int i = 0; i < steps; ++i) at = reinterpret_cast<const uint64_t*>(__ldca(at));
    };
    follow(kFirst);
    const long long before = clock64();
    follow(kLoads);
    *cycles = clock64() - before;
    *last = uint32_t(size_t(at - chain) / kPointers);
}

/// The same in shared memory, by offsets in bytes. All threads make the chain, one follows it.
__global__ void chase_shared(uint32_t lines, const uint32_t* begin, uint32_t* last,
                             long long* cycles) {
    extern __shared__ char chain[];
    auto next = [&](uint32_t at) -> uint32_t& { return reinterpret_cast<uint32_t&>(chain[at]); };
    for (uint32_t i = threadIdx.x; i < lines; i += blockDim.x)
        next(i * kLineBytes) = next_line(i, lines) * kLineBytes;
    __syncthreads();  // the chain is complete
    if (threadIdx.x > 0) return;
    uint32_t at = *begin % lines * kLineBytes;
    const long long before = clock64();
#pragma unroll 16
    for (int i = 0; i < kLoads; ++i) at = next(at);
    *cycles = clock64() - before;
    *last = at / kLineBytes;
}

// --- Bandwidth ----------------------------------------------------------------------------------

/// The sum of kReads vectors, kThreads apart from `at` on; after the last of 2^n comes the first.
__device__ uint32_t add_up(const uint4* x, uint32_t vectors, uint32_t at) {
    uint32_t sum = 0;
#pragma unroll 8  // so many are under way
    for (int step = 0; step < kReads; ++step) {
        const uint4 v = x[(at + step * kThreads) & (vectors - 1)];
        sum += v.x + v.y + v.z + v.w;
    }
    return sum;
}

/// `apart`: by how many vectors a block begins after the one before. sums: [blocks, kThreads].
__global__ void __launch_bounds__(kThreads)
    read(const uint4* x, uint32_t vectors, uint32_t apart, uint32_t* sums) {
    const uint32_t first = blockIdx.x * apart + threadIdx.x;
    sums[blockIdx.x * kThreads + threadIdx.x] = add_up(x, vectors, first);
}

__global__ void __launch_bounds__(kThreads)
    read_shared(const uint32_t* x, uint32_t vectors, uint32_t* sums) {
    extern __shared__ uint4 copy[];
    for (uint32_t i = threadIdx.x; i < vectors; i += kThreads)
        copy[i] = reinterpret_cast<const uint4*>(x)[i];
    __syncthreads();  // the copy is complete
    sums[blockIdx.x * kThreads + threadIdx.x] = add_up(copy, vectors, blockIdx.x + threadIdx.x);
}

/// In each step all threads of the grid load a number each, kStride apart.
template <int kStride>
__global__ void __launch_bounds__(kThreads)
    strided(const uint32_t* x, uint32_t* sums, int steps, int offset) {
    const size_t thread = size_t(blockIdx.x) * kThreads + threadIdx.x;
    const size_t apart = size_t(gridDim.x) * kThreads * kStride;
    const uint32_t* const first = x + thread * kStride + offset;
    uint32_t sum = 0;
#pragma unroll 16
    for (int step = 0; step < steps; ++step) sum += first[step * apart];
    sums[thread] = sum;
}

// --- Ways to measure ----------------------------------------------------------------------------

/// A contender whose launch makes so many loads. Caches hold what the launch before left there.
static demo::Contender bandwidth(const std::string& kernel, std::function<void()> launch,
                                 demo::Check check, double loads) {
    const auto timer = std::make_shared<demo::EventTimer>();
    return {.kernel = kernel, .launch = launch, .check = check, .sample = [=] {
                return timer->ms(launch) * kScaledLoads / loads;
            }};
}

/// A contender whose kernel counts the cycles of so many loads, one after the other.
static demo::Contender latency(const std::string& kernel, std::function<void()> launch,
                               demo::Check check, const Chain& chain, double loads, double ghz) {
    if (ghz == 0) ghz = 1;  // the simulator's clock64() counts nanoseconds
    auto sample = [=, from = chain.cycles()] {
        long long cycles = 0;
        launch();
        DEMO_CHECK(cudaMemcpy(&cycles, from, sizeof cycles, cudaMemcpyDeviceToHost));
        return double(cycles) / loads / ghz;  // nanoseconds of a load: milliseconds of a million
    };
    return {.kernel = kernel, .launch = launch, .check = check, .sample = sample};
}

/// Why no block can have this much of it in shared memory; empty where it can. (What a dry run
/// knows holds for every size.)
template <class Kernel>
std::string no_room_for(size_t bytes, Kernel kernel) {
    constexpr size_t kMost = 128 << 10;  // as much fits into L1, too
    return demo::dry_run || bytes <= kMost ? demo::try_shared_bytes(kernel, bytes)
                                           : "it is too large";
}

/// Measures a line of the table and prints it: a chase's cycles, a bandwidth in GB/s. `title`,
/// `text`: what else it says of N.
static void measure(demo::Session& session, size_t N, const std::string& title,
                    const std::string& text, const std::vector<demo::Contender>& contenders) {
    const std::string& show = session.options.choice("--show");
    const demo::Workload work{.shape = show == "working_sets" ? "square" : show,
                              .size = N,
                              .dtype = "uint32",
                              .flops = 0,  // no operation counts
                              .least_bytes = kScaledBytes,
                              .memory_bound = true,
                              .text = "N = " + std::to_string(N)};
    auto is_chase = [](const demo::Contender& c) { return c.kernel.starts_with("chase"); };
    auto value = [&](const demo::Contender& c, double ms) {
        if (kSimulator || ms == 0) return ms;
        return is_chase(c) ? ms * session.gpu.boost_ghz : double(kScaledBytes) / ms / 1e6;
    };
    auto unit = [&](const demo::Contender& c) { return is_chase(c) ? "cycles" : "GB/s"; };
    auto columns = [&](const demo::Contender& c, double ms) {
        const bool known = ms > 0 && !kSimulator;
        return ",," + (known ? demo::significant(value(c, ms), 4) : "") + "," + unit(c);
    };
    const size_t width = std::max<size_t>(9, ("N = " + std::to_string(session.n())).size());
    std::vector<demo::Cell> cells = {{kSimulator ? "(CPU) ms" : "", demo::left(work.text, width)},
                                     {title, demo::right(text, 8)}};
    for (const auto& [c, result] : demo::measure(session, work, {}, contenders, {}, columns))
        cells.push_back(
            {c.kernel, demo::figure(value(c, result.median_ms())), kSimulator ? "" : unit(c)});
    demo::print_row(session, cells);
}

// --- The lines ----------------------------------------------------------------------------------

/// The nearest memory that holds so many bytes.
static std::string level_of(const demo::Gpu& gpu, size_t bytes) {
    return bytes <= gpu.shared_per_block ? "L1" : bytes <= gpu.l2_bytes ? "L2" : "DRAM";
}

/// A working set of N KiB.
static void working_set(demo::Session& session, size_t blocks, size_t N) {
    const size_t bytes = demo::saturating_product(std::bit_floor(N), 1024);
    const uint32_t lines = uint32_t(bytes / kLineBytes), vectors = uint32_t(bytes / 16);
    const demo::Input<uint32_t> x(session, "x", {1, bytes / 4});
    const demo::Output<uint32_t> last(session, "last", {1, 1});
    const demo::Output<uint32_t> sums(session, "sums", {blocks, kThreads});
    const Chain chain(lines);
    const uint32_t apart = uint32_t(vectors / blocks);
    auto read_all = [&](const void* from) {
        read<<<blocks, kThreads>>>(static_cast<const uint4*>(from), vectors, apart, sums);
    };
    auto run_chase = [&] {
        read_all(chain.lines());  // so that L2 holds what it can
        chase<<<1, 1>>>(chain.lines(), lines, x, last, chain.cycles());
    };
    auto run_chase_shared = [&] {
        chase_shared<<<1, kThreads, bytes>>>(lines, x, last, chain.cycles());
    };
    auto read_copy = [&] { read_shared<<<blocks, kThreads, bytes>>>(x, vectors, sums); };
    auto ends = [&](int steps) { return last.check(ExpectLine{x, lines, uint32_t(steps)}); };
    auto adds_up = [&](size_t apart) {
        return sums.check(ExpectSum{x, bytes / 4, 4 * apart, 4, 4 * kThreads, kReads, 4});
    };
    const double loads = 4.0 * kReads * kThreads * double(blocks), ghz = session.gpu.boost_ghz;
    std::vector<demo::Contender> all = {
        latency("chase", run_chase, ends(kFirst + kLoads), chain, kLoads, ghz),
        bandwidth(
            "read", [&] { read_all(x); }, adds_up(apart), loads),
        latency("chase_shared", run_chase_shared, ends(kLoads), chain, kLoads, ghz),
        bandwidth("read_shared", read_copy, adds_up(1), loads)};
    all[2].why_not = no_room_for(bytes, chase_shared);
    all[3].why_not = no_room_for(bytes, read_shared);
    measure(session, N, "fits", level_of(session.gpu, bytes), all);
}

/// A warp's loads `stride` numbers apart, the first `offset` after a multiple of 32.
static void warp_loads(demo::Session& session, size_t blocks, size_t N, size_t stride,
                       size_t offset) {
    const std::array kernels = {strided<1>, strided<2>,  strided<4>,
                                strided<8>, strided<16>, strided<32>};
    const auto kernel = kernels[std::countr_zero(stride)];
    const size_t size = kStridedBytes / 4 + 32, threads = blocks * kThreads;
    const size_t steps = kStridedBytes / 4 / (threads * stride);
    const demo::Input<uint32_t> x(session, "x", {1, size});
    const demo::Output<uint32_t> sums(session, "sums", {blocks, kThreads});
    auto launch = [&] { kernel<<<blocks, kThreads>>>(x, sums, int(steps), int(offset)); };
    const auto check = sums.check(
        ExpectSum{x, size, kThreads * stride, stride, threads * stride, steps, 1, offset});
    const size_t sectors = std::min<size_t>(32, (offset % 8 + 31 * stride) / 8 + 1);
    measure(session, N, "sectors", std::to_string(sectors),
            {bandwidth("strided", launch, check, double(steps) * double(threads))});
}

static void run(demo::Session& session) {
    const std::string& show = session.options.choice("--show");
    const bool sets = show == "working_sets";
    const size_t blocks = kSimulator ? 4 : std::max(session.gpu.multiprocessors, 1);
    const size_t last = sets ? session.n() : std::min<size_t>(session.n(), 32);
    size_t N = std::min<size_t>(std::bit_floor(last), sets ? 16 : 1);
    if (demo::dry_run) N = session.n();  // the largest alone
    do {
        const size_t few = std::bit_floor(std::min<size_t>(N, 32));
        if (show == "working_sets") working_set(session, blocks, N);
        if (show == "strides") warp_loads(session, blocks, N, few, 0);
        if (show == "offsets") warp_loads(session, blocks, N, 1, few);
        N *= 2;
    } while (!demo::dry_run && N <= last);
}

}  // namespace memory

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_memory",
        .summary = "what a load costs: latency, bandwidth, and a warp's loads lying apart",
        .types = {{"uint32", memory::run}},
        .any_n = true,
        .n_means = "working sets of up to N KiB; strides or offsets of up to N numbers",
        .default_n = demo::kSimulator ? 256 : 1 << 20,
        .options = {{"--show", "which experiment", {"working_sets", "strides", "offsets"}}},
        .sizes = {},
        .variants = {"1048576 --show working_sets", "32 --show strides", "32 --show offsets"},
        .sweep = demo::Sweep::kByItself};
    return demo::main_of(program, argc, argv);
}
