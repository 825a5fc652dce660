// Accesses outside of buffers, and integer divisions by zero: the processor stops them, and one
// line says which thread did what, and where the address is.
#include "access_errors.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "current_thread.hpp"
#include "errors.hpp"
#include "host_threads.hpp"
#include "memory.hpp"
#include "scheduler.hpp"
#include "shared_memory.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

namespace simulator {
namespace {

/// "12 bytes into buffer 2 (132 bytes, allocated in f.cu:3)"; empty for an address that is in no
/// buffer and not beside one.
std::string place_in_buffer(const void* address) {
    const Buffer* const buffer = buffer_around(address);
    if (!buffer) return "";
    const char* const p = static_cast<const char*>(address);
    const char* const end = buffer->data + buffer->bytes;
    const std::string distance = p < buffer->data
                                     ? std::to_string(buffer->data - p) + " bytes before"
                                 : p < end ? std::to_string(p - buffer->data) + " bytes into"
                                           : std::to_string(p - end) + " bytes past the end of";
    const std::string name =
        buffer->name.empty() ? "buffer " + std::to_string(buffer->number) : buffer->name;
    return distance + " " + name + " (" + std::to_string(buffer->bytes) + " bytes, allocated in " +
           buffer->file + ":" + std::to_string(buffer->line) +
           (buffer->freed ? ", freed since)" : ")");
}

std::string place_in_block(const void* address) {
    if (below_a_stack(address)) return "which its local variables overflowed its stack to reach";
    const std::string left = block_that_left(address);
    if (!left.empty()) return "in shared memory of block " + left + ", which has left the kernel";
    const auto offset = bytes_into_dynamic_shared(address);
    return offset ? std::to_string(*offset) + " bytes into the block's dynamic shared memory of " +
                        std::to_string(running_launch->shared_bytes) + " bytes"
                  : "";
}

}  // namespace

std::string describe(const void* address) {
    std::string place = place_in_block(address);
    if (place.empty()) place = place_in_buffer(address);
    if (place.empty()) place = "in no buffer of device memory";
    char number[32];
    std::snprintf(number, sizeof number, "%p", address);
    return std::string("address ") + number + ", " + place;
}

namespace {

/// Whether a SIGSEGV was a write or a read, as the processor says.
const char* kind_of_access([[maybe_unused]] const ucontext_t* context) {
#if defined __x86_64__
    return context->uc_mcontext.gregs[REG_ERR] & 2 ? "write to" : "read of";
#elif defined __aarch64__
    const auto* record = reinterpret_cast<const _aarch64_ctx*>(context->uc_mcontext.__reserved);
    while (record->magic && record->magic != ESR_MAGIC)
        record = reinterpret_cast<const _aarch64_ctx*>(
            reinterpret_cast<const unsigned char*>(record) + record->size);
    if (record->magic)
        return reinterpret_cast<const esr_context*>(record)->esr & 1 << 6 ? "write to" : "read of";
#endif
    return "access to";
}

/// Handles SIGSEGV, SIGBUS and SIGFPE.
void on_fault(int signal, siginfo_t* info, void* context) {
    const char* const access =
        signal == SIGSEGV ? kind_of_access(static_cast<ucontext_t*>(context)) : "access to";
    const Buffer* const buffer = buffer_around(info->si_addr);
    const bool only_reads =
        buffer && buffer->protection == PROT_READ &&
        size_t(static_cast<char*>(info->si_addr) - buffer->pages) < buffer->pages_bytes;
    const char* const rule = only_reads ? ", which kernels may only read" : "";
    if (running_launch) {
        if (signal == SIGFPE) fail(3, "integer division by zero");
        if (info->si_code == SI_KERNEL)  // x86 does not say where
            fail(3, "access to a misaligned or an impossible address");
        fail(3, "%s %s%s", access, describe(info->si_addr).c_str(), rule);
    }
    if (signal == SIGSEGV && buffer)
        fail(3, "host code: %s %s%s; the host has to cudaMemcpy it", access,
             describe(info->si_addr).c_str(), rule);
    ::signal(signal, SIG_DFL);  // none of ours: what the host did happens again, and ends it
}

struct FaultHandler {
    FaultHandler() {
        use_own_signal_stack();
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, nullptr);
    }
} fault_handler;

}  // namespace
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
