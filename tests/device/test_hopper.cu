// Races show as results that change: bonus_matmul_hopper's kernels, 200 times each. Needs a Hopper
// GPU; elsewhere it exits with 77 and the reason, as the program does.
#include <gtest/gtest.h>

#define MATMUL_HOPPER_NO_MAIN
#include "bonus_matmul_hopper.cu"

namespace {

constexpr int kRuns = 200;
const demo::Gpu* gpu;

/// Counts the bytes, 16 at a time, in which two results differ.
__global__ void count_differences(const uint4* a, const uint4* b, size_t size, int* differences) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride)
        if (a[i].x != b[i].x || a[i].y != b[i].y || a[i].z != b[i].z || a[i].w != b[i].w)
            atomicAdd(differences, 1);
}

template <class T>
class Hopper : public testing::Test {};
using Types = testing::Types<half, __nv_bfloat16>;
TYPED_TEST_SUITE(Hopper, Types);

TYPED_TEST(Hopper, TheSameDataGiveTheSameBits) {
    for (size_t N : {160, 2080, 4096}) {  // at 2080 tiles are divided
        demo::Buffer<TypeParam> A(N * N), B(N * N), C(N * N), first(N * N);
        demo::fill_uniform(A, 1);
        demo::fill_uniform(B, 2);
        demo::Buffer<int> differences(1);
        DEMO_CHECK(cudaMemset(differences.data(), 0, sizeof(int)));
        const matmul_hopper::ExchangeMemory exchange(gpu->multiprocessors);
        const matmul_hopper::Operands<TypeParam> operands{A.data(), B.data(), C.data(), N,
                                                          exchange};
        for (const demo::Contender& kernel :
             matmul_hopper::contenders(operands, {}, gpu->multiprocessors)) {
            for (int run = 0; run < kRuns; ++run) {
                DEMO_CHECK(cudaMemsetAsync(C.data(), 0xFF, C.bytes()));
                kernel.launch();
                DEMO_CHECK(cudaGetLastError());
                if (run == 0)
                    DEMO_CHECK(cudaMemcpyAsync(first.data(), C.data(), C.bytes(),
                                               cudaMemcpyDeviceToDevice));
                count_differences<<<1024, 256>>>(reinterpret_cast<const uint4*>(C.data()),
                                                 reinterpret_cast<const uint4*>(first.data()),
                                                 C.bytes() / sizeof(uint4), differences.data());
            }
            int count = -1;
            DEMO_CHECK(
                cudaMemcpy(&count, differences.data(), sizeof count, cudaMemcpyDeviceToHost));
            ASSERT_EQ(count, 0) << kernel.kernel << ", N = " << N;
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    demo::program_name = "test_hopper";
    const demo::Gpu here{demo::Options{}};
    gpu = &here;
    const std::string why_not = hopper::why_not(here);
    if (!why_not.empty()) demo::fail(demo::kSkipped, why_not);
    return RUN_ALL_TESTS();
}
