// Experiment: C = A B by the library in every type that a GPU multiplies.
//
// What a GPU is sold by is a rate for each type. This measures them, by cuBLASLt (the fastest of
// the algorithms that it proposes), in one table and with the part of the data sheet's rate:
//
//           bits  after the point  sums in
//     fp64    64   52               fp64, on tensor cores from 8.0 on
//     fp32    32   23               fp32, on the ordinary units
//     TF32    32   10               fp32: in memory an fp32, of which tensor cores read 19 bits
//     bf16    16    7               fp32, with fp32's range
//     fp16    16   10               fp32
//     int8     8    -               int32, exactly
//     fp8      8    3               about 14 bits in the tensor cores, which are added up in fp32
//     fp8_fast 8    3               the same, but all of a sum stays in the tensor cores
//
//     ./bonus_matmul_types 4096
//
// int8 and fp8 have fast kernels for one layout alone: both operands' rows must run along K, so B
// is passed transposed (_bt). C is as its row's inputs; of int8 it is int32, of fp8 fp16.
//
// What limits them: the tensor cores, and from fp16 on the GPU's power, since the narrower the
// type, the more products it makes per byte. docs/experiments/matmul_types.md reads the table line
// by line.
#include <cuda_fp8.h>

#include "demo.cuh"
#include "demo/cublaslt.cuh"
#include "demo/matmul.cuh"

using fp8 = __nv_fp8_e4m3;

template <>
inline constexpr const char* demo::kTypeName<fp8> = "fp8";

/// A line of the table.
struct Line {
    std::string kernel, dtype;
    int needs = 75;        // compute capability
    demo::Fill fill = {};  // of A and B
    demo::Turned turned = demo::Turned::kNo;
    bool tf32 = false, fast = false;
};

/// Measures C = A B with elements of T, and of Out in C.
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
                                              .turned = line.turned == demo::Turned::kYes,
                                              .tf32 = line.tf32,
                                              .fast = line.fast};
        const auto gemm = std::make_shared<demo::LtGemm<T, Out>>(library, product);
        self.launch = [gemm] { (*gemm)(); };
    };
    demo::Workload work = demo::matmul_workload<T>(N, line.dtype);
    work.least_bytes = session.least_bytes();  // C is not always as wide as A and B
    const std::string needed =
        std::to_string(line.needs / 10) + "." + std::to_string(line.needs % 10);
    const bool can = session.gpu.compute_capability >= line.needs;
    session.run(work, reference.check(C),
                {{.kernel = line.kernel,
                  .role = demo::Role::kLibrary,
                  .setup = choose,
                  .repeatable = false,
                  .why_not = can ? "" : "needs compute capability " + needed}});
}

static void run(demo::Session& session) {
    using enum demo::Turned;
    const demo::Fill tf32{.then = demo::Then::kRoundToTf32}, integers{.scale = 127};
    measure<double>(session, {"fp64", "fp64"});
    measure<float>(session, {"fp32", "fp32"});
    measure<float>(session, {"tf32", "tf32", 80, tf32, kNo, true});
    measure<__nv_bfloat16>(session, {"bf16", "bf16", 80});
    measure<half>(session, {"fp16", "fp16"});
    measure<int8_t, int32_t>(session, {"int8_bt", "int8", 75, integers, kYes});
    measure<fp8, half>(session, {"fp8_bt", "fp8", 89, {}, kYes});
    measure<fp8, half>(session, {"fp8_fast_bt", "fp8", 89, {}, kYes, false, true});
    session.note("_bt: takes B transposed. int8's operations are of integers");
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_matmul_types",
                                .summary = "the library in every type, from fp64 to fp8",
                                .types = {{"all", run}}};
    return demo::main_of(program, argc, argv);
}
