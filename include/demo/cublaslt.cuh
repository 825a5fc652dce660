// cuBLASLt: gemms by the fastest of the algorithms that the library proposes.
#pragma once

#include <cublasLt.h>

#include "choose.cuh"
#include "cublas.cuh"

namespace demo {

/// A cuBLASLt handle with its workspace. cuBLASLt is cuBLAS with more to say: it can add a bias and
/// apply an activation before it stores, and it lists several algorithms for one problem.
struct CublasLt {
    cublasLtHandle_t handle = nullptr;
    Buffer<char> workspace{kCublasWorkspace};
    CublasLt() { DEMO_CHECK(cublasLtCreate(&handle)); }
    ~CublasLt() {
        if (handle) cublasLtDestroy(handle);
    }
    CublasLt(const CublasLt&) = delete;
};

/// A product, all row-major: out = activation(scale x W + bias), summed in fp32; doubles and int8_t
/// in their own kind. `add`: out's old numbers are added before the activation.
template <class T, class Out = T>
struct LtProduct {
    const T *x, *W;  // [M, K], [K, N]
    Out* out;        // [M, N]
    size_t M, K, N;
    const T* bias = nullptr;                                    // [N]
    cublasLtEpilogue_t activation = CUBLASLT_EPILOGUE_DEFAULT;  // or ..._RELU, ..._GELU (by tanh)
    float scale = 1;
    bool add = false;
    size_t out_pitch = 0;  // elements from row to row of out; 0: N
    bool turned = false;   // W is [N, K]
    bool tf32 = true;      // of floats: by the tensor cores' TF32
    bool fast = false;     // of fp8: all of a sum in the tensor cores, with their few bits
};

/// A product by cuBLASLt. As in lesson 4, the library sees column-major matrices: out^T = W^T x^T.
/// The constructor keeps the fastest algorithm that it proposes, timed with `prepare` before each
/// launch.
template <class T, class Out = T>
class LtGemm {
    static constexpr bool kDouble = std::is_same_v<T, double>, kInt8 = std::is_same_v<T, int8_t>;
    using Scalar = std::conditional_t<kDouble, double, std::conditional_t<kInt8, int32_t, float>>;

  public:
    LtGemm(const CublasLt& library, const LtProduct<T, Out>& product,
           const std::function<void()>& prepare = {})
        : library_(library), product_(product) {
        const auto& [x, W, out, M, K, N, bias, activation, scale, add, out_pitch, turned, as_tf32,
                     fast] = product;
        const bool tf32 = std::is_same_v<T, float> && as_tf32;
        const cublasComputeType_t compute = kDouble ? CUBLAS_COMPUTE_64F
                                            : kInt8 ? CUBLAS_COMPUTE_32I
                                            : tf32  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                    : CUBLAS_COMPUTE_32F;
        DEMO_CHECK(cublasLtMatmulDescCreate(&operation_, compute, kCudaType<Scalar>));
        if (fast) {
            const int8_t on = 1;
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                                      &on, sizeof on));
        }
        const cudaDataType type = kCudaType<T>;
        const size_t pitch = out_pitch ? out_pitch : N;
        if (turned) {
            const cublasOperation_t transpose = CUBLAS_OP_T;
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                      &transpose, sizeof transpose));
        }
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_W_, type, turned ? K : N, turned ? N : K,
                                              turned ? K : N));
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_x_, type, K, M, K));
        DEMO_CHECK(cublasLtMatrixLayoutCreate(&layout_out_, kCudaType<Out>, N, M, pitch));
        // Flags, but for DEFAULT, which is 1: with that flag the library forgets the bias.
        const auto epilogue = !bias ? activation
                              : activation == CUBLASLT_EPILOGUE_DEFAULT
                                  ? CUBLASLT_EPILOGUE_BIAS
                                  : cublasLtEpilogue_t(activation | CUBLASLT_EPILOGUE_BIAS);
        DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                  &epilogue, sizeof epilogue));
        if (bias)
            DEMO_CHECK(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                      &bias, sizeof bias));
        const size_t workspace = library.workspace.bytes();
        cublasLtMatmulPreference_t preference;
        DEMO_CHECK(cublasLtMatmulPreferenceCreate(&preference));
        DEMO_CHECK(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
        // An algorithm may divide a sum among blocks. Unless told, it may round its parts to T
        // before it adds them up. And with a bias (as cuBLASLt 13.1 does) it rounds the sum to T,
        // adds the bias, and rounds again. A second rounding, by 2^-11 in fp16, is within what the
        // bounds allow a sum from K = 8192 on: accumulation_error() is some K 2^-24 of it.
        const bool divide = !bias || tf32 || K >= 8192;
        const uint32_t reductions =
            divide ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
        DEMO_CHECK(cublasLtMatmulPreferenceSetAttribute(preference,
                                                        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &reductions, sizeof reductions));
        cublasLtMatmulHeuristicResult_t proposals[8];
        int count = 0;
        DEMO_CHECK(cublasLtMatmulAlgoGetHeuristic(library.handle, operation_, layout_W_, layout_x_,
                                                  layout_out_, layout_out_, preference, 8,
                                                  proposals, &count));
        DEMO_CHECK(cublasLtMatmulPreferenceDestroy(preference));

        double best = 0;
        for (int i = 0; i < count; ++i) {
            if (multiply(proposals[i].algo, nullptr) != CUBLAS_STATUS_SUCCESS) continue;
            const auto launch = [&] { multiply(proposals[i].algo, nullptr); };
            const double ms = quick_time(launch, prepare, 100);
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

    void operator()(cudaStream_t stream = nullptr) const {
        DEMO_CHECK(multiply(algorithm_, stream));
    }

  private:
    cublasStatus_t multiply(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
        const LtProduct<T, Out>& p = product_;
        const Scalar scale = Scalar(p.scale), beta = p.add ? 1 : 0;
        return cublasLtMatmul(library_.handle, operation_, &scale, p.W, layout_W_, p.x, layout_x_,
                              &beta, p.out, layout_out_, p.out, layout_out_, &algorithm,
                              library_.workspace.data(), library_.workspace.bytes(), stream);
    }

    const CublasLt& library_;
    const LtProduct<T, Out> product_;
    cublasLtMatmulDesc_t operation_;
    cublasLtMatrixLayout_t layout_W_, layout_x_, layout_out_;
    cublasLtMatmulAlgo_t algorithm_;
};

/// The yardstick of matmuls at its best: C = A B, all [N, N] row-major, as `cublas` does it or by
/// an algorithm that cuBLASLt proposes, whichever is the fastest with an empty cache.
template <class T>
Contender cublas_best_contender(const std::string& name, const Contender& cublas, const Gpu& gpu,
                                const T* A, const T* B, T* C, size_t N) {
    const auto library = std::make_shared<CublasLt>();
    auto choose = [=, launch = cublas.launch, flush_bytes = gpu.flush_bytes()](Contender& self) {
        const Buffer<char> flushed(kSimulator ? 1 : flush_bytes);
        auto flush = [&] { DEMO_CHECK(cudaMemsetAsync(flushed.data(), 0, flushed.bytes())); };
        const auto gemm =
            std::make_shared<LtGemm<T>>(*library, LtProduct<T>{A, B, C, N, N, N}, flush);
        self.launch = [library, gemm] { (*gemm)(); };
        self.note = "by cublasLtMatmul";
        if (kSimulator || quick_time(self.launch, flush) < quick_time(launch, flush)) return;
        self.launch = launch;
        self.note = "by cublasGemmEx";
    };
    return {.kernel = name, .role = Role::kYardstick, .setup = choose, .repeatable = false};
}

}  // namespace demo
