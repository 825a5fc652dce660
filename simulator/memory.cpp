// Device memory, and how misuse of it ends. Every buffer lies between guard pages, its end as close
// to the upper one as alignment allows; the sanitizer build marks what is left. Host code cannot
// touch it: it is protected from each synchronisation to the next kernel or copy.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <map>
#include <mutex>

#include "runtime.hpp"

#ifdef DEMO_CPU_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

extern "C" char __executable_start, _end;  // the linker's: where the program's own data lie

namespace demo_cpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = 1 << 20;  // on both sides: wide, since a wrong row is a long step
constexpr size_t kAlignment = 32;   // what WMMA asks for; whole pages are aligned better

struct Buffer {
    char* pages;  // the accessible ones
    size_t pages_bytes;
    char* data;
    size_t bytes;
    bool pinned;  // host memory
    bool freed;   // kept, inaccessible, so that a late use shows
    int number;
    const char* file;
    int line;
};

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
#ifdef DEMO_CPU_SANITIZE
    __asan_poison_memory_region(pages, data - pages);
    __asan_poison_memory_region(data + bytes, end - (data + bytes));
#endif
    std::lock_guard lock(mutex);
    if (locked && !pinned) mprotect(pages, pages_bytes, PROT_NONE);
    const int number = int(buffers.size()) + 1;
    buffers[end + kGuard] = {pages, pages_bytes, data, bytes, pinned, false, number, file, line};
    *pointer = data;
    return cudaSuccess;
}

// --- How misuse ends ----------------------------------------------------------------------------

/// Where an address lies, for people.
std::string describe(const void* address) {
    char text[512];
    const Buffer* const b = find(address);
    if (std::string place = describe_in_block(address); !place.empty()) {
        std::snprintf(text, sizeof text, "address %p, %s", address, place.c_str());
        return text;
    }
    if (!b) {
        std::snprintf(text, sizeof text, "address %p, in no buffer of device memory", address);
        return text;
    }
    const char* const p = static_cast<const char*>(address);
    std::string place = std::to_string(p - b->data) + " bytes into";
    if (p < b->data) place = std::to_string(b->data - p) + " bytes before";
    if (p >= b->data + b->bytes)
        place = std::to_string(p - (b->data + b->bytes)) + " bytes past the end of";
    std::snprintf(text, sizeof text, "address %p, %s buffer %d (%zu bytes, allocated in %s:%d%s)",
                  address, place.c_str(), b->number, b->bytes, b->file, b->line,
                  b->freed ? ", freed since" : "");
    return text;
}

/// Handles SIGSEGV, SIGBUS and SIGFPE.
void on_fault(int signal, siginfo_t* info, void* context) {
    const char* access = "access to";
#ifdef __x86_64__
    const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    if (signal == SIGSEGV) access = registers[REG_ERR] & 2 ? "write to" : "read of";
#else
    (void)context;
#endif
    if (!running_thread().empty()) {
        if (signal == SIGFPE) fail(3, "integer division by zero");
        if (info->si_code == SI_KERNEL)  // x86 does not say where
            fail(3, "access to a misaligned or an impossible address");
        fail(3, "%s %s", access, describe(info->si_addr).c_str());
    }
    if (signal == SIGSEGV && find(info->si_addr))
        fail(3, "host code: %s %s; the host has to cudaMemcpy it", access,
             describe(info->si_addr).c_str());
    ::signal(signal, SIG_DFL);  // none of ours: what the host did happens again, and ends it
}

struct FaultHandler {
    FaultHandler() {
        prepare_fault_handling();
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, nullptr);
    }
} fault_handler;

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

void prepare_fault_handling() {
    constexpr size_t bytes = 128 << 10;
    stack_t stack{};
    stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = bytes;
    if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

[[noreturn]] void fail(int exit_code, const char* format, ...) {
    static std::atomic_flag failed;
    while (failed.test_and_set()) pause();  // another thread is about to end the program
    const std::string thread = running_thread();
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s%s", program_invocation_short_name, thread.c_str(),
                 thread.empty() ? "" : ": ");
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    _exit(exit_code);
}

[[noreturn]] void unsupported(const char* needs) {
    fail(77, "needs %s, which the CPU simulation does not have", needs);
}

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

void unlock_memory() { protect(false); }
void lock_memory() { protect(true); }

std::vector<std::pair<const char*, const char*>> device_buffers() {
    const std::lock_guard lock(mutex);
    std::vector<std::pair<const char*, const char*>> all;
    for (const auto& [end, buffer] : buffers)
        if (!buffer.freed) all.emplace_back(buffer.data, buffer.data + buffer.bytes);
    return all;
}

void check_pointer(const Launch& launch, size_t index, const void* pointer) {
    const std::lock_guard lock(mutex);
    const bool is_static = pointer >= &__executable_start && pointer < &_end;
    if (!pointer || is_static || find(pointer)) return;  // __device__ variables are static
    fail(3, "%s, launched in %s:%d: argument %zu points to host memory", launch.name().c_str(),
         launch.file, launch.line, index);
}

}  // namespace demo_cpu

using demo_cpu::set_error;

#ifdef DEMO_CPU_SANITIZE
// The sanitizers' own reports do not know which thread of the simulation it is. They call these.
extern "C" void __asan_on_error() {
    std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name,
                 demo_cpu::running_thread().c_str(),
                 demo_cpu::describe(__asan_get_report_address()).c_str());
}
extern "C" void __ubsan_on_report() {
    std::fprintf(stderr, "%s: %s:\n", program_invocation_short_name,
                 demo_cpu::running_thread().c_str());
}
extern "C" const char* __asan_default_options() {
    return "exitcode=3:detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:handle_sigbus="
           "0:"
           "handle_sigfpe=0";
}
extern "C" const char* __ubsan_default_options() { return "exitcode=3:print_stacktrace=1"; }
#endif

// --- The runtime API's part ---------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, size_t bytes, const char* file, int line) {
    return demo_cpu::allocate(pointer, bytes, false, file, line);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes, const char* file, int line) {
    return demo_cpu::allocate(pointer, bytes, true, file, line);
}

cudaError_t cudaFree(void* pointer) {
    if (!pointer) return cudaSuccess;
    std::lock_guard lock(demo_cpu::mutex);
    demo_cpu::Buffer* const buffer = demo_cpu::find(pointer);
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
    *free_bytes = std::min(demo_cpu::available_memory(), *total_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    if (width == 0 || height == 0) return cudaSuccess;
    if (width > to_pitch || width > from_pitch) return set_error(cudaErrorInvalidValue);
    // A device pointer must be one, with room; and what a direction calls host must not be one.
    auto fits = [&](const void* pointer, size_t pitch, bool device) {
        const demo_cpu::Buffer* const buffer = demo_cpu::find(pointer);
        if (!buffer) return !device || kind == cudaMemcpyDefault;
        return demo_cpu::find_range(pointer, (height - 1) * pitch + width) &&
               (device != buffer->pinned || kind == cudaMemcpyDefault);
    };
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!fits(to, to_pitch, to_device) || !fits(from, from_pitch, from_device))
        return set_error(cudaErrorInvalidValue);
    demo_cpu::unlock_memory();
    for (size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(to) + row * to_pitch,
                     static_cast<const char*>(from) + row * from_pitch, width);
    demo_cpu::lock_memory();
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (!demo_cpu::find_range(pointer, bytes)) return set_error(cudaErrorInvalidValue);
    demo_cpu::unlock_memory();
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return demo_cpu::lock_memory(), cudaSuccess; }

cudaError_t cudaGetLastError() { return std::exchange(demo_cpu::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return demo_cpu::last_error; }
