// Races show as results that change: the kernels of bonus_matmul_hopper and fused_hopper, 200 times
// each. Needs a Hopper GPU; elsewhere it exits with 77 and the reason, as the program does.
#include <gtest/gtest.h>

// The program's own main() gets another name, since the test has one.
#define main program_main
#include "bonus_matmul_hopper.cu"
#undef main
#include "gating/gating_hopper.cuh"
#include "test_session.cuh"

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

/// Launches a kernel that writes `out`, a Buffer or an Output, many times.
template <class Memory>
void expect_the_same_bits(demo::Contender kernel, const Memory& out) {
    kernel.setup(kernel);
    const demo::Buffer<char> first(out.bytes());
    demo::Buffer<int> differences(1);
    DEMO_CHECK(cudaMemset(differences.data(), 0, sizeof(int)));
    for (int run = 0; run < kRuns; ++run) {
        DEMO_CHECK(cudaMemsetAsync(out.data(), 0xFF, out.bytes()));
        kernel.launch();
        DEMO_CHECK(cudaGetLastError());
        if (run == 0)
            DEMO_CHECK(
                cudaMemcpyAsync(first.data(), out.data(), out.bytes(), cudaMemcpyDeviceToDevice));
        count_differences<<<1024, 256>>>(reinterpret_cast<const uint4*>(out.data()),
                                         reinterpret_cast<const uint4*>(first.data()),
                                         out.bytes() / sizeof(uint4), differences.data());
    }
    int count = -1;
    DEMO_CHECK(cudaMemcpy(&count, differences.data(), sizeof count, cudaMemcpyDeviceToHost));
    EXPECT_EQ(count, 0) << kernel.kernel;
}

constexpr size_t kSizes[] = {160, 2080, 4096};  // at 2080 the matmul's tiles are divided

template <class T>
class Hopper : public testing::Test {};
using Types = testing::Types<half, __nv_bfloat16>;
TYPED_TEST_SUITE(Hopper, Types);

TYPED_TEST(Hopper, TheSameDataGiveTheSameBits) {
    for (size_t N : kSizes) {
        SCOPED_TRACE("N = " + std::to_string(N));
        demo::Buffer<TypeParam> A(N * N), B(N * N), C(N * N);
        demo::fill_uniform(A, 1);
        demo::fill_uniform(B, 2);
        const matmul_hopper::ExchangeBuffers exchange(gpu->multiprocessors);
        const auto operands = [&]() -> matmul_hopper::Operands<TypeParam> {
            return {A.data(), B.data(), C.data(), N, exchange};
        };
        for (const demo::Contender& kernel :
             matmul_hopper::contenders<TypeParam>(operands, gpu->multiprocessors, ""))
            expect_the_same_bits(kernel, C);
    }
}

TEST(HopperGating, TheSameDataGiveTheSameBits) {
    for (size_t N : kSizes) {
        SCOPED_TRACE("N = " + std::to_string(N));
        demo_test::Session session;
        const demo::Gating gating(session, demo::GatingShape::square(N));
        expect_the_same_bits(gating_hopper::contender(gating, *gpu), gating.out);
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
