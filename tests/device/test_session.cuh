// A session of no program, in which tests make inputs and outputs.
#pragma once

#include "demo.cuh"

namespace demo_test {

inline const demo::Program kProgram{.name = "test", .summary = "tests", .types = {{"fp16"}}};
inline const demo::Options kOptions{};
inline const demo::Gpu kNoGpu{};

struct Session : demo::Session {
    Session() : demo::Session(kProgram, kOptions, kNoGpu, nullptr) {}
};

}  // namespace demo_test
