// 1: Matrix multiplication, C = A B, with one thread per element of C. Watch: scripts/watch.sh 1
//
// A CPU has three loops: row, column, k. Here the two outer ones are the grid: a kernel is one
// function that many threads run, in blocks (here 32 x 32), and each thread has the loop over k:
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
// and the result back after. Here cudaMalloc, cudaMemcpy, the launch and cudaFree are written out;
// the later programs leave all but the launch to helpers, which also notice writes beside C.
//
// What limits it: two loads for each multiply-add. Threads run in warps of 32, which share A's
// element and read 32 neighbors of B: caches help, but each asks for 2 N. Next: 2_matmul_sharedmem.
// H200, N = 4096, ms: matmul_basic 46.6 (docs/figures.md)
#include "demo.cuh"
#include "matmul/plain_matmul.cuh"

constexpr int kBlock = 32;  // a block is kBlock x kBlock threads

__global__ void matmul_basic(const float* A,  // [N, N] row-major
                             const float* B,  // [N, N] row-major
                             float* C,        // [N, N] row-major
                             size_t N) {
    // x is the column: a warp's 32 threads differ in x, and so read 32 neighbors of B.
    const size_t row = size_t(blockIdx.y) * kBlock + threadIdx.y;
    const size_t col = size_t(blockIdx.x) * kBlock + threadIdx.x;

    float sum = 0;
    for (size_t k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
    C[row * N + col] = sum;
}

static void run(demo::Session& session) {
    // Called twice, first in a dry run that adds up the memory: there DEMO_CHECK calls nothing.
    const size_t N = session.n(), bytes = N * N * sizeof(float);

    // The matrices in host memory: A and B random, C for the result to come.
    demo::HostBuffer<float> host_A(N, N), host_B(N, N), host_C(N, N);
    demo::fill_uniform(host_A, session.options.seed);
    demo::fill_uniform(host_B, session.options.seed + 1);

    // The matrices in device memory: the host holds their addresses, but cannot read through them.
    // (DEMO_CHECK makes a CUDA call and ends the program with one line if it fails.)
    float *A = nullptr, *B = nullptr, *C = nullptr;
    DEMO_CHECK(cudaMalloc(&A, bytes));
    DEMO_CHECK(cudaMalloc(&B, bytes));
    DEMO_CHECK(cudaMalloc(&C, bytes));

    // Host to device. The library multiplies these matrices several times over while they are
    // copied (4_matmul_cublas), so copy rarely.
    const demo::Stopwatch to_device;
    DEMO_CHECK(cudaMemcpy(A, host_A.data(), bytes, cudaMemcpyHostToDevice));
    DEMO_CHECK(cudaMemcpy(B, host_B.data(), bytes, cudaMemcpyHostToDevice));
    const double to_device_ms = to_device.ms();

    // How to launch: a grid of blocks, a block of threads (N is a multiple of 32). session.run()
    // calls this; a launch returns at once, while the GPU works.
    const dim3 block(kBlock, kBlock);
    const dim3 grid(N / kBlock, N / kBlock);
    auto launch = [&] { matmul_basic<<<grid, block>>>(A, B, C, N); };

    // Makes a few rows of A hard (one 8 times larger, one all equal, ...), so that A is no longer
    // quite host_A. Then computes in fp64 what C must be.
    const demo::PlainMatmul matmul(session, A, B, C, N);
    // Launches it once to verify C, then again and again to time it. kOurs: not a library's kernel.
    session.run(demo::matmul_workload<float>(N), matmul.check(),
                {{"matmul_basic", demo::Role::kOurs, launch}});

    // Device to host.
    const demo::Stopwatch to_host;
    DEMO_CHECK(cudaMemcpy(host_C.data(), C, bytes, cudaMemcpyDeviceToHost));
    const double to_host_ms = to_host.ms();

    const std::string blocks = std::to_string(N / kBlock);
    const std::string threads = std::to_string(kBlock);
    session.note("grid: (" + blocks + " x " + blocks + ") blocks of (" + threads + " x " + threads +
                 ") threads");
    session.note("copies: A and B to the device " + demo::time_text(to_device_ms) + ", C back " +
                 demo::time_text(to_host_ms));

    DEMO_CHECK(cudaFree(A));
    DEMO_CHECK(cudaFree(B));
    DEMO_CHECK(cudaFree(C));
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "1_matmul_basic",
        .summary = "C = A B, one thread per element: grid, block, thread; host and device memory",
        .types = {{"fp32", run}},
        .sizes = {1024, 2048, 4096, 8192}};
    return demo::main_of(program, argc, argv);
}
