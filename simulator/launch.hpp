// What translate.py's output calls: launches and dynamic shared memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/driver_types.h"
#include "cuda/vector_types.h"
#include "graphs.hpp"

namespace simulator {

/// kernel<<<grid, block, shared_bytes, stream>>>, and where it stands.
struct Launch {
    const char* kernel;
    const char* arguments;  // as the launch spells them
    const char* file;
    int line;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    unsigned int cluster = 1;  // blocks of one

    /// A tile kernel's launch may leave out all but the grid.
    Launch(const char* kernel, const char* arguments, const char* file, int line, dim3 grid,
           dim3 block = {}, size_t shared_bytes = 0, cudaStream_t stream = nullptr)
        : kernel(kernel),
          arguments(arguments),
          file(file),
          line(line),
          grid(grid),
          block(block),
          shared_bytes(shared_bytes),
          stream(stream) {}

    /// The kernel, without the parentheses that its text comes in.
    std::string name() const { return std::string(kernel + 1, std::strlen(kernel) - 2); }
};

/// Runs `thread(call)` for every thread of the grid. What is wrong with the configuration becomes
/// cudaGetLastError()'s. `function` is the kernel as cudaFuncSetAttribute() knows it, or null.
void run_grid(const Launch& launch, const void* function, void (*thread)(const void*),
              const void* call);

/// Fails if the launch's argument is a pointer to the host's heap or stack.
void check_pointer(const Launch& launch, size_t index, const void* pointer);

template <class Call, class... Parameters>
void launch_with(const Launch& launch, const void* function, const Call& call,
                 const std::tuple<Parameters...>& parameters) {
    size_t index = 0;
    auto check = [&](const auto& parameter) {
        ++index;
        if constexpr (std::is_pointer_v<std::decay_t<decltype(parameter)>>)
            check_pointer(launch, index, reinterpret_cast<const void*>(parameter));
    };
    std::apply([&](const auto&... each) { (check(each), ...); }, parameters);
    const std::pair<const Call&, const std::tuple<Parameters...>&> bound(call, parameters);
    run_grid(
        launch, function,
        [](const void* p) {
            const auto& [call, parameters] = *static_cast<decltype(&bound)>(p);
            []<size_t... i>(const auto& call, const auto& all, std::index_sequence<i...>) {
                call(std::get<i>(all)...);
            }
            (call, parameters, std::index_sequence_for<Parameters...>());
        },
        &bound);
}

/// A kernel with parameters P, given N arguments. The second argument makes the call's validity
/// depend on a template, so that SIMULATOR_LAUNCH can ask for it.
template <class... P>
auto pointer_to(void (*kernel)(P...), auto) {
    return kernel;
}

/// Runs `call`; or, while its stream is being captured, notes `later`.
template <class Call, class Later, class... Parameters>
void launch_or_note(const Launch& launch, const void* function, const Call& call,
                    const Later& later, const std::tuple<Parameters...>& parameters) {
    if (!noted_for_graph(launch.stream, [=] { launch_with(launch, function, later, parameters); }))
        launch_with(launch, function, call, parameters);
}

template <class Call, class... P, class... Arguments>
void launch(const Launch& launch, void (*kernel)(P...), const Call& call,
            Arguments&&... arguments) {
    const void* const function = reinterpret_cast<const void*>(kernel);
    if constexpr (sizeof...(P) == sizeof...(Arguments))  // converted once, as CUDA does it
        launch_or_note(launch, function, call, kernel,
                       std::tuple<std::remove_cv_t<P>...>(std::forward<Arguments>(arguments)...));
    else  // default arguments
        launch_or_note(
            launch, function, call, call,
            std::tuple<std::decay_t<Arguments>...>(std::forward<Arguments>(arguments)...));
}
template <class Call, class... Arguments>  // a template whose arguments the call deduces
void launch(const Launch& launch, std::nullptr_t, const Call& call, Arguments&&... arguments) {
    launch_or_note(launch, nullptr, call, call,
                   std::tuple<std::decay_t<Arguments>...>(std::forward<Arguments>(arguments)...));
}

}  // namespace simulator

#define SIMULATOR_UNPACK(...) __VA_ARGS__
#define SIMULATOR_REST(...) __VA_OPT__(, ) __VA_ARGS__

/// kernel<<<config>>>(arguments), each of the three in parentheses.
#define SIMULATOR_LAUNCH(demo_kernel, demo_config, demo_arguments)                             \
    ::simulator::launch(                                                                       \
        ::simulator::Launch(#demo_kernel, #demo_arguments, __FILE__, __LINE__,                 \
                            SIMULATOR_UNPACK demo_config),                                     \
        [&](auto demo_tag) {                                                                   \
            if constexpr (requires {                                                           \
                              ::simulator::pointer_to(SIMULATOR_UNPACK demo_kernel, demo_tag); \
                          })                                                                   \
                return ::simulator::pointer_to(SIMULATOR_UNPACK demo_kernel, demo_tag);        \
            else                                                                               \
                return nullptr;                                                                \
        }(0),                                                                                  \
        [&](const auto&... demo_parameters) {                                                  \
            (SIMULATOR_UNPACK demo_kernel)(demo_parameters...);                                \
        } SIMULATOR_REST demo_arguments)
