#include "errors.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <utility>

#include "cuda/cuda_runtime_api.h"
#include "current_thread.hpp"

namespace simulator {
namespace {

constexpr size_t kColumns = 79;  // of a terminal's line

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

// --- Ends of the program ------------------------------------------------------------------------

[[noreturn]] void fail(int exit_code, const char* format, ...) {
    static std::atomic_flag failed;
    while (failed.test_and_set()) pause();  // another thread is about to end the program
    const std::string thread = running_thread();
    std::fflush(stdout);
    char words[1000];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    const bool on_terminal = isatty(STDERR_FILENO);
    std::string text =
        program_invocation_short_name + (": " + thread) + (thread.empty() ? "" : ": ") + words;
    for (size_t begin = 0; on_terminal && text.size() - begin > kColumns;) {
        const size_t blank = text.rfind(' ', begin + kColumns);
        if (blank == std::string::npos || blank <= begin + 2) break;
        text.replace(blank, 1, "\n  ");
        begin = blank + 1;
    }
    std::fprintf(stderr, "%s%s\n", on_terminal ? "\r\033[K" : "", text.c_str());  // over progress
    _exit(exit_code);
}

[[noreturn]] void unsupported(const char* needs) {
    fail(77, "needs %s, which the simulator does not have", needs);
}

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

}  // namespace simulator

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
