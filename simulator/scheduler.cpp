// Runs kernels. The workers take blocks in turn. A block's threads are fibers: a thread runs until
// it has to wait for others, then the next one does. The order is DEMO_SCHEDULE's, so a kernel that
// lacks a barrier meets an order that shows it. When nobody can run and not all have finished,
// somebody waits for a thread that will never come, and the program ends saying so.
#include "fiber.hpp"
// fiber.hpp has to come first: it chooses what setjmp.h declares.
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "count.hpp"
#include "cuda/device_launch_parameters.h"
#include "current_thread.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "host_threads.hpp"
#include "launch.hpp"
#include "memory.hpp"
#include "scheduler.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

namespace simulator {
namespace {

// --- DEMO_SCHEDULE ------------------------------------------------------------------------------

struct Schedule {
    enum { kForward, kReverse, kRandom } order = kForward;
    uint64_t seed = 0;

    Schedule() {
        const char* const value = std::getenv("DEMO_SCHEDULE");
        const std::string text = value ? value : "forward";
        if (text == "forward") return;
        order = text == "reverse" ? kReverse : kRandom;
        if (order == kReverse) return;
        const char *const digits = text.c_str() + 7, *const end = text.c_str() + text.size();
        if (!text.starts_with("random:") || std::from_chars(digits, end, seed).ptr != end ||
            digits == end)
            fail(2, "DEMO_SCHEDULE takes forward, reverse or random:SEED, not '%s'", text.c_str());
    }
};
const Schedule schedule;

/// SplitMix64.
struct Random {
    uint64_t state;
    uint64_t operator()() {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    static constexpr uint64_t min() { return 0; }
    static constexpr uint64_t max() { return ~uint64_t(0); }
    using result_type = uint64_t;
};

// --- Threads ------------------------------------------------------------------------------------

struct Copy {
    void* to;
    const void* from;
    size_t bytes, zero_bytes;
    unsigned int group;
};

struct alignas(64) Thread {  // one line of the cache
    uint3 index;
    bool exited = false;
    bool waiting = false;    // for others
    Fiber* fiber = nullptr;  // null until it starts
    Site site{};             // where it waits, or waited last
    void* record = nullptr;  // what it brought to a warp-wide operation
};

/// A thread's asynchronous copies that nobody has waited for.
struct Copies {
    std::vector<Copy> pending;
    unsigned int groups = 0;  // committed so far
};

/// Lanes of a warp that are meeting.
struct Meeting {
    unsigned int mask, arrived;
    void (*finish)(void* const*, unsigned int);
    Site site;
};

/// One kernel launch, as the workers see it.
struct Grid {
    const Launch& launch;
    void (*thread)(const void*);
    const void* call;

    unsigned int threads() const { return launch.block.x * launch.block.y * launch.block.z; }
};

#ifdef SIMULATOR_SANITIZE
constexpr size_t kStackBytes = 512 << 10;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif
constexpr size_t kPage = 4096, kMaxThreads = 1024;
constexpr size_t kStackStride = kStackBytes + kPage;  // with the guard below it

/// Where a debugger's breakpoint stops the thread that it wanted to see.
[[gnu::noinline, gnu::used]] void debugger_looks() {
    asm volatile("");  // not to be optimised away
}

/// What a worker needs to run blocks, one after the other.
class Runner {
  public:
    Runner()
        : stacks_(
              static_cast<char*>(mmap(nullptr, kMaxThreads * kStackStride, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
          dynamic_(
              static_cast<char*>(mmap(nullptr, kMaxSharedBytes + 2 * kPage, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        if (stacks_ == MAP_FAILED || dynamic_ == MAP_FAILED) fail(3, "no memory for stacks");
        const size_t end = (kMaxSharedBytes + kPage - 1) / kPage * kPage;
        dynamic_end_ = dynamic_ + end;
        mprotect(dynamic_end_, kPage, PROT_NONE);
    }

    /// Runs block number `block` of the grid.
    void run_block(const Grid& grid, uint64_t block);

    int block_meet(bool predicate, Site site);
    void warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
                   Site site);

    /// Lets the thread that a debugger wants to see run.
    void step_aside() {
        current_->site = {};
        release({current_});
        wait();
    }

    Copies& copies() { return copies_[number(*current_)]; }
    unsigned int lane() const { return number(*current_) % 32; }
    char* dynamic_shared() const { return dynamic_start_; }
    bool below_a_stack(const void* address) const {
        const size_t in_stacks = static_cast<const char*>(address) - stacks_;
        return in_stacks < kMaxThreads * kStackStride && in_stacks % kStackStride < kPage;
    }
    std::optional<size_t> bytes_into_dynamic_shared(const void* address) const {
        const size_t past = static_cast<const char*>(address) - dynamic_end_;
        if (past >= kPage) return {};
        return past + dynamic_end_ - dynamic_start_;
    }

  private:
    unsigned int number(const Thread& thread) const { return &thread - threads_.data(); }
    void prepare(const Grid& grid);
    void run_threads();      // what a fiber does
    Fiber& fiber_of_next();  // makes the next thread that can run the current one
    void wait();             // lets others run until the current thread is ready again
    void release(const std::vector<Thread*>& threads);
    [[noreturn]] void fail_at_barrier(Thread& waiting, const Thread& missing);
    [[noreturn]] void fail_for_ever_waiting();

    const Grid* grid_ = nullptr;
    dim3 prepared_{0, 0, 0};  // the block's shape that threads_ is laid out for
    std::vector<Thread> threads_;
    std::vector<Copies> copies_;  // of each
    std::vector<Thread*> all_;    // every thread, in order
    std::vector<Thread*> ready_;  // who can run; the last is the next
    Thread* current_ = nullptr;
    Thread* wanted_ = nullptr;  // whom a debugger wants to see
    size_t arrived_ = 0, exited_ = 0, votes_ = 0, count_ = 0;
    Thread* first_arrived_ = nullptr;
    std::vector<Meeting> meetings_[kMaxThreads / 32];
    std::vector<Thread*> together_;  // who just met
    Random random_{0};

    char* stacks_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> idle_;  // fibers without a thread
    Fiber home_;                // the worker itself
    char *dynamic_, *dynamic_end_, *dynamic_start_ = nullptr;
};

constinit thread_local Runner* runner = nullptr;  // of this thread, while it runs a block

Runner& running(const char* what) {
    if (!runner) fail(3, "%s was called outside of a kernel", what);
    return *runner;
}

void Runner::prepare(const Grid& grid) {
    grid_ = &grid;
    const dim3 shape = grid.launch.block;
    if (shape.x != prepared_.x || shape.y != prepared_.y || shape.z != prepared_.z) {
        threads_.assign(grid.threads(), {});
        copies_.resize(threads_.size());
        all_.clear();
        for (Thread& thread : threads_) {
            const unsigned int i = number(thread);
            thread.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
            all_.push_back(&thread);
        }
        prepared_ = shape;
    }
    for (Thread& thread : threads_) {
        thread.fiber = nullptr;
        thread.exited = false;
    }
    for (Copies& copies : copies_) {
        copies.pending.clear();
        copies.groups = 0;
    }
    // As far back as alignment allows, so that its end is the guard page.
    dynamic_start_ = dynamic_end_ - (grid.launch.shared_bytes + 127) / 128 * 128;
#ifdef SIMULATOR_SANITIZE
    ASAN_UNPOISON_MEMORY_REGION(dynamic_, dynamic_end_ - dynamic_);
    ASAN_POISON_MEMORY_REGION(dynamic_start_ + grid.launch.shared_bytes,
                              dynamic_end_ - dynamic_start_ - grid.launch.shared_bytes);
#endif
    std::memset(dynamic_start_, 0xFF, grid.launch.shared_bytes);
}

void Runner::run_block(const Grid& grid, uint64_t block) {
    runner = this;
    running_launch = &grid.launch;
    gridDim = grid.launch.grid;
    blockDim = grid.launch.block;
    blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
                unsigned(block / gridDim.x / gridDim.y)};
    random_.state = schedule.seed * 0xD1342543DE82EF95u + block;
    prepare(grid);
    arrived_ = exited_ = votes_ = 0;
    ready_.clear();
    release(all_);
    count_block(dynamic_start_);
    home_.switch_to(fiber_of_next());
    count_block_end();
    runner = nullptr;
    running_launch = nullptr;
}

void Runner::run_threads() {
    for (;;) {
        Fiber& self = *current_->fiber;
        grid_->thread(grid_->call);
        count_exit();
        current_->exited = true;
        ++exited_;
        if (arrived_ > 0) fail_at_barrier(*first_arrived_, *current_);
        idle_.push_back(&self);
        Fiber& next = exited_ == threads_.size() ? home_ : fiber_of_next();
        if (&next != &self) self.switch_to(next);
    }
}

Fiber& Runner::fiber_of_next() {
    if (wanted_) {
        current_ = wanted_;
        std::erase(ready_, wanted_);
        if (!wanted_->fiber) wanted_ = nullptr;  // it starts, and stops at a breakpoint
    } else {
        if (ready_.empty()) fail_for_ever_waiting();
        current_ = ready_.back();
        ready_.pop_back();
    }
    threadIdx = current_->index;
    if (!current_->fiber) {
        if (idle_.empty()) {
            const size_t i = fibers_.size();
            char* const guard = stacks_ + i * kStackStride;
            if (worker_count() <= 16) mprotect(guard, kPage, PROT_NONE);  // mappings are limited
            // Stacks that start at like addresses would compete for the same lines of the cache.
            const size_t bytes = kStackBytes - i % 64 * 64;
            fibers_.push_back(
                std::make_unique<Fiber>(guard + kPage, bytes, [] { runner->run_threads(); }));
            idle_.push_back(fibers_.back().get());
        }
        current_->fiber = idle_.back();
        idle_.pop_back();
    }
    return *current_->fiber;
}

void Runner::wait() {
    Thread& self = *current_;
    do {
        Fiber& next = fiber_of_next();
        if (&next != self.fiber) self.fiber->switch_to(next);
        if (wanted_ == &self) {
            wanted_ = nullptr;
            debugger_looks();
            if (wanted_ && !self.waiting) ready_.push_back(&self);  // not this one, after all
        }
    } while (self.waiting || wanted_);
}

void Runner::release(const std::vector<Thread*>& threads) {
    for (Thread* thread : threads) thread->waiting = false;
    if (schedule.order == Schedule::kReverse) {
        ready_.insert(ready_.end(), threads.begin(), threads.end());
    } else {
        ready_.insert(ready_.end(), threads.rbegin(), threads.rend());
        if (schedule.order == Schedule::kRandom)
            std::shuffle(ready_.end() - threads.size(), ready_.end(), random_);
    }
}

int Runner::block_meet(bool predicate, Site site) {
    Thread& self = *current_;
    self.site = site;
    self.waiting = true;
    if (arrived_ == 0) first_arrived_ = &self;
    if (!(first_arrived_->site == site)) fail_at_barrier(*first_arrived_, self);
    if (exited_ > 0)
        fail_at_barrier(self, *std::find_if(threads_.begin(), threads_.end(),
                                            [](const Thread& t) { return t.exited; }));
    votes_ += predicate;
    if (++arrived_ == threads_.size()) {
        count_ = votes_;
        arrived_ = votes_ = 0;
        count_barrier(site);
        release(all_);
    }
    wait();
    return int(count_);
}

void Runner::warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
                       Site site) {
    Thread& self = *current_;
    const unsigned int lane = number(self) % 32, warp = number(self) / 32;
    if (!(mask >> lane & 1))
        fail(3, "%s: its mask 0x%08x leaves out the calling lane %u", text(site).c_str(), mask,
             lane);
    Thread* const lanes = threads_.data() + warp * 32;
    const size_t here = std::min<size_t>(32, threads_.size() - warp * 32);
    if (here < 32) mask &= (1u << here) - 1;

    std::vector<Meeting>& meetings = meetings_[warp];
    auto meeting = std::find_if(meetings.begin(), meetings.end(), [&](const Meeting& m) {
        return m.mask == mask && m.site.line == site.line && m.finish == finish;
    });
    if (meeting == meetings.end()) meeting = meetings.insert(meeting, {mask, 0, finish, site});
    self.site = site;
    self.waiting = true;
    self.record = record;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived == mask) {
        meetings.erase(meeting);
        void* records[32];
        together_.clear();
        for (size_t i = 0; i < here; ++i) {
            records[i] = lanes[i].record;
            if (mask >> i & 1) together_.push_back(lanes + i);
        }
        count_pause(true);
        finish(records, mask);
        count_pause(false);
        if (together_.size() == here) count_warp_met(warp);
        release(together_);
    }
    wait();
}

void Runner::fail_at_barrier(Thread& waiting, const Thread& missing) {
    threadIdx = waiting.index;  // whom fail() names
    fail(3, "waits at %s for thread %s, which %s", text(waiting.site).c_str(),
         text(missing.index).c_str(),
         missing.exited ? "has left the kernel" : ("waits at " + text(missing.site)).c_str());
}

void Runner::fail_for_ever_waiting() {
    // Warp-wide operations alone come here: block_meet() sees for itself who cannot come.
    for (const std::vector<Meeting>& meetings : meetings_)
        for (const Meeting& meeting : meetings)
            for (unsigned int i = 0; i < 32; ++i) {
                const size_t warp = &meetings - meetings_;
                if (!((meeting.mask & ~meeting.arrived) >> i & 1)) continue;
                fail_at_barrier(threads_[warp * 32 + std::countr_zero(meeting.arrived)],
                                threads_[warp * 32 + i]);
            }
    fail(3, "no thread can run");
}

// --- Stepping through a kernel ------------------------------------------------------------------

#ifdef SIMULATOR_DEBUG
// scripts/step/step_commands.py stops a thread anywhere, writes wanted_ and sends this signal.
struct StepAside {
    StepAside() {
        struct sigaction action {};
        action.sa_handler = [](int) {
            if (runner) runner->step_aside();
        };
        action.sa_flags = SA_NODEFER;  // the handler returns when its thread goes on
        sigaction(SIGUSR1, &action, nullptr);
    }
} step_aside_handler;
#endif

}  // namespace

// --- Launches and meetings ----------------------------------------------------------------------

void run_grid(const Launch& launch, const void* function, void (*thread)(const void*),
              const void* call) {
    if (runner) unsupported("launches from a kernel");
    if (cudaError_t error =
            check_launch(function, launch.grid, launch.block, launch.shared_bytes)) {
        set_error(error);
        return;
    }
    const Grid grid{launch, thread, call};
    unlock_memory();
    count_launch(launch, function, thread);
    const uint64_t blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    parallel(blocks, [&](uint64_t i) {
        static thread_local Runner& own = *new Runner;
        own.run_block(grid, schedule.order == Schedule::kReverse ? blocks - 1 - i : i);
    });
    count_launch_end();
}

void check_pointer(const Launch& launch, size_t index, const void* pointer) {
    if (!is_device_pointer(pointer))
        fail(3, "%s, launched in %s:%d: argument %zu points to host memory", launch.name().c_str(),
             launch.file, launch.line, index);
}

int block_meet(bool predicate, Site site) { return running(site.what).block_meet(predicate, site); }

void warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
               Site site) {
    running(site.what).warp_meet(mask, record, finish, site);
}

unsigned int lane() { return running("a warp-wide operation").lane(); }

DynamicShared dynamic_shared() { return {running("extern __shared__").dynamic_shared()}; }

// --- Asynchronous copies ------------------------------------------------------------------------

void async_copy(void* to, const void* from, size_t bytes, size_t zero_bytes, Site site) {
    Copies& copies = running(site.what).copies();
    const bool aligned = reinterpret_cast<uintptr_t>(to) % bytes == 0 &&
                         reinterpret_cast<uintptr_t>(from) % bytes == 0;
    if ((bytes != 4 && bytes != 8 && bytes != 16) || zero_bytes > bytes || !aligned)
        fail(3, "%s: %zu bytes from %p to %p: it copies 4, 8 or 16 bytes between multiples of that",
             text(site).c_str(), bytes, from, to);
    if (bytes > zero_bytes) count_access(from, bytes - zero_bytes, false, site);
    count_access(to, bytes, true, site);
    std::memset(to, 0xFF, bytes);
    copies.pending.push_back({to, from, bytes, zero_bytes, copies.groups});
}

void async_commit() { ++running("an asynchronous copy").copies().groups; }

void async_wait(size_t groups_still_allowed) {
    Copies& copies = running("an asynchronous copy").copies();
    std::erase_if(copies.pending, [&](const Copy& copy) {
        if (copy.group + groups_still_allowed >= copies.groups) return false;
        const size_t taken = copy.bytes - copy.zero_bytes;
        std::memcpy(copy.to, copy.from, taken);
        std::memset(static_cast<char*>(copy.to) + taken, 0, copy.zero_bytes);
        return true;
    });
}

// --- Addresses ----------------------------------------------------------------------------------

bool below_a_stack(const void* address) { return runner && runner->below_a_stack(address); }

std::optional<size_t> bytes_into_dynamic_shared(const void* address) {
    return runner ? runner->bytes_into_dynamic_shared(address) : std::nullopt;
}

}  // namespace simulator
