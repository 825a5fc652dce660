// Wrong programs, one for each argument: what the simulator has to catch.
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ptx.cuh"

using namespace nvcuda;

// --- Threads that never meet --------------------------------------------------------------------

__global__ void divergent_barrier() {
    if (threadIdx.x < 16) __syncthreads();
}
__global__ void two_barriers() {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
}
__global__ void early_exit(unsigned size) {
    if (threadIdx.x >= size) return;
    __syncthreads();
}
__global__ void divergent_shuffle(float* data) {
    if (threadIdx.x < 16) data[threadIdx.x] = __shfl_xor_sync(~0u, data[threadIdx.x], 1);
    __syncthreads();
}
__global__ void divergent_wmma(const half* A) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    if (threadIdx.x != 31) wmma::load_matrix_sync(a, A, 16);
}
__global__ void misaligned_wmma(const half* A) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, A + 1, 16);
}

__global__ void divergent_ldmatrix(const half* A) {
    uint32_t r[4];
    if (threadIdx.x != 31) ptx::ldmatrix_x4(r, A);
}
__global__ void misaligned_ldmatrix(const half* A) {
    uint32_t r[4];
    ptx::ldmatrix_x4(r, A + threadIdx.x);
}

// --- Memory -------------------------------------------------------------------------------------

__global__ void read_at(const float* data, long i, float* to) { to[threadIdx.x] = data[i]; }
__global__ void read_byte(const char* data, long i, char* to) { to[0] = data[i]; }
__global__ void write_byte(char* data, long i) { data[i] = 1; }
__global__ void write_at(float* data, long i) { data[i + threadIdx.x] = 1; }
__global__ void dynamic_overrun(int i) {
    extern __shared__ float tile[];
    tile[i] = 1;
}
__global__ void static_overrun(int i, float* to) {
    __shared__ float tile[4][8];
    tile[i / 8][i % 8 + threadIdx.x] = 1;
    __syncthreads();
    to[threadIdx.x] = tile[0][0];
}
__global__ void divide(int* data, int by) { data[0] = 5 / by; }
__global__ void overflow_stack(float* to, int depth) {
    volatile float large[1000];
    large[depth % 1000] = to[0];
    if (depth > 0) overflow_stack(to, depth - 1);
    to[0] = large[depth % 1000];
}
__global__ void nested(float* to) { read_at<<<1, 1>>>(to, 0, to); }

// --- Missing waits: each thread hands its number to a neighbour ---------------------------------

__global__ void missing_barrier(float* to) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    to[threadIdx.x] = tile[(threadIdx.x + 1) % 64];
}
__global__ void missing_syncwarp(float* to) {
    __shared__ float tile[32];
    tile[threadIdx.x] = threadIdx.x;
    __syncwarp();
    const float next = tile[(threadIdx.x + 1) % 32];
    tile[threadIdx.x] = -1;  // while others may still read
    to[threadIdx.x] = next;
}
template <int kMissing>  // 0 nothing, 1 the wait, 2 the commit, 3 the barrier before copying again
__global__ void pipeline(const float* from, float* to) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    for (int round = 0; round < 2; ++round) {
        __pipeline_memcpy_async(&tile[i], from + 64 * round + i, 4);
        if (kMissing != 2) __pipeline_commit();
        if (kMissing != 1) __pipeline_wait_prior(0);
        __syncthreads();
        to[64 * round + i] = tile[(i + 1) % 64];
        if (kMissing != 3) __syncthreads();
    }
}

/// A fragment passes through a patch of shared memory twice.
template <int kMissing>  // 0 nothing, else one of the four __syncwarp()
__global__ void patch(float* to) {
    alignas(32) __shared__ float patch[256];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fragment;
    for (int i = threadIdx.x; i < 256; i += 32) patch[i] = float((i + 1) % 256);
    if (kMissing != 1) __syncwarp();
    wmma::load_matrix_sync(fragment, patch, 16, wmma::mem_row_major);
    if (kMissing != 2) __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) patch[i] = -1;  // while others may still load
    __syncwarp();
    wmma::store_matrix_sync(patch, fragment, 16, wmma::mem_row_major);
    if (kMissing != 3) __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) to[255 - i] = patch[255 - i];
    if (kMissing != 4) __syncwarp();
    wmma::fill_fragment(fragment, -1.0f);
    wmma::store_matrix_sync(patch, fragment, 16, wmma::mem_row_major);  // while others may read
}

/// A program that believes to know which lane owns which element of an accumulator: the mapping
/// that all chips from Turing to Hopper have.
__global__ void wmma_ownership(float* to) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    const int lane = threadIdx.x;
    for (int i = 0; i < c.num_elements; ++i) {
        const int row = lane / 4 + (i & 2) * 4, column = lane % 4 * 2 + (i & 1) + (i & 4) * 2;
        c.x[i] = float((row * 16 + column + 1) % 64);
    }
    wmma::store_matrix_sync(to, c, 16, wmma::mem_row_major);
}

int main(int argc, char** argv) {
    float *data, *other;  // 33 floats: an odd size
    cudaMalloc(&data, 33 * sizeof(float));
    cudaMalloc(&other, 256 * sizeof(float));
    std::vector<float> host(256);
    for (int i = 0; i < 256; ++i) host[i] = float(i);
    cudaMemcpy(other, host.data(), 1024, cudaMemcpyHostToDevice);
    auto neighbours = [&](const float* from, int count) {
        cudaMemcpy(host.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost);
        int wrong = 0;
        for (int i = 0; i < count; ++i) wrong += !(host[i] == float((i + 1) % count));
        std::printf("%d of %d wrong\n", wrong, count);
    };
    char *odd, *odd_too;  // 67 bytes
    cudaMalloc(&odd, 67);
    cudaMalloc(&odd_too, 67);
    auto show = [&](const float* value) {
        cudaMemcpy(host.data(), value, sizeof(float), cudaMemcpyDeviceToHost);
        std::printf("%f\n", double(host[0]));
    };
    const half* const halves = reinterpret_cast<const half*>(other);

    const std::map<std::string, std::function<void()>> cases{
        {"divergent_barrier", [&] { divergent_barrier<<<2, 32>>>(); }},
        {"two_barriers", [&] { two_barriers<<<1, 32>>>(); }},
        {"early_exit", [&] { early_exit<<<1, dim3(32, 2)>>>(31); }},
        {"divergent_shuffle", [&] { divergent_shuffle<<<1, 32>>>(other); }},
        {"divergent_wmma", [&] { divergent_wmma<<<1, 32>>>(halves); }},
        {"misaligned_wmma", [&] { misaligned_wmma<<<1, 32>>>(halves); }},
        {"divergent_ldmatrix", [&] { divergent_ldmatrix<<<1, 32>>>(halves); }},
        {"misaligned_ldmatrix", [&] { misaligned_ldmatrix<<<1, 32>>>(halves); }},
        {"read_one_past", [&] { read_at<<<1, 1>>>(data, 33, other); }},
        {"read_one_before", [&] { read_at<<<1, 1>>>(data, -1, other); }},
        {"read_far_past", [&] { read_at<<<1, 1>>>(data, 3000, other); }},
        {"write_past", [&] { write_at<<<dim3(1, 1), 300>>>(other, 0); }},
        {"read_byte_past", [&] { read_byte<<<1, 1>>>(odd, 67, odd_too); }},
        {"read_byte_before", [&] { read_byte<<<1, 1>>>(odd, -1, odd_too); }},
        {"write_byte_past", [&] { write_byte<<<1, 1>>>(odd, 67); }},
        {"write_byte_before", [&] { write_byte<<<1, 1>>>(odd, -1); }},
        {"show_one_past", [&] { read_at<<<1, 1>>>(data, 33, other), show(other); }},
        {"show_one_before", [&] { read_at<<<1, 1>>>(data, -1, other), show(other); }},
        {"too_large",
         [&] {
             const size_t bytes = size_t(200) << 20;
             std::printf("%s, ", cudaGetErrorName(cudaMalloc(&data, bytes)));
         }},
        {"host_takes_memory",
         [&] {
             cudaMalloc(&data, size_t(100) << 20);
             host.assign(size_t(20) << 20, 0);
             cudaMemcpy(data, host.data(), size_t(80) << 20, cudaMemcpyHostToDevice);
         }},
        {"write_input",
         [&] {
             simulator::set_read_only(other, true);
             cudaMemset(other, 0, 1024);
             cudaMemcpy(other, host.data(), 1024, cudaMemcpyHostToDevice);
             read_at<<<1, 1>>>(other, 3, data), show(data);  // which is right
             write_at<<<1, 1>>>(other, 3);
         }},
        {"write_output",
         [&] {
             simulator::set_read_only(other, true);
             read_at<<<1, 1>>>(other, 3, data);
             simulator::set_read_only(other, false);
             write_at<<<1, 1>>>(other, 3), show(other + 3);
         }},
        {"read_null", [&] { read_at<<<1, 1>>>(nullptr, 1, other); }},
        {"dynamic_overrun", [&] { dynamic_overrun<<<1, 1, 512>>>(128); }},
        {"static_overrun", [&] { static_overrun<<<1, 2>>>(7, other); }},
        {"host_read", [&] { std::printf("%f\n", double(other[3])); }},
        {"host_pointer", [&] { write_at<<<1, 1>>>(host.data(), 0); }},
        {"freed", [&] { cudaFree(data), read_at<<<1, 1>>>(data, 0, other); }},
        {"divide", [&] { divide<<<1, 1>>>(reinterpret_cast<int*>(other), 0); }},
        {"overflow_stack", [&] { overflow_stack<<<1, 1>>>(other, 1 << 12); }},
        {"nested", [&] { nested<<<1, 1>>>(other); }},
        {"missing_barrier", [&] { missing_barrier<<<1, 64>>>(other), neighbours(other, 64); }},
        {"missing_syncwarp", [&] { missing_syncwarp<<<1, 32>>>(other), neighbours(other, 32); }},
        {"right_pipeline",
         [&] { pipeline<0><<<1, 64>>>(other, other + 128), neighbours(other + 128, 64); }},
        {"missing_wait",
         [&] { pipeline<1><<<1, 64>>>(other, other + 128), neighbours(other + 128, 64); }},
        {"missing_commit",
         [&] { pipeline<2><<<1, 64>>>(other, other + 128), neighbours(other + 128, 64); }},
        {"early_copy",
         [&] { pipeline<3><<<1, 64>>>(other, other + 128), neighbours(other + 128, 64); }},
        {"right_patch", [&] { patch<0><<<1, 32>>>(other), neighbours(other, 256); }},
        {"no_sync_before_load", [&] { patch<1><<<1, 32>>>(other), neighbours(other, 256); }},
        {"no_sync_after_load", [&] { patch<2><<<1, 32>>>(other), neighbours(other, 256); }},
        {"no_sync_after_store", [&] { patch<3><<<1, 32>>>(other), neighbours(other, 256); }},
        {"no_sync_before_store", [&] { patch<4><<<1, 32>>>(other), neighbours(other, 256); }},
        {"wmma_ownership", [&] { wmma_ownership<<<1, 32>>>(other), neighbours(other, 64); }},
    };
    const auto found = cases.find(argc > 1 ? argv[1] : "");
    if (found == cases.end()) return 2;
    found->second();
    std::printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}
