// 4: Matrix multiplication, C = A B, by the library: cuBLAS.
//
// One call, at 70 to 77% of an H200's peak: cuBLAS picks one of many kernels by size and type. Its
// fp32 is 6 times as fast as lesson 2: each thread sums a tile of C in registers, so a number read
// from shared memory serves many times, and copies run meanwhile. Types, and their peak TFLOP/s:
//
//   fp32    67   the same numbers as in 1 and 2, on the ordinary arithmetic units
//   TF32   495   fp32 in memory, but the tensor cores read only 10 of the 23 bits after the point
//   fp16   990   16-bit numbers in memory, as in 3; the sums are still fp32
//   bf16   990   the same with fp32's range, and 7 bits after the point
//
// cuBLAS takes column-major matrices, ours are row-major. Read column by column, ours are A^T, B^T
// and C^T. Since C^T = B^T A^T, we pass B as the left factor, and A as the right one.
//
// The handle and its workspace are made once, and the first call loads kernels: both stay outside
// the timing. The last row of 3, matmul_hopper, is as fast by hand. What cuBLAS cannot do is look
// past the end of its call: see 5_gating_unfused.
// H200, N = 4096, ms: cublas_fp32 2.68, cublas_tf32 0.366, cublas_fp16 0.199, cublas_bf16 0.186
// (docs/figures.md)
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "matmul/matmul.cuh"

template <class T>
void gemm(cublasHandle_t handle, cublasComputeType_t compute,
          const T* A,  // [N, N] row-major
          const T* B,  // [N, N] row-major
          T* C,        // [N, N] row-major
          size_t N) {
    const cudaDataType type = demo::kCudaType<T>;
    const int n = int(N);
    const float alpha = 1, beta = 0;                           // C = alpha * A B + beta * C
    DEMO_CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N,  // neither is transposed again
                            n, n, n,                           // C^T's rows and columns, and k
                            &alpha, B, type, n,                // left: B^T, n numbers a column
                            A, type, n,                        // right: A^T, likewise
                            &beta, C, type, n, compute, CUBLAS_GEMM_DEFAULT));
}

template <class T>
void compare(demo::Session& session, const std::string& kernel, const std::string& dtype,
             cublasComputeType_t compute, demo::Fill fill = {}) {
    const size_t N = session.n();
    const demo::Cublas cublas;  // the handle, and the workspace: scratch memory for its kernels
    const demo::Input<T> A(session, "A", {N, N}, fill), B(session, "B", {N, N}, fill);  // random
    const demo::Output<T> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);
    auto launch = [&] { gemm<T>(cublas, compute, A, B, C, N); };
    session.run(demo::matmul_workload<T>(N, dtype), reference.check(C),
                {{kernel, demo::Role::kLibrary, launch}});
}

static void run(demo::Session& session) {
    compare<float>(session, "cublas_fp32", "fp32", CUBLAS_COMPUTE_32F);
    // The inputs are rounded to TF32. So the products are exact, and fp32's bound must be met.
    compare<float>(session, "cublas_tf32", "tf32", CUBLAS_COMPUTE_32F_FAST_TF32,
                   {.then = demo::Then::kRoundToTf32});
    compare<half>(session, "cublas_fp16", "fp16", CUBLAS_COMPUTE_32F);
    compare<__nv_bfloat16>(session, "cublas_bf16", "bf16", CUBLAS_COMPUTE_32F);
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "4_matmul_cublas",
                                .summary = "the library: fp32, TF32, fp16 and bf16 side by side",
                                .types = {{"all", run}}};
    return demo::main_of(program, argc, argv);
}
