// A whole CUDA program: c = a + b. The programs in src/ leave all but the kernel to demo.cuh; here
// each step is written out, and nothing else of the project is needed:
//
//     nvcc docs/hello.cu -o hello && ./hello
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// Ends the program if a call failed. Nearly every call of CUDA returns such a code: check them all.
static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "hello: %s: %s\n", what, cudaGetErrorString(error));
    std::exit(3);
}

// The kernel (__global__): the GPU runs it once per thread. Which pair the thread adds, CUDA tells:
// blockIdx is the thread's block, blockDim the threads of a block, threadIdx its place among them.
__global__ void add(const float* a, const float* b, float* c, size_t n) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];  // the last block has more threads than there are pairs left
}

int main() {
    int gpus;
    check(cudaGetDeviceCount(&gpus), "no GPU, or no driver for it");
    const size_t n = 10'000'000, bytes = n * sizeof(float);
    std::vector<float> a(n), b(n, 0.5f), c(n);  // in the host's memory, which the GPU cannot reach
    for (size_t i = 0; i < n; ++i) a[i] = float(i);
    float *gpu_a, *gpu_b, *gpu_c;  // in the GPU's memory, which the host cannot reach
    check(cudaMalloc(&gpu_a, bytes), "memory for a");
    check(cudaMalloc(&gpu_b, bytes), "memory for b");
    check(cudaMalloc(&gpu_c, bytes), "memory for c");
    check(cudaMemcpy(gpu_a, a.data(), bytes, cudaMemcpyHostToDevice), "copying a");
    check(cudaMemcpy(gpu_b, b.data(), bytes, cudaMemcpyHostToDevice), "copying b");

    // <<<blocks, threads of each>>> launches a kernel, and the host goes on at once: the GPU notes
    // when it reaches each event. The first launch also loads the kernel, so the second is timed.
    cudaEvent_t start, stop;
    for (cudaEvent_t* event : {&start, &stop}) check(cudaEventCreate(event), "creating an event");
    const unsigned threads = 256, blocks = unsigned((n + threads - 1) / threads);  // rounded up
    add<<<blocks, threads>>>(gpu_a, gpu_b, gpu_c, n);
    check(cudaEventRecord(start), "recording an event");
    add<<<blocks, threads>>>(gpu_a, gpu_b, gpu_c, n);
    check(cudaGetLastError(), "launching add");  // a launch returns no code: ask if it was refused
    check(cudaEventRecord(stop), "recording an event");
    check(cudaDeviceSynchronize(), "running add");  // waits, and reports errors inside the kernel
    float ms;
    check(cudaEventElapsedTime(&ms, start, stop), "reading the time");

    check(cudaMemcpy(c.data(), gpu_c, bytes, cudaMemcpyDeviceToHost), "copying c");
    size_t wrong = 0;
    for (size_t i = 0; i < n; ++i) wrong += c[i] != a[i] + b[i];
    const double gb_per_s = 3e-6 * bytes / ms;  // a and b are read, c is written
    std::printf("%zu sums, %zu wrong: %.4f ms, %.1f GB/s\n", n, wrong, ms, gb_per_s);
    for (float* memory : {gpu_a, gpu_b, gpu_c}) check(cudaFree(memory), "freeing memory");
    for (cudaEvent_t event : {start, stop}) check(cudaEventDestroy(event), "destroying an event");
    return wrong ? 1 : 0;
}
