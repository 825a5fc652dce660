// Bonus: C = A B on the tensor cores by mma.sync, portable: compute capability 7.5 to 12.0.
#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/matmul.cuh"
#include "kernels/matmul_mma.cuh"

static void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<half> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<half> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    session.run(
        demo::matmul_workload<half>(N), reference.check(C),
        {{"mma_ptx", demo::Role::kOurs, matmul_mma::prepare_mma_ptx<half>(A, B, C, N, session.gpu)},
         demo::cublas_contender<half>("cublas_fp16", A, B, C, N)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_matmul_mma",
                                .summary = "C = A B by mma.sync, step by step, fp16 with fp32 sums",
                                .types = {{"fp16", run}}};
    return demo::main_of(program, argc, argv);
}
