// What goes wrong. A call of the runtime API returns an error, which cudaGetLastError() repeats.
// What a GPU would not notice or not survive ends the program, with one line on stderr that says
// where: an access outside of buffers, threads that wait for ever, misuse of a device function.
#pragma once

#include <new>

#include "cuda/driver_types.h"

namespace simulator {

/// Sets what cudaGetLastError() returns, and returns it.
cudaError_t set_error(cudaError_t error);

/// Ends the program: one line on stderr, after the thread of the kernel if one is running.
[[noreturn]] void fail(int exit_code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

/// Calls body(). The program ends where that gets no memory from `new`.
template <class Body>
void fail_without_memory(Body body) {
    try {
        body();
    } catch (const std::bad_alloc&) {
        fail(3, "too little memory");
    }
}

/// Ends the program with 77: a kernel `needs` hardware that has no counterpart here.
[[noreturn]] void unsupported(const char* needs);

}  // namespace simulator
