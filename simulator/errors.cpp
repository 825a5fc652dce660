#include "errors.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "blocks.hpp"
#include "cuda/cuda_runtime.h"
#include "launch.hpp"
#include "memory.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

namespace simulator {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// Where an address lies, for people.
std::string describe(const void* address) {
    std::string place = describe_in_block(address);
    if (place.empty()) place = describe_in_buffer(address);
    if (place.empty()) place = "in no buffer of device memory";
    char number[32];
    std::snprintf(number, sizeof number, "%p", address);
    return std::string("address ") + number + ", " + place;
}

// --- Faults -------------------------------------------------------------------------------------

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
    if (signal == SIGSEGV && !describe_in_buffer(info->si_addr).empty())
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

}  // namespace

void prepare_fault_handling() {
    constexpr size_t bytes = 128 << 10;
    stack_t stack{};
    stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = bytes;
    if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

// --- Ends of the program ------------------------------------------------------------------------

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
    fail(77, "needs %s, which the simulator does not have", needs);
}

[[noreturn]] void fail_waiting(const Site& site, uint3 missing, const Site* elsewhere) {
    fail(3, "waits at %s for thread %s, which %s", text(site).c_str(), text(missing).c_str(),
         elsewhere ? ("waits at " + text(*elsewhere)).c_str() : "has left the kernel");
}

void check_pointer(const Launch& launch, size_t index, const void* pointer) {
    if (!is_device_pointer(pointer))
        fail(3, "%s, launched in %s:%d: argument %zu points to host memory", launch.name().c_str(),
             launch.file, launch.line, index);
}

std::string text(uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}
std::string text(const Site& site) {
    return std::string(site.what) + " in " + site.file + ":" + std::to_string(site.line);
}

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

}  // namespace simulator

// --- What the sanitizers call -------------------------------------------------------------------

#ifdef SIMULATOR_SANITIZE
// Their own reports do not know which thread of the kernel it is.
extern "C" void __asan_on_error() {
    std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name,
                 simulator::running_thread().c_str(),
                 simulator::describe(__asan_get_report_address()).c_str());
}
extern "C" void __ubsan_on_report() {
    std::fprintf(stderr, "%s: %s:\n", program_invocation_short_name,
                 simulator::running_thread().c_str());
}
extern "C" const char* __asan_default_options() {
    return "exitcode=3:detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:"
           "handle_sigbus=0:handle_sigfpe=0";
}
extern "C" const char* __ubsan_default_options() { return "exitcode=3:print_stacktrace=1"; }
#endif

// --- CUDA's errors ------------------------------------------------------------------------------

cudaError_t cudaGetLastError() { return std::exchange(simulator::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return simulator::last_error; }

const char* cudaGetErrorName(cudaError_t error) {
#define SIMULATOR_NAME(name, value, text) \
    if (error == name) return #name;
    SIMULATOR_ERRORS(SIMULATOR_NAME)
    return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
#define SIMULATOR_TEXT(name, value, text) \
    if (error == name) return text;
    SIMULATOR_ERRORS(SIMULATOR_TEXT)
    return "unknown error";
}
