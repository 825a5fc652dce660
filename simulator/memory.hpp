// What the rest of the simulator asks of device memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace simulator {

/// Device memory can be touched from unlock_memory() on, which kernels and copies call, until
/// lock_memory(), which the calls do that hand control to host code with all work done.
void unlock_memory();
void lock_memory();

/// The buffers that are not freed, each from its begin to its end.
std::vector<std::pair<const char*, const char*>> device_buffers();

/// Whether a kernel may be given this pointer: to a buffer or to a __device__ variable, or null.
bool is_device_pointer(const void* pointer);

/// "12 bytes into buffer 2 (132 bytes, allocated in f.cu:3)"; empty for an address that is in no
/// buffer and not beside one.
std::string describe_in_buffer(const void* address);

}  // namespace simulator
