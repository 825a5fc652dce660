// What the rest of the simulator asks of device memory.
#pragma once

#include <cstddef>
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

struct Buffer {
    char* data;
    size_t bytes;
    char* pages;  // the accessible ones, which end with it
    size_t pages_bytes;
    bool pinned;       // host memory
    bool freed;        // kept, inaccessible, so that a late use shows
    int number;        // the first is 1
    const char* file;  // where it was allocated
    int line;
};

/// How many bytes the pointer is beyond a multiple of `alignment`. cudaMalloc() aligns buffers to
/// 256 bytes, and so they count here, although they lie otherwise.
size_t bytes_beyond_alignment(const void* pointer, size_t alignment);

/// The buffer that this address is in or beside, freed ones too, or null.
const Buffer* buffer_around(const void* address);

}  // namespace simulator
