// cuBLAS's part in the programs that call it: what to say when a call fails, handle and workspace.
#pragma once

#include <cublas_v2.h>

#include "device.cuh"

namespace demo {

/// Exits with one line if a cuBLAS or cuBLASLt call failed.
inline void check(cublasStatus_t status, const std::string& call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(status == CUBLAS_STATUS_ARCH_MISMATCH ? kSkipped : kFailed,
         call + ": " + cublasGetStatusName(status) + ": " + cublasGetStatusString(status));
}

/// Scratch memory for cuBLAS, in bytes: what it would take by itself on a large GPU.
inline constexpr size_t kCublasWorkspace = size_t(32) << 20;

/// A cuBLAS handle with its workspace, made once and outside of all timing.
class Cublas {
  public:
    Cublas() : workspace_(kCublasWorkspace) {
        DEMO_CHECK(cublasCreate(&handle_));
        DEMO_CHECK(cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes()));
    }
    ~Cublas() { cublasDestroy(handle_); }
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;

    operator cublasHandle_t() const { return handle_; }

  private:
    Buffer<char> workspace_;
    cublasHandle_t handle_ = nullptr;
};

}  // namespace demo
