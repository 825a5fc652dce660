// Activations for kernels to take as a template parameter, as lesson 10 teaches it: on the GPU in
// float, in the reference in double, and cuBLASLt's name for the one in its epilogue.
#pragma once

#include <cublasLt.h>

#include "error_bounds.hpp"

namespace demo {

struct Relu {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_RELU;
    static __device__ float of(float v) { return v < 0 ? 0 : v; }  // a NaN stays a NaN
    static DEMO_HOST_DEVICE double exact(double v) { return v < 0 ? 0 : v; }
};
struct Sigmoid {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_DEFAULT;  // it has none
    static __device__ float of(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
    static DEMO_HOST_DEVICE double exact(double v) { return 1 / (1 + exp(-v)); }
};
struct Gelu {  // by tanh
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_GELU;
    static __device__ float of(float v) {
        const float a = 0.79788456f * (v + 0.044715f * v * v * v);
        return fmaxf(v, -3.4028235e38f) * Sigmoid::of(2.0f * a);  // see 10_add_mul_activation
    }
    static DEMO_HOST_DEVICE double exact(double v) {
        return 0.5 * v * (1 + tanh(0.79788456 * (v + 0.044715 * v * v * v)));
    }
};
struct None {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_DEFAULT;
    static __device__ float of(float v) { return v; }
    static DEMO_HOST_DEVICE double exact(double v) { return v; }
};

}  // namespace demo
