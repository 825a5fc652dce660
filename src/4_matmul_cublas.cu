// 4: Matrix multiplication, C = A B, by the library: cuBLAS.
//
// One call, near the GPU's peak: cuBLAS holds many kernels for every GPU and picks one for this
// size and type. Three types, side by side:
//
//   fp32   the same numbers as in 1 and 2, on the ordinary arithmetic units
//   TF32   fp32 in memory, but the tensor cores read only 10 of the 23 bits behind the point
//   fp16   16-bit numbers in memory, as in 3; the sums are still fp32
//
// cuBLAS takes column-major matrices, ours are row-major. Read column by column, a row-major A is
// its transpose; and since C^T = B^T A^T, handing over B first and A second gives our C.
//
// The handle and its workspace are made once, and the first call loads kernels: both stay outside
// the timing. The library wins any single matmul. What it cannot do is look past the end of its
// call: see 5_gating_unfused.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/matmul.cuh"

namespace matmul_cublas {

template <class T>
void gemm(cublasHandle_t handle, cublasComputeType_t compute,
          const T* A,  // [N, N] row-major
          const T* B,  // [N, N] row-major
          T* C,        // [N, N] row-major
          size_t N) {
    const cudaDataType type = std::is_same_v<T, float>  ? CUDA_R_32F
                              : std::is_same_v<T, half> ? CUDA_R_16F
                                                        : CUDA_R_16BF;
    const int n = int(N);
    const float alpha = 1, beta = 0;  // C = alpha * A B + beta * C
    DEMO_CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, B, type, n, A, type,
                            n, &beta, C, type, n, compute, CUBLAS_GEMM_DEFAULT));
}

}  // namespace matmul_cublas

#ifndef MATMUL_CUBLAS_NO_MAIN

/// Rounds to the nearest number with 10 bits behind the point, which TF32 represents exactly: so
/// all that is left to verify is the arithmetic.
__global__ void round_to_tf32(float* data, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) data[i] = __uint_as_float((__float_as_uint(data[i]) + 0x1000) & ~0x1FFFu);
}

template <class T>
void run(const demo::Options& options, demo::Report& report, const std::string& kernel,
         const std::string& dtype, cublasComputeType_t compute) {
    if (!options.wants(kernel)) return;
    const size_t N = options.n;
    const demo::Cublas cublas;
    demo::Buffer<T> A(N * N), B(N * N), C(N * N);
    demo::fill_uniform(A, options.seed);
    demo::fill_uniform(B, options.seed + 1);
    if constexpr (sizeof(T) == 4) {
        if (dtype == "tf32") {
            for (float* matrix : {A.data(), B.data()})
                round_to_tf32<<<N * N / 256, 256>>>(matrix, N * N);
            DEMO_CHECK(cudaGetLastError());
        }
    }
    const demo::MatmulReference reference(A.data(), B.data(), N, N, N, options.seed);
    auto launch = [&] { matmul_cublas::gemm(cublas, compute, A.data(), B.data(), C.data(), N); };
    report.run(demo::matmul_workload<T>(N, dtype), {{kernel, reference.check(C.data()), launch}});
}

int main(int argc, char** argv) {
    const demo::Options options =
        demo::parse_command_line(argc, argv,
                                 {"4_matmul_cublas",
                                  "C = A B by cuBLAS, in fp32, TF32 and fp16",
                                  {"cublas_fp32", "cublas_tf32", "cublas_fp16"}});
    const demo::Gpu gpu(options);
    demo::require_memory(options, [&](size_t n) {
        return demo::matmul_bytes<float>(options, gpu, n, demo::kCublasWorkspace);
    });
    demo::Report report(options, gpu, "N = " + std::to_string(options.n) + ", fp32, TF32, fp16");

    run<float>(options, report, "cublas_fp32", "fp32", CUBLAS_COMPUTE_32F);
    run<float>(options, report, "cublas_tf32", "tf32", CUBLAS_COMPUTE_32F_FAST_TF32);
    run<half>(options, report, "cublas_fp16", "fp16", CUBLAS_COMPUTE_32F);
    return report.exit_code();
}

#endif
