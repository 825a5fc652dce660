// Device memory. Every buffer lies between guard pages, its end as close to the upper one as
// alignment allows; the sanitizer build marks what is left. Host code cannot touch it: it is
// protected from each synchronization to the next kernel or copy.
#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "cuda/cuda_runtime_api.h"
#include "errors.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

extern "C" char __executable_start, _end;  // the linker's: where the program's own data lie

namespace simulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = 1 << 20;  // on both sides: wide, since a wrong row is a long step
constexpr size_t kAlignment = 32;   // what WMMA asks for; whole pages are aligned better

/// By the end of their upper guards. Leaked, since worker threads outlive main().
std::map<const char*, Buffer>& buffers = *new std::map<const char*, Buffer>;
std::recursive_mutex& mutex = *new std::recursive_mutex;
bool locked = true;

Buffer* find(const void* address) {
    const auto found = buffers.upper_bound(static_cast<const char*>(address));
    if (found == buffers.end()) return nullptr;
    Buffer& buffer = found->second;
    return address >= buffer.pages - kGuard ? &buffer : nullptr;
}

/// The live buffer that holds [pointer, pointer + bytes), or null.
Buffer* find_range(const void* pointer, size_t bytes) {
    Buffer* const buffer = find(pointer);
    const char* const p = static_cast<const char*>(pointer);
    if (!buffer || buffer->freed || p < buffer->data || p > buffer->data + buffer->bytes)
        return nullptr;
    return bytes <= size_t(buffer->data + buffer->bytes - p) ? buffer : nullptr;
}

void protect(bool lock) {
    std::lock_guard guard(mutex);
    if (locked == lock) return;
    locked = lock;
    for (auto& [end, buffer] : buffers)
        if (!buffer.pinned && !buffer.freed)
            mprotect(buffer.pages, buffer.pages_bytes, lock ? PROT_NONE : PROT_READ | PROT_WRITE);
}

/// Memory that can still be had, in bytes: the machine's, and the container's where it has a limit.
size_t available_memory() {
    size_t available = SIZE_MAX;
    std::ifstream meminfo("/proc/meminfo");
    for (std::string key; meminfo >> key; meminfo.ignore(256, '\n')) {
        size_t kib = 0;
        if (key == "MemAvailable:" && meminfo >> kib) available = kib * 1024;
    }
    size_t limit = 0, used = 0;
    std::ifstream maximum("/sys/fs/cgroup/memory.max"), current("/sys/fs/cgroup/memory.current");
    if (maximum >> limit && current >> used)
        available = std::min(available, limit > used ? limit - used : 0);
    return available;
}

cudaError_t allocate(void** pointer, size_t bytes, bool pinned, const char* file, int line) {
    if (!pointer) return set_error(cudaErrorInvalidValue);
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > available_memory()) return set_error(cudaErrorMemoryAllocation);
    const size_t pages_bytes = (bytes + kPage - 1) / kPage * kPage;
    void* const mapped = mmap(nullptr, pages_bytes + 2 * kGuard, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return set_error(cudaErrorMemoryAllocation);
    char* const pages = static_cast<char*>(mapped) + kGuard;
    char* const end = pages + pages_bytes;
    char* const data = end - (bytes + kAlignment - 1) / kAlignment * kAlignment;
    mprotect(pages, pages_bytes, PROT_READ | PROT_WRITE);
    std::memset(pages, 0xFF, pages_bytes);
#ifdef SIMULATOR_SANITIZE
    __asan_poison_memory_region(pages, data - pages);
    __asan_poison_memory_region(data + bytes, end - (data + bytes));
#endif
    std::lock_guard lock(mutex);
    if (locked && !pinned) mprotect(pages, pages_bytes, PROT_NONE);
    const int number = int(buffers.size()) + 1;
    buffers[end + kGuard] = {data, bytes, pages, pages_bytes, pinned, false, number, file, line};
    *pointer = data;
    return cudaSuccess;
}

}  // namespace

void unlock_memory() { protect(false); }
void lock_memory() { protect(true); }

std::vector<std::pair<const char*, const char*>> device_buffers() {
    const std::lock_guard lock(mutex);
    std::vector<std::pair<const char*, const char*>> all;
    for (const auto& [end, buffer] : buffers)
        if (!buffer.freed) all.emplace_back(buffer.data, buffer.data + buffer.bytes);
    return all;
}

bool is_device_pointer(const void* pointer) {
    const std::lock_guard lock(mutex);
    const bool is_static = pointer >= &__executable_start && pointer < &_end;
    return !pointer || is_static || find(pointer);  // __device__ variables are static
}

size_t bytes_beyond_alignment(const void* pointer, size_t alignment) {
    const std::lock_guard lock(mutex);
    const Buffer* const buffer = find(pointer);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    if (!buffer || alignment > 256) return address % alignment;
    return (address - reinterpret_cast<uintptr_t>(buffer->data)) % alignment;
}

/// Without the lock, which the thread that a fault stopped may hold.
const Buffer* buffer_around(const void* address) { return find(address); }

}  // namespace simulator

using simulator::set_error;

cudaError_t cudaMalloc(void** pointer, size_t bytes, const char* file, int line) {
    return simulator::allocate(pointer, bytes, false, file, line);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes, const char* file, int line) {
    return simulator::allocate(pointer, bytes, true, file, line);
}

cudaError_t cudaFree(void* pointer) {
    if (!pointer) return cudaSuccess;
    std::lock_guard lock(simulator::mutex);
    simulator::Buffer* const buffer = simulator::find(pointer);
    if (!buffer || buffer->freed || buffer->data != pointer)
        return set_error(cudaErrorInvalidValue);
    // Its address stays taken, its memory goes back to the system.
    buffer->freed = true;
    mmap(buffer->pages, buffer->pages_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    *total_bytes = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
    *free_bytes = std::min(simulator::available_memory(), *total_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    if (width == 0 || height == 0) return cudaSuccess;
    if (width > to_pitch || width > from_pitch) return set_error(cudaErrorInvalidValue);
    // A device pointer must be one, with room; and what a direction calls host must not be one.
    auto fits = [&](const void* pointer, size_t pitch, bool device) {
        const simulator::Buffer* const buffer = simulator::find(pointer);
        if (!buffer) return !device || kind == cudaMemcpyDefault;
        return simulator::find_range(pointer, (height - 1) * pitch + width) &&
               (device != buffer->pinned || kind == cudaMemcpyDefault);
    };
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!fits(to, to_pitch, to_device) || !fits(from, from_pitch, from_device))
        return set_error(cudaErrorInvalidValue);
    simulator::unlock_memory();
    for (size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(to) + row * to_pitch,
                     static_cast<const char*>(from) + row * from_pitch, width);
    simulator::lock_memory();
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (!simulator::find_range(pointer, bytes)) return set_error(cudaErrorInvalidValue);
    simulator::unlock_memory();
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}
