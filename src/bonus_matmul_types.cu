// Experiment: C = A B by the library in every type that it multiplies, from fp64 to fp8.
//
// GPUs are compared by their rate in each type. Here all types stand side by side, each by the
// fastest algorithm that cuBLASLt proposes, and with its part of the data sheet's rate:
//
//                 bits   after the point   sums in
//     fp64          64                52   fp64
//     fp32          32                23   fp32, on the ordinary units; the others on tensor cores
//     tf32          32                10   fp32. It is fp32 in memory, but 13 bits are ignored
//     bf16          16                 7   fp32
//     fp16          16                10   fp32
//     int8_bt        8                 -   int32, exactly
//     fp8_bt         8                 3   some 14 bits, and after every few steps of k in fp32
//     fp8_fast_bt    8                 3   some 14 bits, to the end
//
// _bt: B is passed transposed, so that both operands run along k in memory. Up to Hopper
// the library takes 8-bit types in no other layout. C has the type of A and B; of int8 it is int32,
// of fp8 fp16.
//
//     ./bonus_matmul_types 4096
//
// Each result is verified to within what its sums explain: int8 exactly, fp64 against another sum
// in fp64. demo/error_bounds.hpp derives the bounds (SumsIn). What limits each line:
// docs/experiments/matmul_types.md.
#include <cuda_fp8.h>

#include "demo.cuh"
#include "demo/cublaslt.cuh"
#include "matmul/matmul.cuh"

using fp8 = __nv_fp8_e4m3;  // 4 bits of exponent, 3 after the point

template <>
inline constexpr const char* demo::kTypeName<fp8> = "fp8";

/// A line of the table.
struct Line {
    std::string kernel, dtype;
    int needs = 75;        // compute capability, times 10
    demo::Fill fill = {};  // of A and B
    bool tf32 = false;     // fp32 counts as TF32
    bool turned = false;   // B is transposed
    bool fast = false;     // see LtProduct
};

/// Measures C = A B with A and B of T, and C of Out.
template <class T, class Out = T>
void measure(demo::Session& session, const Line& line) {
    const size_t N = session.n();
    const demo::CublasLt library;
    const demo::Input<T> A(session, "A", {N, N}, line.fill), B(session, "B", {N, N}, line.fill);
    const demo::Output<Out> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B, line.turned);

    auto choose = [&](demo::Contender& self) {
        const demo::LtProduct<T, Out> product{.x = A,
                                              .W = B,
                                              .out = C,
                                              .M = N,
                                              .K = N,
                                              .N = N,
                                              .turned = line.turned,
                                              .tf32 = line.tf32,
                                              .fast = line.fast};
        const auto gemm = std::make_shared<demo::LtGemm<T, Out>>(library, product);
        self.launch = [gemm] { (*gemm)(); };
    };
    const std::string needs = "needs compute capability " + std::to_string(line.needs / 10) + "." +
                              std::to_string(line.needs % 10);
    demo::Workload work = demo::matmul_workload<T>(N, line.dtype);
    work.least_bytes = session.least_bytes();  // C may be of another type than A and B
    session.run(work, reference.check(C),
                {{.kernel = line.kernel,
                  .role = demo::Role::kLibrary,
                  .setup = choose,
                  .repeatable = false,
                  .why_not = session.gpu.compute_capability < line.needs ? needs : ""}});
}

static void run(demo::Session& session) {
    const demo::Fill tf32{.then = demo::Then::kRoundToTf32};  // so that only the sums are inexact
    const demo::Fill integers{.scale = 127};                  // cut to whole numbers
    measure<double>(session, {.kernel = "fp64", .dtype = "fp64"});
    measure<float>(session, {.kernel = "fp32", .dtype = "fp32"});
    measure<float>(session,
                   {.kernel = "tf32", .dtype = "tf32", .needs = 80, .fill = tf32, .tf32 = true});
    measure<__nv_bfloat16>(session, {.kernel = "bf16", .dtype = "bf16", .needs = 80});
    measure<half>(session, {.kernel = "fp16", .dtype = "fp16"});
    measure<int8_t, int32_t>(
        session, {.kernel = "int8_bt", .dtype = "int8", .fill = integers, .turned = true});
    measure<fp8, half>(session, {.kernel = "fp8_bt", .dtype = "fp8", .needs = 89, .turned = true});
    measure<fp8, half>(
        session,
        {.kernel = "fp8_fast_bt", .dtype = "fp8", .needs = 89, .turned = true, .fast = true});
    session.note("_bt: B is passed transposed. Of int8 TFLOP/s counts integer operations");
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_matmul_types",
        .summary = "the library in every type: fp64, fp32, TF32, bf16, fp16, int8, fp8",
        .types = {{"all", run}},
        .sizes = {4096}};
    return demo::main_of(program, argc, argv);
}
