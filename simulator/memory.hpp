// What the rest of the simulator asks of device memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace simulator {

/// Who may touch device memory. Kernels may from their launch on, the simulator from a copy on, and
/// nobody after a call that hands control to host code with all work done.
enum class Access { kNobody, kKernels, kCopies };
void give_access(Access access);

/// Whether a kernel may be given this pointer: to a buffer or to a __device__ variable, or null.
bool is_device_pointer(const void* pointer);

struct Buffer {
    char* data;
    size_t bytes;
    char* pages;  // the accessible ones, which end with it
    size_t pages_bytes;
    bool pinned;       // host memory
    int number;        // the first is 1
    const char* file;  // where it was allocated
    int line;
    int protection;                    // of the pages, mprotect()'s
    bool read_only = false;            // kernels may not write to it
    bool freed = false;                // kept, inaccessible, so that a late use shows
    std::string name = "", type = "";  // what the program declares of it, if it does,
    size_t columns = 0;                // and of how many elements its rows are
};

/// The buffers that are not freed.
std::vector<Buffer> device_buffers();

/// How many bytes the pointer is beyond a multiple of `alignment`. cudaMalloc() aligns buffers to
/// 256 bytes, and so they count here, although they lie otherwise.
size_t bytes_beyond_alignment(const void* pointer, size_t alignment);

/// The buffer that this address is in or beside, freed ones too, or null.
const Buffer* buffer_around(const void* address);

/// A byte between a buffer and its guard pages that a kernel has written to, or null.
const void* byte_written_beside_a_buffer();

}  // namespace simulator
