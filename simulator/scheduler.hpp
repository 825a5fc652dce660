// What device functions are made of: threads of a block, or of a cluster of blocks, that meet, wait
// for what others bring about, and start work that the hardware does beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "call_site.hpp"

namespace simulator {

/// The thread of the kernel that is running: its number in its warp, and in its block.
unsigned int lane();
unsigned int thread_number();

// --- Meeting ------------------------------------------------------------------------------------

/// Waits for all threads of the block. Returns for how many of them `predicate` held.
int block_meet(bool predicate, Site site);

/// Waits until `threads` threads of the block are here: barrier number `id` of the block's 16.
void barrier_meet(unsigned int id, unsigned int threads, Site site);

/// Counts at such a barrier, and does not wait.
void barrier_arrive(unsigned int id, unsigned int threads, Site site);

/// Waits for all threads of the cluster that have not left the kernel.
void cluster_meet(Site site);

/// Waits for the lanes of `mask`. The last to come calls finish(records, mask) for all of them,
/// where records[lane] is what that lane passed: the arguments, and room for its result.
void warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
               const Site& site);

// --- Waiting ------------------------------------------------------------------------------------

/// What a thread waits for, and how to say what is missing when it never comes.
class Condition {
  public:
    virtual bool holds() const = 0;
    virtual std::string missing() const = 0;

  protected:
    ~Condition() = default;
};

/// Waits until the condition holds. It is looked at whenever somebody called look_again().
void wait_until(const Condition& condition, Site site);
void look_again();

/// The running thread has looked at memory with an atomic that changed nothing. If it does so again
/// and again it waits for others, so others run. When a minute long nobody did anything else, it
/// fails.
void polled();

// --- What the hardware does beside the threads ---------------------------------------------------

/// Lets `work` be done at some moment from now on, on behalf of the running thread. In the order
/// forward at once; in reverse when no thread can run otherwise, the latest work first; in random
/// at any moment in between.
void start_work(std::function<void()> work);

/// Whether what the running thread starts now, and later waits for itself, is done at that wait
/// (true) or at once. As start_work(): false in the order forward, true in reverse, either in
/// random.
bool as_late_as_allowed();

/// What one of the simulator's files keeps for each thread of a block, anew for each block.
class ThreadState {
  public:
    virtual ~ThreadState() = default;
    virtual void begin_block() = 0;
    virtual void leave_kernel() {}  // fails if something is left that nobody waited for
    virtual void leave_block() {}   // of a block's state: when its last thread has left
};
enum class StateOf { kCopies, kStores, kProducts, kRegisters, kBarriers, kCount };

/// The slot for one file's state, of the running thread, or of the first one of its warp or block.
/// Empty until somebody fills it.
std::unique_ptr<ThreadState>& thread_state(StateOf slot);
std::unique_ptr<ThreadState>& warp_state(StateOf slot);
std::unique_ptr<ThreadState>& block_state(StateOf slot);

template <class State>
State& own(std::unique_ptr<ThreadState>& slot) {
    if (!slot) slot = std::make_unique<State>();
    return static_cast<State&>(*slot);
}

// --- Clusters -----------------------------------------------------------------------------------

unsigned int cluster_rank();
unsigned int cluster_size();

/// A kernel's __cluster_dims__, before its first statement.
void cluster_dims(unsigned int blocks);

/// Fails if all threads of that block have left the kernel: it has no shared memory then.
void require_present(unsigned int rank, const Site& site);

// --- Stacks -------------------------------------------------------------------------------------

/// Whether an address is where a thread of the running block gets that overflows its stack.
bool below_a_stack(const void* address);

}  // namespace simulator
