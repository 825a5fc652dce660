// cuBLASLt: gemms by the fastest of the algorithms that the library proposes.
#pragma once

#include <cublasLt.h>

#include "choose.cuh"
#include "cublas.cuh"

namespace demo {

/// A cuBLASLt handle with its workspace. cuBLASLt is cuBLAS with more to say: it can add a bias
/// before it stores, and it lists several algorithms for one problem.
struct CublasLt {
    cublasLtHandle_t handle = nullptr;
    Buffer<char> workspace{kCublasWorkspace};
    CublasLt() { DEMO_CHECK(cublasLtCreate(&handle)); }
    ~CublasLt() {
        if (handle) cublasLtDestroy(handle);
    }
    CublasLt(const CublasLt&) = delete;
};

/// out[M, N] = x[M, K] W[K, N] (+ bias[N]) by cuBLASLt, all row-major fp16 (or bfloat16), summed in
/// fp32. As in lesson 4, the library sees column-major matrices: out^T = W^T x^T. Of the
/// algorithms that it proposes the constructor keeps the one that proves fastest.
template <class T>
class LtGemm {
  public:
    LtGemm(const CublasLt& library, const T* x, const T* W, const T* bias, T* out, size_t M,
           size_t K, size_t N)
        : library_(library), x_(x), W_(W), out_(out) {
        DEMO_CHECK(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        const cudaDataType type = kCudaType<T>;
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_W_, type, N, K, N));
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_x_, type, K, M, K));
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_out_, type, N, M, N));
        if (bias) {
            const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                      &epilogue, sizeof epilogue));
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                      &bias, sizeof bias));
        }
        const size_t workspace = library.workspace.bytes();
        cublasLtMatmulPreference_t preference;
        DEMO_CHECK(cublasLtMatmulPreferenceCreate(&preference));
        DEMO_CHECK(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
        cublasLtMatmulHeuristicResult_t proposals[8];
        int count = 0;
        DEMO_CHECK(cublasLtMatmulAlgoGetHeuristic(library.handle, operation_, layout_W_, layout_x_,
                                                  layout_out_, layout_out_, preference, 8,
                                                  proposals, &count));
        DEMO_CHECK(cublasLtMatmulPreferenceDestroy(preference));

        double best = 0;
        for (int i = 0; i < count; ++i) {
            if (multiply(proposals[i].algo) != CUBLAS_STATUS_SUCCESS) continue;
            const double ms = quick_time([&] { multiply(proposals[i].algo); });
            if (best == 0 || ms < best) best = ms, algorithm_ = proposals[i].algo;
        }
        if (best == 0) DEMO_CHECK(CUBLAS_STATUS_NOT_SUPPORTED);
    }
    ~LtGemm() {
        cublasLtMatrixLayoutDestroy(layout_W_);
        cublasLtMatrixLayoutDestroy(layout_x_);
        cublasLtMatrixLayoutDestroy(layout_out_);
        cublasLtMatmulDescDestroy(operation_);
    }
    LtGemm(const LtGemm&) = delete;

    void operator()() const { DEMO_CHECK(multiply(algorithm_)); }

  private:
    cublasStatus_t multiply(const cublasLtMatmulAlgo_t& algorithm) const {
        const float alpha = 1, beta = 0;
        return cublasLtMatmul(library_.handle, operation_, &alpha, W_, layout_W_, x_, layout_x_,
                              &beta, out_, layout_out_, out_, layout_out_, &algorithm,
                              library_.workspace.data(), library_.workspace.bytes(), nullptr);
    }

    const CublasLt& library_;
    const T *x_, *W_;
    T* out_;
    cublasLtMatmulDesc_t operation_;
    cublasLtMatrixLayout_t layout_W_, layout_x_, layout_out_;
    cublasLtMatmulAlgo_t algorithm_;
};
/// The yardstick of matmuls: C = A B by the best of cuBLASLt, all [N, N] row-major.
template <class T>
Contender cublaslt_contender(const std::string& name, const T* A, const T* B, T* C, size_t N) {
    const auto library = std::make_shared<CublasLt>();
    return {.kernel = name,
            .role = Role::kYardstick,
            .setup =
                [=](Contender& self) {
                    const auto gemm =
                        std::make_shared<LtGemm<T>>(*library, A, B, nullptr, C, N, N, N);
                    self.launch = [library, gemm] { (*gemm)(); };
                },
            .repeatable = false};
}

}  // namespace demo
