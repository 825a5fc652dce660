// The simulated GPU's multiprocessors: worker threads, one for each CPU core, and at least four.
#pragma once

#include <cstdint>
#include <functional>

namespace simulator {

/// How many there are. (Cores that this process may not use do not count.)
int worker_count();

/// Calls body(i) once for every i < count, on all workers. Returns when all are done.
void parallel(uint64_t count, const std::function<void(uint64_t)>& body);

/// Signals that this thread gets are handled on a stack of their own: a kernel's stacks are small,
/// and may be what overflowed.
void use_own_signal_stack();

}  // namespace simulator
