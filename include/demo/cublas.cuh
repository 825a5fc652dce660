// cuBLAS for the programs that call it: its errors, its handle, and a gemm to measure others by.
#pragma once

#include <cublas_v2.h>

#include <memory>

#include "data.cuh"

namespace demo {

/// Exits with one line if a cuBLAS or cuBLASLt call failed.
inline void check(cublasStatus_t status, const std::string& call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(status == CUBLAS_STATUS_ARCH_MISMATCH ? kSkipped : kFailed,
         call + ": " + cublasGetStatusName(status) + ": " + cublasGetStatusString(status));
}

/// Scratch memory for cuBLAS, in bytes: what it takes by itself on a large GPU. (The simulator:
/// none.)
inline constexpr size_t kCublasWorkspace = kSimulator ? 1 : size_t(32) << 20;

/// A cuBLAS handle with its workspace, made once and outside of all timing.
class Cublas {
  public:
    Cublas() : workspace_(kCublasWorkspace) {
        DEMO_CHECK(cublasCreate(&handle_));
        DEMO_CHECK(cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes()));
    }
    ~Cublas() {
        if (handle_) cublasDestroy(handle_);
    }
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;

    operator cublasHandle_t() const { return handle_; }

  private:
    Buffer<char> workspace_;
    cublasHandle_t handle_ = nullptr;
};

template <class T>
inline constexpr cudaDataType kCudaType = std::is_same_v<T, double>    ? CUDA_R_64F
                                          : std::is_same_v<T, float>   ? CUDA_R_32F
                                          : std::is_same_v<T, half>    ? CUDA_R_16F
                                          : std::is_same_v<T, int8_t>  ? CUDA_R_8I
                                          : std::is_same_v<T, int32_t> ? CUDA_R_32I
                                          : sizeof(T) == 1             ? CUDA_R_8F_E4M3
                                                                       : CUDA_R_16BF;

/// The yardstick of matmuls: C = A B by cuBLAS as lesson 4 calls it, all [N, N] row-major.
template <class T>
Contender cublas_contender(const std::string& name, const T* A, const T* B, T* C, size_t N) {
    const auto cublas = std::make_shared<Cublas>();
    return {.kernel = name, .role = Role::kYardstick, .launch = [=] {
                const int n = int(N);
                const float alpha = 1, beta = 0;
                DEMO_CHECK(cublasGemmEx(*cublas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, B,
                                        kCudaType<T>, n, A, kCudaType<T>, n, &beta, C, kCudaType<T>,
                                        n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
            }};
}

}  // namespace demo
