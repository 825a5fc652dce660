// What the files of the CPU lane's runtime share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_runtime.h"

namespace demo_cpu {

/// Sets what cudaGetLastError() returns, and returns it.
cudaError_t set_error(cudaError_t error);

/// The most dynamic shared memory that a block can have, and without asking for more, in bytes.
inline constexpr size_t kMaxSharedBytes = 99 << 10, kSharedBytes = 48 << 10;

/// What CUDA says of this launch: cudaSuccess where nothing is wrong with its configuration.
cudaError_t check_launch(const Launch& launch, const void* function);

/// CPU cores that this process may use: the simulation's multiprocessors.
int worker_count();

/// Calls body(i) once for every i < count, on all workers. Returns when all are done.
void parallel(uint64_t count, const std::function<void(uint64_t)>& body);

/// "kernel K, block (0,0,0), thread (0,0,0)" where this thread runs a kernel; else empty.
std::string running_thread();

/// What an address is to the running block: beyond a thread's stack, or in dynamic shared memory or
/// right behind it. Else empty.
std::string describe_in_block(const void* address);

/// Device memory can be touched from unlock_memory() on, which kernels and copies call, until
/// lock_memory(), which the calls do that hand control to host code with all work done.
void unlock_memory();
void lock_memory();

/// The buffers of device memory that are not freed, each from its begin to its end.
std::vector<std::pair<const char*, const char*>> device_buffers();

/// Gives this thread a stack of its own for the handler of memory faults.
void prepare_fault_handling();

}  // namespace demo_cpu
