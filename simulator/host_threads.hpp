// The simulated GPU's multiprocessors: worker threads, one for each CPU core, and at least four.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace simulator {

/// How many there are. (Cores that this process may not use do not count.)
int worker_count();

/// Calls body(i) once for every i < count, on all workers. Returns when all are done.
void parallel(uint64_t count, const std::function<void(uint64_t)>& body);

/// Lets workers run one at a time: who waits longest is the next.
class Turns {
  public:
    /// Waits for the first turn of body(i), which comes after that of i - 1.
    void begin(uint64_t i);
    /// Gives the turn away, and waits for the next one.
    void pass();
    void end();

  private:
    void wait(std::unique_lock<std::mutex>& lock);

    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t begun_ = 0;    // bodies that have asked for their first turn
    uint64_t asked_ = 0;    // turns asked for
    uint64_t current_ = 0;  // the turn that somebody has
};

/// Signals that this thread gets are handled on a stack of their own: a kernel's stacks are small,
/// and may be what overflowed.
void use_own_signal_stack();

}  // namespace simulator
