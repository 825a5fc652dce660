// Activations for kernels to take as a template parameter, as lesson 10 teaches it, and cuBLASLt's
// name for the one in its epilogue. Exact: the same in double, for the reference.
#pragma once

#include <cublasLt.h>

#include "rows.cuh"

namespace demo {

struct Relu {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_RELU;
    static __device__ float of(float v) { return v < 0 ? 0 : v; }  // a NaN stays a NaN
    using Exact = ExactRelu;
};
struct Sigmoid {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_DEFAULT;  // it has none
    static __device__ float of(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
    using Exact = ExactSigmoid;
};
struct Gelu {  // by tanh
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_GELU;
    static __device__ float of(float v) {
        const float a = 0.79788456f * (v + 0.044715f * v * v * v);
        return fmaxf(v, -3.4028235e38f) * Sigmoid::of(2.0f * a);  // see 10_add_mul_activation
    }
    using Exact = ExactGelu;
};
struct None {
    static constexpr auto kEpilogue = CUBLASLT_EPILOGUE_DEFAULT;
    static __device__ float of(float v) { return v; }
    using Exact = ExactNone;
};

}  // namespace demo
