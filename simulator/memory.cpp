// Device memory. Every buffer lies between guard pages, its end as close to the upper one as
// alignment allows. What is left of its pages, the slack, holds NaN: who reads it computes NaN, and
// after each kernel it is looked at. The sanitizer build marks it instead. Host code cannot touch
// device memory: it is protected from each synchronization to the next kernel or copy.
#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "cuda/cuda_runtime_api.h"
#include "errors.hpp"
#include "pages.hpp"
#include "schedule.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

extern "C" char __executable_start, _end;  // the linker's: where the program's own data lie

namespace simulator {
namespace {

constexpr size_t kGuard = 1 << 20;  // on both sides: wide, since a wrong row is a long step
constexpr size_t kAlignment = 32;   // what WMMA asks for; whole pages are aligned better

/// By the end of their upper guards. Leaked, since worker threads outlive main().
std::map<const char*, Buffer>& buffers = *new std::map<const char*, Buffer>;
std::recursive_mutex& mutex = *new std::recursive_mutex;
Access allowed = Access::kNobody;

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

/// Protects the buffer's pages as it is allowed now.
void protect(Buffer& buffer) {
    if (buffer.pinned || buffer.freed) return;
    const bool only_reads = buffer.read_only && allowed == Access::kKernels;
    const int protection = allowed == Access::kNobody ? PROT_NONE
                           : only_reads               ? PROT_READ
                                                      : PROT_READ | PROT_WRITE;
    if (protection != buffer.protection)
        protect_pages(buffer.pages, buffer.pages_bytes, protection);
    buffer.protection = protection;
}

/// What a page's slack holds: words from 0xFF81 to 0xFFFE. In fp16, bf16 and fp32 they are NaN, and
/// none of them is 0xFFFF, which buffers begin with.
const unsigned char* slack_of_a_page() {
    static const auto words = [] {
        std::array<uint16_t, kPage / 2> words;
        Random random{0};
        for (uint16_t& word : words) word = uint16_t(0xFF81 + random() % 126);
        return words;
    }();
    return reinterpret_cast<const unsigned char*>(words.data());
}

/// Calls body(begin, end, what it holds) for the slack in front of a buffer and behind it.
template <class Body>
void for_slack(const Buffer& buffer, Body body) {
    char* const end = buffer.data + buffer.bytes;
    char* const pages_end = buffer.pages + buffer.pages_bytes;
    body(buffer.pages, buffer.data, slack_of_a_page());
    body(end, pages_end, slack_of_a_page() + kPage - (pages_end - end));
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
    constexpr int kAll = PROT_READ | PROT_WRITE;
    if (mprotect(pages, pages_bytes, kAll) != 0) {
        munmap(mapped, pages_bytes + 2 * kGuard);
        return set_error(cudaErrorMemoryAllocation);
    }
    std::lock_guard lock(mutex);
    const int number = int(buffers.size()) + 1;
    Buffer& buffer = buffers[end + kGuard];
    buffer = {data, bytes, pages, pages_bytes, pinned, number, file, line, kAll};
    std::memset(data, 0xFF, bytes);
    for_slack(buffer, [](char* begin, char* end, const unsigned char* holds) {
        std::memcpy(begin, holds, end - begin);
#ifdef SIMULATOR_SANITIZE
        __asan_poison_memory_region(begin, end - begin);
#endif
    });
    protect(buffer);
    *pointer = data;
    return cudaSuccess;
}

}  // namespace

void give_access(Access access) {
    const std::lock_guard lock(mutex);
    if (allowed == access) return;
    allowed = access;
    for (auto& [end, buffer] : buffers) protect(buffer);
}

void set_read_only(const void* pointer, bool read_only) {
    const std::lock_guard lock(mutex);
    Buffer* const buffer = find_range(pointer, 0);
    if (!buffer) fail(3, "set_read_only: %p is in no buffer", pointer);
    buffer->read_only = read_only;
    protect(*buffer);
}

void name_buffer(const void* pointer, const std::string& name, const std::string& type,
                 size_t columns) {
    const std::lock_guard lock(mutex);
    if (Buffer* const buffer = find_range(pointer, 0))
        buffer->name = name, buffer->type = type, buffer->columns = columns;
}

std::vector<Buffer> device_buffers() {
    const std::lock_guard lock(mutex);
    std::vector<Buffer> all;
    for (const auto& [end, buffer] : buffers)
        if (!buffer.freed) all.push_back(buffer);
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

const void* byte_written_beside_a_buffer() {
    const char* written = nullptr;
#ifndef SIMULATOR_SANITIZE  // which stops who does it
    const std::lock_guard lock(mutex);
    for (const auto& [pages_end, buffer] : buffers) {
        if (buffer.pinned || buffer.freed) continue;  // host code, too, may write to pinned memory
        for_slack(buffer, [&](const char* begin, const char* end, const unsigned char* holds) {
            if (std::memcmp(begin, holds, end - begin) == 0) return;
            while (static_cast<unsigned char>(*begin) == *holds) ++begin, ++holds;
            written = begin;
        });
    }
#endif
    return written;
}

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
    if (mmap(buffer->pages, buffer->pages_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return set_error(cudaErrorMemoryAllocation);
    buffer->freed = true;
    buffer->protection = PROT_NONE;
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
    simulator::give_access(simulator::Access::kCopies);
    for (size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(to) + row * to_pitch,
                     static_cast<const char*>(from) + row * from_pitch, width);
    simulator::give_access(simulator::Access::kNobody);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (!simulator::find_range(pointer, bytes)) return set_error(cudaErrorInvalidValue);
    simulator::give_access(simulator::Access::kCopies);
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}
