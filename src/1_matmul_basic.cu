// 1: Matrix multiplication, C = A B, with one thread per element of C.
//
// A GPU runs a kernel: one function, executed by many threads at once. Threads come in blocks (here
// 32 x 32 threads), blocks in a grid that covers the matrix:
//
//          grid: N/32 x N/32 blocks            block: 32 x 32 threads
//          +-----+-----+-----+-----+           . . . . . . . .
//          | 0,0 | 1,0 | 2,0 | 3,0 |  ------>  . . . . . . . .   each dot: one thread, which
//          +-----+-----+-----+-----+           . . . . . . . .   computes one element of C
//          | 0,1 | 1,1 | 2,1 | 3,1 |           . . . . . . . .
//          +-----+-----+-----+-----+
//
// Each thread keeps its sum in a register until it is complete and stores it once: the output stays
// where it is while A and B stream past it ("output-stationary").
//
// The CPU (host) and the GPU (device) have memories of their own, so the data is copied over before
// and the result back after. Every CUDA call is written out here, and only here: cudaMalloc,
// cudaMemcpy, the launch, cudaFree. The later programs leave that to small helpers.
//
// What limits it: for each multiply-add, a thread loads two numbers. The 32 threads of a warp share
// A's element and read 32 neighbours of B, so the caches help, but every thread still asks for all
// 2 N numbers by itself. 2_matmul_sharedmem loads each of them once per block instead.
#include <chrono>
#include <vector>

#include "demo.cuh"
#include "demo/matmul.cuh"

constexpr int kBlock = 32;  // a block is kBlock x kBlock threads

__global__ void matmul_basic(const float* A,  // [N, N] row-major
                             const float* B,  // [N, N] row-major
                             float* C,        // [N, N] row-major
                             size_t N) {
    const size_t row = size_t(blockIdx.y) * kBlock + threadIdx.y;
    const size_t col = size_t(blockIdx.x) * kBlock + threadIdx.x;

    float sum = 0;
    for (size_t k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
    C[row * N + col] = sum;
}

int main(int argc, char** argv) {
    const demo::Options options = demo::parse_command_line(
        argc, argv,
        {"1_matmul_basic", "C = A B in fp32, one thread per element", {"matmul_basic"}});
    const demo::Gpu gpu(options);
    const size_t N = options.n;
    demo::require_memory(
        options, [&](size_t n) { return demo::matmul_bytes<float>(options, gpu, n); },
        [](size_t n) { return demo::saturating_product(3, n, n, sizeof(float)); });
    demo::Report report(options, gpu, "N = " + std::to_string(N) + ", fp32");

    // The matrices in host memory.
    const size_t bytes = N * N * sizeof(float);
    std::vector<float> host_A(N * N), host_B(N * N), host_C(N * N);
    for (size_t i = 0; i < N * N; ++i) host_A[i] = demo::random_uniform(options.seed, i);
    for (size_t i = 0; i < N * N; ++i) host_B[i] = demo::random_uniform(options.seed + 1, i);

    // The matrices in device memory: the host holds their addresses, but cannot read through them.
    float *A, *B, *C;
    DEMO_CHECK(cudaMalloc(&A, bytes));
    DEMO_CHECK(cudaMalloc(&B, bytes));
    DEMO_CHECK(cudaMalloc(&C, bytes));

    // Host to device. This takes longer than many kernels do, so data should stay on the device.
    using Clock = std::chrono::steady_clock;
    auto ms_since = [](Clock::time_point start) {
        return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    };
    const auto to_device = Clock::now();
    DEMO_CHECK(cudaMemcpy(A, host_A.data(), bytes, cudaMemcpyHostToDevice));
    DEMO_CHECK(cudaMemcpy(B, host_B.data(), bytes, cudaMemcpyHostToDevice));
    const double to_device_ms = ms_since(to_device);

    // The launch: how many blocks, of how many threads. It returns at once; the GPU works
    // meanwhile.
    const dim3 block(kBlock, kBlock);
    const dim3 grid(N / kBlock, N / kBlock);
    auto launch = [&] { matmul_basic<<<grid, block>>>(A, B, C, N); };

    // Verify C against an fp64 reference, and time the kernel.
    {
        const demo::MatmulReference reference(A, B, N, N, N, options.seed);
        report.run(demo::matmul_workload<float>(N, "fp32"),
                   {{"matmul_basic", reference.check(C), launch}});
    }

    // Device to host.
    const auto to_host = Clock::now();
    DEMO_CHECK(cudaMemcpy(host_C.data(), C, bytes, cudaMemcpyDeviceToHost));
    const double to_host_ms = ms_since(to_host);

    const std::string blocks = std::to_string(N / kBlock);
    report.note("grid: (" + blocks + " x " + blocks + ") blocks of (32 x 32) threads");
    report.note("copies: A and B to the device " + demo::four_digits(to_device_ms) +
                " ms, C back " + demo::four_digits(to_host_ms) + " ms");

    DEMO_CHECK(cudaFree(A));
    DEMO_CHECK(cudaFree(B));
    DEMO_CHECK(cudaFree(C));
    return report.exit_code();
}
