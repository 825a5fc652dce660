// Runs kernels. The workers take blocks in turn, or clusters of blocks. Their threads are fibers: a
// thread runs until it has to wait for others, then the next one does. What copy engines and tensor
// cores do beside them is done in between. The order is DEMO_SCHEDULE's, so a kernel that lacks a
// barrier or a wait meets an order that shows it. When nobody can run and not all have finished,
// somebody waits for what will never come, and the program ends saying so.
#include "scheduler.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "access_errors.hpp"
#include "count.hpp"
#include "cuda/device_launch_parameters.h"
#include "current_thread.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "fiber.hpp"
#include "host_threads.hpp"
#include "launch.hpp"
#include "memory.hpp"
#include "pages.hpp"
#include "schedule.hpp"
#include "shared_memory.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

namespace simulator {
namespace {

// --- Threads ------------------------------------------------------------------------------------

struct Block;

struct alignas(64) Thread {
    uint3 index;
    bool exited = false;
    bool waiting = false;                  // for others
    Fiber* fiber = nullptr;                // null until it starts
    Site site{};                           // where it waits, or waited last
    void* record = nullptr;                // what it brought to a warp-wide operation
    const Condition* condition = nullptr;  // what it waits for, if for no meeting
    Block* block = nullptr;
    unsigned int number = 0;  // in its block
    std::unique_ptr<ThreadState> states[size_t(StateOf::kCount)];
};

/// Lanes of a warp that are meeting.
struct Meeting {
    unsigned int mask, arrived;
    void (*finish)(void* const*, unsigned int);
    int line;
};

/// Threads at one of a block's 16 barriers with a number.
struct NumberedBarrier {
    std::vector<Thread*> arrived, waiting;  // some that have arrived do not wait
    unsigned int expected = 0;
};

constexpr size_t kMaxThreads = 1024;

/// A block that runs: one of a cluster's, or the only one.
struct Block {
    uint3 index;
    unsigned int rank = 0;
    Thread* threads = nullptr;  // the first of them
    size_t arrived = 0, exited = 0, votes = 0, count = 0;
    Thread* first_arrived = nullptr;
    std::vector<Meeting> meetings[kMaxThreads / 32];
    NumberedBarrier barriers[16];
};

/// Work of the hardware that is not done yet.
struct Work {
    std::function<void()> work;
    Thread* thread;  // that started it
};

/// One kernel launch, as the workers see it.
struct Grid {
    const Launch& launch;
    void (*thread)(const void*);
    const void* call;
    unsigned int cluster;                       // blocks of one
    uint64_t number;                            // of launches so far
    std::atomic<unsigned int>& wanted_cluster;  // what the kernel itself asks for
    Turns* turns;                               // null if clusters run at the same time

    unsigned int threads() const { return launch.block.x * launch.block.y * launch.block.z; }
};

#ifdef SIMULATOR_SANITIZE
constexpr size_t kStackBytes = 512 << 10;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif
constexpr size_t kStackStride = kStackBytes + kPage;  // with the guard below it

/// Where a debugger's breakpoint stops the thread that it wanted to see, or asked.
[[gnu::noinline, gnu::used]] void debugger_looks() {
    asm volatile("");  // not to be optimized away
}

/// What a worker needs to run blocks, one after the other, or clusters.
class Runner {
  public:
    /// Runs cluster number `cluster` of the grid. Stops at once when the kernel wants other ones.
    void run_cluster(const Grid& grid, uint64_t cluster);

    int block_meet(bool predicate, Site site);
    void barrier_arrive(unsigned int id, unsigned int threads, Site site, bool waits);
    void cluster_meet(Site site);
    void warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
                   const Site& site);
    void wait_until(const Condition& condition, Site site);
    void look_again();
    void polled();
    void start_work(std::function<void()> work);
    bool as_late_as_allowed();
    void want_cluster(unsigned int blocks);

#ifdef SIMULATOR_DEBUG
    void attend_to_debugger();
#endif

    Thread& current() { return *current_; }
    Block& block(unsigned int rank) { return blocks_[rank]; }
    unsigned int cluster_size() const { return grid_->cluster; }
    unsigned int threads_of_a_block() const { return grid_->threads(); }
    bool below_a_stack(const void* address) const {
        const size_t in_stacks = static_cast<const char*>(address) - stacks_;
        return in_stacks < kMaxClusterBlocks * kMaxThreads * kStackStride &&
               in_stacks % kStackStride < kPage;
    }

  private:
    void prepare(const Grid& grid);
    void leave_block(Block& block);
    std::unique_ptr<Fiber> new_fiber(size_t i);
    Fiber& last_fiber();
    void run_threads();      // what a fiber does
    Fiber& fiber_of_next();  // makes the next thread that can run the current one
    void work_until_ready();
    void take_fiber();       // for the current thread
    void do_work(size_t i);  // of pending_
    void wait();             // lets others run until the current thread is ready again
    void release(const std::vector<Thread*>& threads);
    void end_meeting(Thread* lanes, size_t here, unsigned int mask,
                     void (*finish)(void* const*, unsigned int));
    void count_met(const Site& site) const;
    void release_cluster_if_met();
    [[noreturn]] void fail_at_barrier(Thread& waiting, const Thread& missing);
    [[noreturn]] void fail_for_ever_waiting();
    void name(const Thread& thread);  // makes it the one that fail() names
#ifdef SIMULATOR_DEBUG
    std::string what_threads_wait_for() const;
#endif

    const Grid* grid_ = nullptr;
    dim3 prepared_{0, 0, 0};  // the block's shape that threads_ is laid out for
    unsigned int prepared_cluster_ = 0;
    std::vector<Thread> threads_;  // of all blocks
    Block blocks_[kMaxClusterBlocks];
    std::vector<Thread*> all_;    // every thread, in order
    std::vector<Thread*> ready_;  // who can run; the last is the next
    std::vector<Thread*> waiting_for_conditions_;
    std::vector<Work> pending_;
    Thread* current_ = nullptr;
    Thread* wanted_ = nullptr;  // whom a debugger wants to see
#ifdef SIMULATOR_DEBUG
    bool asked_ = false;            // a debugger wants to know what threads wait for,
    const char* answer_ = nullptr;  // and this is it
#endif
    size_t exited_ = 0;
    std::vector<Thread*> at_cluster_barrier_;
    bool restarts_ = false;          // the kernel wants other clusters
    std::vector<Thread*> together_;  // who just met
    Random random_{0};
    using Time = std::chrono::steady_clock::time_point;
    Time polling_since_{};  // since when threads do nothing but poll
    unsigned int polls_ = 0;

    char* const stacks_ =
        map_pages(kMaxClusterBlocks * kMaxThreads * kStackStride, PROT_READ | PROT_WRITE);
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> idle_;  // fibers without a thread
    Fiber home_;                // the worker itself
    SharedMemory shared_;
};

constinit thread_local Runner* runner = nullptr;  // of this thread, while it runs a block

Runner& running(const char* what) {
    if (!runner) fail(3, "%s was called outside of a kernel", what);
    return *runner;
}

void Runner::prepare(const Grid& grid) {
    grid_ = &grid;
    const dim3 shape = grid.launch.block;
    const unsigned int count = grid.threads();
    if (shape.x != prepared_.x || shape.y != prepared_.y || shape.z != prepared_.z ||
        grid.cluster != prepared_cluster_) {
        threads_.clear();
        threads_.resize(count * grid.cluster);
        all_.clear();
        for (Thread& thread : threads_) {
            const size_t number = &thread - threads_.data();
            const unsigned int i = unsigned(number % count);
            thread.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
            thread.number = i;
            thread.block = &blocks_[number / count];
            all_.push_back(&thread);
        }
        prepared_ = shape;
        prepared_cluster_ = grid.cluster;
    }
    for (Thread& thread : threads_) {
        thread.fiber = nullptr;
        thread.exited = false;
        for (const auto& state : thread.states)
            if (state) state->begin_block();
    }
    shared_.begin(grid.number, grid.cluster, grid.launch.shared_bytes);
    for (unsigned int rank = 0; rank < grid.cluster; ++rank) {
        Block& block = blocks_[rank];
        block.rank = rank;
        block.threads = &threads_[rank * count];
        block.arrived = block.exited = block.votes = 0;
        for (NumberedBarrier& barrier : block.barriers)
            barrier.arrived.clear(), barrier.waiting.clear();
    }
}

void Runner::run_cluster(const Grid& grid, uint64_t cluster) {
    runner = this;
    running_launch = &grid.launch;
    gridDim = grid.launch.grid;
    blockDim = grid.launch.block;
    for (unsigned int rank = 0; rank < grid.cluster; ++rank) {
        const uint64_t block = cluster * grid.cluster + rank;
        blocks_[rank].index = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
                               unsigned(block / gridDim.x / gridDim.y)};
    }
    blockIdx = blocks_[0].index;
    random_.state = schedule.seed * 0xD1342543DE82EF95u + cluster;
    prepare(grid);
    exited_ = 0;
    at_cluster_barrier_.clear();
    restarts_ = false;
    ready_.clear();
    waiting_for_conditions_.clear();
    pending_.clear();
    release(all_);
    count_block(shared_.begin_of_all(), SharedMemory::stride(), grid.cluster);
    home_.switch_to(fiber_of_next());
    if (restarts_) {
        // The first thread stopped in front of its first statement: its fiber is of no more use.
        const auto left = std::find_if(fibers_.begin(), fibers_.end(), [&](const auto& fiber) {
            return fiber.get() == current_->fiber;
        });
        *left = new_fiber(left - fibers_.begin());
        idle_.push_back(left->get());
    }
    count_block_end();
    SharedMemory::end();
    runner = nullptr;
    running_launch = nullptr;
    running_rank = 0;
}

void Runner::run_threads() {
    for (;;) {
        Fiber& self = *current_->fiber;
        grid_->thread(grid_->call);
        count_exit();
        for (const auto& state : current_->states)
            if (state) state->leave_kernel();
        Block& block = *current_->block;
        current_->exited = true;
        ++block.exited, ++exited_;
        polling_since_ = {};
        if (block.exited == grid_->threads()) leave_block(block);
        if (block.arrived > 0) fail_at_barrier(*block.first_arrived, *current_);
        release_cluster_if_met();
        idle_.push_back(&self);
        Fiber& next = exited_ == threads_.size() ? last_fiber() : fiber_of_next();
        if (&next != &self) self.switch_to(next);
    }
}

void Runner::leave_block(Block& block) {
    for (const auto& state : block.threads->states)
        if (state) state->leave_block();
    if (grid_->cluster > 1) shared_.close(block.rank, block.index);
}

/// All threads have left: what the hardware still has to do is done.
Fiber& Runner::last_fiber() {
    while (!pending_.empty()) do_work(pending_.size() - 1);
    return home_;
}

std::unique_ptr<Fiber> Runner::new_fiber(size_t i) {
    char* const guard = stacks_ + i * kStackStride;
    // Mappings are limited, by 65530 as a rule.
    if (i * size_t(worker_count()) < 16384) protect_pages(guard, kPage, PROT_NONE);
#ifdef SIMULATOR_SANITIZE
    ASAN_UNPOISON_MEMORY_REGION(guard + kPage, kStackBytes);  // what an abandoned fiber left there
#endif
    // Stacks that start at like addresses would compete for the same lines of the cache.
    const size_t bytes = kStackBytes - i % 64 * 64;
    return std::make_unique<Fiber>(guard + kPage, bytes,
                                   [] { fail_without_memory([] { runner->run_threads(); }); });
}

void Runner::name(const Thread& thread) {
    threadIdx = thread.index;
    blockIdx = thread.block->index;
    running_rank = thread.block->rank;
}

void Runner::do_work(size_t i) {
    const Work work = std::move(pending_[i]);
    pending_.erase(pending_.begin() + i);
    Thread* const interrupted = current_;
    current_ = work.thread;
    name(*current_);
    work.work();
    current_ = interrupted;
    name(*current_);
}

Fiber& Runner::fiber_of_next() {
    if (wanted_) {
        current_ = wanted_;
        std::erase(ready_, wanted_);
        if (!wanted_->fiber) wanted_ = nullptr;  // it starts, and stops at a breakpoint
    } else {
        if (ready_.empty() || schedule.order == Schedule::kRandom) work_until_ready();
        current_ = ready_.back();
        ready_.pop_back();
    }
    name(*current_);
    if (!current_->fiber) take_fiber();
    return *current_->fiber;
}

// Seldom needed, so not parts of fiber_of_next(), which each switch calls.
[[gnu::noinline]] void Runner::work_until_ready() {
    if (schedule.order == Schedule::kRandom && !pending_.empty() && random_() % 8 == 0)
        do_work(random_() % pending_.size());
    while (ready_.empty()) {
        if (pending_.empty()) fail_for_ever_waiting();
        do_work(schedule.order == Schedule::kRandom ? random_() % pending_.size()
                                                    : pending_.size() - 1);
    }
}
[[gnu::noinline]] void Runner::take_fiber() {
    if (idle_.empty()) {
        fibers_.push_back(new_fiber(fibers_.size()));
        idle_.push_back(fibers_.back().get());
    }
    current_->fiber = idle_.back();
    idle_.pop_back();
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
    polling_since_ = {};
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
    Block& block = *self.block;
    self.site = site;
    self.waiting = true;
    if (block.arrived == 0) block.first_arrived = &self;
    if (!(block.first_arrived->site == site)) fail_at_barrier(*block.first_arrived, self);
    Thread *const first = block.threads, *const end = first + grid_->threads();
    if (block.exited > 0)
        fail_at_barrier(self, *std::find_if(first, end, [](const Thread& t) { return t.exited; }));
    block.votes += predicate;
    if (++block.arrived == grid_->threads()) {
        block.count = block.votes;
        block.arrived = block.votes = 0;
        together_.clear();
        for (Thread* thread = first; thread != end; ++thread) together_.push_back(thread);
        count_met(site);
        release(together_);
    }
    wait();
    return int(block.count);
}

/// Counts a barrier of those who are together_.
void Runner::count_met(const Site& site) const {
    unsigned int warps = 0;
    for (const Thread* thread : together_) warps |= 1u << thread->number / 32;
    count_barrier(site, unsigned(together_.size()), warps);
}

void Runner::barrier_arrive(unsigned int id, unsigned int threads, Site site, bool waits) {
    if (id > 15 || threads == 0 || threads % 32 != 0 || threads > grid_->threads())
        fail(3, "%s: barrier %u of %u threads: a block has barriers 0 to 15, and whole warps meet",
             text(site).c_str(), id, threads);
    Thread& self = *current_;
    NumberedBarrier& barrier = self.block->barriers[id];
    if (barrier.arrived.empty()) barrier.expected = threads;
    if (barrier.expected != threads)
        fail(3, "%s: barrier %u waits for %u threads already, not for %u", text(site).c_str(), id,
             barrier.expected, threads);
    barrier.arrived.push_back(&self);
    if (waits) {
        self.site = site;
        self.waiting = true;
        barrier.waiting.push_back(&self);
    }
    if (barrier.arrived.size() == threads) {
        together_ = std::exchange(barrier.arrived, {});
        count_met(site);
        together_ = std::exchange(barrier.waiting, {});
        std::sort(together_.begin(), together_.end());
        release(together_);
    }
    if (waits) wait();
}

void Runner::cluster_meet(Site site) {
    Thread& self = *current_;
    self.site = site;
    self.waiting = true;
    at_cluster_barrier_.push_back(&self);
    release_cluster_if_met();
    wait();
}

void Runner::release_cluster_if_met() {
    if (at_cluster_barrier_.empty() || at_cluster_barrier_.size() + exited_ < threads_.size())
        return;
    together_ = std::exchange(at_cluster_barrier_, {});
    std::sort(together_.begin(), together_.end());
    release(together_);
}

void Runner::warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
                       const Site& site) {
    Thread& self = *current_;
    const unsigned int lane = self.number % 32, warp = self.number / 32;
    if (!(mask >> lane & 1))
        fail(3, "%s: its mask 0x%08x leaves out the calling lane %u", text(site).c_str(), mask,
             lane);
    const size_t here = std::min<size_t>(32, grid_->threads() - warp * 32);
    if (here < 32) mask &= (1u << here) - 1;

    std::vector<Meeting>& meetings = self.block->meetings[warp];
    Meeting* meeting = nullptr;
    for (Meeting& m : meetings)
        if (m.mask == mask && m.line == site.line && m.finish == finish) meeting = &m;
    if (!meeting) meeting = &meetings.emplace_back(Meeting{mask, 0, finish, site.line});
    self.site = site;
    self.waiting = true;
    self.record = record;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived == mask) {
        meetings.erase(meetings.begin() + (meeting - meetings.data()));
        end_meeting(&self - lane, here, mask, finish);
    }
    wait();
}

// Not a part of warp_meet(): there the records would lie on the stack of every thread that waits,
// and to go on with another one would touch more lines of the cache.
[[gnu::noinline]] void Runner::end_meeting(Thread* lanes, size_t here, unsigned int mask,
                                           void (*finish)(void* const*, unsigned int)) {
    void* records[32];
    together_.clear();
    for (size_t i = 0; i < here; ++i) {
        records[i] = lanes[i].record;
        if (mask >> i & 1) together_.push_back(lanes + i);
    }
    count_pause(true);
    finish(records, mask);
    count_pause(false);
    if (together_.size() == here) count_warp_met(lanes->number / 32, lanes->site);
    release(together_);
}

void Runner::wait_until(const Condition& condition, Site site) {
    Thread& self = *current_;
    while (!condition.holds()) {
        self.site = site;
        self.waiting = true;
        self.condition = &condition;
        waiting_for_conditions_.push_back(&self);
        wait();
        self.condition = nullptr;
    }
}

void Runner::look_again() {
    std::vector<Thread*> free;
    std::erase_if(waiting_for_conditions_, [&](Thread* thread) {
        const bool holds = thread->condition->holds();
        if (holds) free.push_back(thread);
        return holds;
    });
    if (!free.empty()) release(free);
}

void Runner::polled() {
    if (++polls_ % 64 != 0) return;
    if (!pending_.empty()) do_work(pending_.size() - 1);
    const auto now = std::chrono::steady_clock::now();
    if (polling_since_ == Time{}) polling_since_ = now;
    if (now - polling_since_ > std::chrono::minutes(1))
        fail(3, "waits for ever: for a minute its atomic operations have changed nothing");
    if (grid_->turns) grid_->turns->pass();
    if (ready_.empty()) {
        std::this_thread::yield();  // to blocks on other workers
    } else {
        current_->site = {"an atomic operation", "", 0};
        ready_.insert(ready_.begin(), current_);
        wait();
    }
}

void Runner::start_work(std::function<void()> work) {
    if (as_late_as_allowed())
        pending_.push_back({std::move(work), current_});
    else
        work();
}

bool Runner::as_late_as_allowed() {
    return schedule.order == Schedule::kReverse ||
           (schedule.order == Schedule::kRandom && random_() % 4 != 0);
}

void Runner::want_cluster(unsigned int blocks) {
    if (grid_->cluster == blocks) return;
    if (grid_->cluster != 1)
        fail(3, "launched in clusters of %u blocks, but its __cluster_dims__ is %u", grid_->cluster,
             blocks);
    grid_->wanted_cluster = blocks;
    restarts_ = true;
    current_->fiber->switch_to(home_);
}

void Runner::fail_at_barrier(Thread& waiting, const Thread& missing) {
    name(waiting);
    fail(3, "waits at %s for thread %s, which %s", text(waiting.site).c_str(),
         text(missing.index).c_str(),
         missing.exited ? "has left the kernel" : ("waits at " + text(missing.site)).c_str());
}

void Runner::fail_for_ever_waiting() {
    // Who waits for a condition is named first: others may wait for that thread.
    if (!waiting_for_conditions_.empty()) {
        std::vector<Thread*>& all = waiting_for_conditions_;
        std::sort(all.begin(), all.end());
        std::string others;  // one of each line
        for (auto each = all.begin() + 1; each != all.end(); ++each) {
            const Thread& other = **each;
            if (std::none_of(all.begin(), each, [&](Thread* t) { return t->site == other.site; }))
                others += "; thread " + text(other.index) + " of block " +
                          text(other.block->index) + " waits at " + text(other.site) + ": " +
                          other.condition->missing();
        }
        const Thread& thread = *all.front();
        name(thread);
        fail(3, "waits at %s for ever: %s%s", text(thread.site).c_str(),
             thread.condition->missing().c_str(), others.c_str());
    }
    // block_meet() sees for itself who cannot come.
    for (unsigned int rank = 0; rank < grid_->cluster; ++rank) {
        Block& block = blocks_[rank];
        for (const std::vector<Meeting>& meetings : block.meetings)
            for (const Meeting& meeting : meetings)
                for (unsigned int i = 0; i < 32; ++i) {
                    const size_t warp = &meetings - block.meetings;
                    if (!((meeting.mask & ~meeting.arrived) >> i & 1)) continue;
                    fail_at_barrier(block.threads[warp * 32 + std::countr_zero(meeting.arrived)],
                                    block.threads[warp * 32 + i]);
                }
        for (const NumberedBarrier& barrier : block.barriers) {
            if (barrier.waiting.empty()) continue;
            const Thread& thread = *barrier.waiting.front();
            name(thread);
            fail(3, "waits at %s for ever: %zu of %u threads have come", text(thread.site).c_str(),
                 barrier.arrived.size(), barrier.expected);
        }
    }
    if (!at_cluster_barrier_.empty()) {
        const Thread& waiting = *at_cluster_barrier_.front();
        for (const Thread& thread : threads_) {
            const bool here = std::find(at_cluster_barrier_.begin(), at_cluster_barrier_.end(),
                                        &thread) != at_cluster_barrier_.end();
            if (here || thread.exited) continue;
            name(waiting);
            fail(3, "waits at %s for thread %s of block %s, which waits at %s",
                 text(waiting.site).c_str(), text(thread.index).c_str(),
                 text(thread.block->index).c_str(), text(thread.site).c_str());
        }
    }
    fail(3, "no thread can run");
}

// --- Stepping through a kernel ------------------------------------------------------------------

#ifdef SIMULATOR_DEBUG
/// For each thread of the running block that waits at something with a count: its number, a tab,
/// and what is missing there.
std::string Runner::what_threads_wait_for() const {
    const Block& block = *current_->block;
    std::string result;
    auto add = [&](const Thread& thread, const std::string& what) {
        if (thread.block != &block) return;
        result += std::to_string(thread.number) + '\t' + what + '\n';
    };
    for (const Thread* thread : waiting_for_conditions_) {
        const std::string missing = thread->condition->missing();
        add(*thread, missing.substr(0, missing.find(';')));  // without who has arrived
    }
    for (const NumberedBarrier& barrier : block.barriers)
        for (const Thread* thread : barrier.waiting)
            add(*thread, "barrier " + std::to_string(&barrier - block.barriers) + " has " +
                             std::to_string(barrier.arrived.size()) + " of " +
                             std::to_string(barrier.expected) + " threads");
    for (const Thread* thread : at_cluster_barrier_)
        add(*thread, "the cluster's barrier has " + std::to_string(at_cluster_barrier_.size()) +
                         " of " + std::to_string(threads_.size() - exited_) + " threads");
    return result;
}

/// Answers the debugger, or lets the thread run that it wants to see.
void Runner::attend_to_debugger() {
    if (asked_) {
        static thread_local std::string answer;
        answer = what_threads_wait_for();
        answer_ = answer.c_str();
        asked_ = false;
        debugger_looks();
        return;
    }
    current_->site = {};
    release({current_});
    wait();
}

// scripts/step/simulator.py stops a thread anywhere, writes wanted_ or asked_ and sends this
// signal. It calls no function: gdb 13 cannot, on a processor with AMX.
struct DebuggersSignal {
    DebuggersSignal() {
        struct sigaction action {};
        action.sa_handler = [](int) {
            if (runner) runner->attend_to_debugger();
        };
        action.sa_flags = SA_NODEFER;  // the handler returns when its thread goes on
        sigaction(SIGUSR1, &action, nullptr);
    }
} debuggers_signal;
#endif

}  // namespace

// --- Launches and meetings ----------------------------------------------------------------------

void run_grid(const Launch& launch, const void* function, void (*thread)(const void*),
              const void* call) {
    if (runner) unsupported("launches from a kernel");
    if (cudaError_t error = check_launch(function, launch)) {
        set_error(error);
        return;
    }
    static std::atomic<uint64_t> launches = 0;
    std::atomic<unsigned int> wanted_cluster = 0;
    give_access(Access::kKernels);
    count_launch(launch, function, thread);
    const uint64_t blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    auto run = [&](unsigned int cluster) {
        Turns turns;
        const Grid grid{launch,
                        thread,
                        call,
                        cluster,
                        ++launches,
                        wanted_cluster,
                        schedule.alone ? &turns : nullptr};
        const uint64_t clusters = blocks / cluster;
        parallel(clusters, [&](uint64_t i) {
            static thread_local Runner& own = *new Runner;
            if (grid.turns) grid.turns->begin(i);
            if (wanted_cluster <= cluster)
                own.run_cluster(grid, schedule.order == Schedule::kReverse ? clusters - 1 - i : i);
            if (grid.turns) grid.turns->end();
        });
    };
    run(launch.cluster);
    if (wanted_cluster > launch.cluster) {
        Launch again = launch;
        again.cluster = wanted_cluster;
        if (cudaError_t error = check_launch(function, again))
            set_error(error);
        else
            run(again.cluster);
    }
    count_launch_end();
    if (const void* const written = byte_written_beside_a_buffer())
        fail(3, "%s, launched in %s:%d: wrote to %s", launch.name().c_str(), launch.file,
             launch.line, describe(written).c_str());
}

void check_pointer(const Launch& launch, size_t index, const void* pointer) {
    if (!is_device_pointer(pointer))
        fail(3, "%s, launched in %s:%d: argument %zu points to host memory", launch.name().c_str(),
             launch.file, launch.line, index);
    count_argument(launch, index, pointer);
}

int block_meet(bool predicate, Site site) { return running(site.what).block_meet(predicate, site); }

void barrier_meet(unsigned int id, unsigned int threads, Site site) {
    running(site.what).barrier_arrive(id, threads, site, true);
}

void barrier_arrive(unsigned int id, unsigned int threads, Site site) {
    running(site.what).barrier_arrive(id, threads, site, false);
}

void cluster_meet(Site site) { running(site.what).cluster_meet(site); }

void warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
               const Site& site) {
    running(site.what).warp_meet(mask, record, finish, site);
}

unsigned int lane() { return running("a warp-wide operation").current().number % 32; }
unsigned int thread_number() { return running("a warp-wide operation").current().number; }

// --- Waiting, and what the hardware does --------------------------------------------------------

void wait_until(const Condition& condition, Site site) {
    running(site.what).wait_until(condition, site);
}
void look_again() { running("an mbarrier").look_again(); }
void polled() {
    if (runner) runner->polled();
}
void start_work(std::function<void()> work) {
    running("an asynchronous copy").start_work(std::move(work));
}
bool as_late_as_allowed() { return running("an asynchronous copy").as_late_as_allowed(); }

std::unique_ptr<ThreadState>& thread_state(StateOf slot) {
    return running("an asynchronous copy").current().states[size_t(slot)];
}
std::unique_ptr<ThreadState>& warp_state(StateOf slot) {
    const Thread& thread = running("a warp-wide operation").current();
    return thread.block->threads[thread.number / 32 * 32].states[size_t(slot)];
}

std::unique_ptr<ThreadState>& block_state(StateOf slot) {
    return running("registers").current().block->threads[0].states[size_t(slot)];
}

// --- Clusters -----------------------------------------------------------------------------------

unsigned int cluster_rank() { return running("a cluster").current().block->rank; }
unsigned int cluster_size() { return running("a cluster").cluster_size(); }
void cluster_dims(unsigned int blocks) { running("__cluster_dims__").want_cluster(blocks); }

void require_present(unsigned int rank, const Site& site) {
    Runner& own = running(site.what);
    if (rank >= own.cluster_size())
        fail(3, "%s: block %u of a cluster of %u", text(site).c_str(), rank, own.cluster_size());
    const Block& block = own.block(rank);
    if (block.exited == own.threads_of_a_block())
        fail(3, "%s: block %s has left the kernel, and with it its shared memory",
             text(site).c_str(), text(block.index).c_str());
}

// --- Stacks -------------------------------------------------------------------------------------

bool below_a_stack(const void* address) { return runner && runner->below_a_stack(address); }

}  // namespace simulator
