// Right programs, in every spelling that the simulator has to understand. It prints what is not as
// CUDA defines it, and exits with 1. nvcc builds it as well, so that a GPU can be asked.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "ptx.cuh"

static int failures = 0, checks = 0;
#define EXPECT(condition)                                                       \
    do {                                                                        \
        ++checks;                                                               \
        if (!(condition)) {                                                     \
            ++failures;                                                         \
            std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                       \
    } while (0)

/// Device memory that host code reads by copying.
template <class T>
struct Memory {
    T* data = nullptr;
    size_t size;
    explicit Memory(const std::vector<T>& values) : size(values.size()) {
        cudaMalloc(&data, size * sizeof(T));
        cudaMemcpy(data, values.data(), size * sizeof(T), cudaMemcpyHostToDevice);
    }
    explicit Memory(size_t size) : Memory(std::vector<T>(size)) {}
    ~Memory() { cudaFree(data); }
    std::vector<T> read() const {
        std::vector<T> values(size);
        cudaMemcpy(values.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
        return values;
    }
};

// --- Launches -----------------------------------------------------------------------------------

template <int A, int B>
struct Tile {
    static constexpr int size = A * B;
};

template <class T, bool kFlag = false>
__global__ void store_size(int* to, int add) {
    if (threadIdx.x == 0 && blockIdx.x == 0) *to = T::size + add + (kFlag ? 1000 : 0);
}
template <class T>
__global__ void store_value(T* to, const T value) {
    *to = value;
}
__global__ void store_pair(int* to, int one, int two = 7) { *to = 10 * one + two; }
template <class Function>
__global__ void call(int* to, Function function) {
    *to = function(gridDim.x, blockDim.y);
}
namespace outer::inner {
__global__ void store_five(int* to) { *to = 5; }
}  // namespace outer::inner
#define STORE(pointer, value) store_value<<<1, 1>>>(pointer, value)

int evaluations = 0;
int evaluate(int x) { return ++evaluations, x; }

struct Axis {
    __device__ int operator()(int grid, int block) const { return 100 * grid + block; }
};

void test_launches() {
    Memory<int> memory(1);
    int* const p = memory.data;
    auto stored = [&] {
        EXPECT(cudaGetLastError() == cudaSuccess);
        return memory.read()[0];
    };
    constexpr int a = 3, b = 2;
    cudaStream_t stream;
    cudaStreamCreate(&stream);

    store_size<Tile<a, 4>, (a > b)><<<2, dim3(32, 2), 16, stream>>>(p, 1);
    EXPECT(stored() == 1013);
    // clang-format off
    store_size<Tile<(8 >> 1), (1 << 2)> >  // a blank between, and lines inside
        <<<  // >>>(
            dim3(1, 1),
            32 /* <<< */
            >>>
            (p,
             evaluate(2));
    // clang-format on
    EXPECT(stored() == 18);
    EXPECT(evaluations == 1);
    store_value<<<1, 32>>>(p, 4);  // deduced
    EXPECT(stored() == 4);
    store_value<int><<<1, 1>>>(p, 4.9);  // converted once, when launched
    EXPECT(stored() == 4);
    store_pair<<<1, 1>>>(p, 2, 3);
    EXPECT(stored() == 23);
    outer::inner::store_five<<<1, 1>>>(p);
    EXPECT(stored() == 5);
    ::outer::inner::store_five<<<1, 1, 0>>>(p);
    EXPECT(stored() == 5);
    STORE(p, 6);
    EXPECT(stored() == 6);
    call<<<dim3(3), dim3(1, 4)>>>(p, Axis{});
    EXPECT(stored() == 304);
    void (*const kernel)(int*, int, int) = store_pair;
    if (a > b) kernel<<<1, 1>>>(p, 1, 0);
    EXPECT(stored() == 10);
    void (*const table[])(int*, int, int) = {nullptr, store_pair};
    table[a < b ? 0 : 1]<<<1, 1>>>(p, 8, 9);
    EXPECT(stored() == 89);
    auto launch = [=](int value) { store_value<<<1, 1>>>(p, value); };
    launch(77);
    EXPECT(stored() == 77);
    const char* const text = R"(kernel<<<1, 1>>>("x"))";
    EXPECT(std::strlen(text) == 21 && '<' < '>' && 1'000 >> 3 == 125);
    cudaStreamDestroy(stream);
}

__global__ void use_dynamic(int* to, int size) {
    extern __shared__ __align__(16) int rows[][4];
    rows[threadIdx.x][threadIdx.x % 4] = threadIdx.x;
    __syncthreads();
    const int other = blockDim.x - 1 - threadIdx.x;
    to[threadIdx.x] = rows[other][other % 4] + size;
}

void test_limits() {
    Memory<int> memory(32);
    auto result = [](auto) { return cudaGetLastError(); };
    EXPECT(result((use_dynamic<<<1, 32, 512>>>(memory.data, 5), 0)) == cudaSuccess);
    EXPECT(memory.read()[0] == 36 && memory.read()[31] == 5);
    const int large = 60 << 10;
    EXPECT(result((use_dynamic<<<1, 32, large>>>(memory.data, 0), 0)) == cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(use_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, large) ==
           cudaSuccess);
    EXPECT(result((use_dynamic<<<1, 32, large>>>(memory.data, 0), 0)) == cudaSuccess);
    // cudaErrorInvalidConfiguration up to CUDA 12, and here; CUDA 13 calls it an invalid value.
    EXPECT(result((use_dynamic<<<1, 1025>>>(memory.data, 0), 0)) != cudaSuccess);
    EXPECT(result((use_dynamic<<<dim3(1, 65536), 1>>>(memory.data, 0), 0)) != cudaSuccess);
    EXPECT(result((use_dynamic<<<1, 0>>>(memory.data, 0), 0)) != cudaSuccess);
    void* huge = nullptr;
    EXPECT(cudaMalloc(&huge, size_t(1) << 50) == cudaErrorMemoryAllocation && !huge);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    EXPECT(std::strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
}

// --- Threads together ---------------------------------------------------------------------------

__device__ int total;
__constant__ int table[2];

__global__ void cooperate(int* out, float* sums) {
    __shared__ int counts[2];
    alignas(16) __shared__ unsigned long long wide;
    __shared__ unsigned int draws;
    const int i = threadIdx.x, lane = i % warpSize;
    if (i == 0) counts[0] = counts[1] = 0, wide = 0, draws = 0;
    __syncthreads();
    int* const o = out + 16 * i;
    o[0] = __shfl_sync(~0u, i, 5);
    o[1] = __shfl_up_sync(~0u, i, 3);
    o[2] = __shfl_down_sync(~0u, i, 3, 16);
    o[3] = __shfl_xor_sync(~0u, i, 1);
    o[4] = int(__ballot_sync(~0u, lane % 3 == 0));
    o[5] = __any_sync(~0u, lane == 31) + 2 * __all_sync(~0u, lane < 32) + 4 * __all_sync(~0u, lane);
    o[6] = __syncthreads_count(i % 4 == 0);
    o[7] = __syncthreads_or(i == 3) + 2 * __syncthreads_and(i >= 0) + 4 * __syncthreads_and(i);
    o[8] = atomicAdd(&counts[lane % 2], 1) >= 0;
    atomicMax(&wide, (unsigned long long)(i) << 33);
    atomicInc(&draws, 4);  // 0, 1, 2, 3, 4, 0, ...
    atomicAdd(&total, table[i % 2]);
    atomicAdd(sums, 0.5f);
    if (lane < 16)
        o[9] = __shfl_sync(0x0000FFFFu, i, 15);  // half a warp, by itself
    else
        o[9] = __shfl_sync(0xFFFF0000u, i, 16);
    __syncwarp();
    __syncthreads();
    o[10] = counts[0] + counts[1];
    o[11] = wide == 63ull << 33 && draws == 64 % 5;
    int sum = i;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    o[12] = sum;
    o[13] = atomicCAS(&counts[0], 32, 32) == 32 ? max(i, 3) : -1;
    o[14] = int(__float_as_uint(1.0f) >> 23) + min(i, -1);
    o[15] = __popc(0xF0u) + __clz(1) + __ffs(8);
}

void test_threads() {
    const int threads = 64, zero = 0, values[2] = {1, 10};
    Memory<int> memory(threads * 16);
    Memory<float> sums(1);
    cudaMemcpyToSymbol(total, &zero, sizeof zero);
    cudaMemcpyToSymbol(table, values, sizeof values);
    cooperate<<<1, threads>>>(memory.data, sums.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    const std::vector<int> out = memory.read();
    unsigned thirds = 0;
    for (int lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
    for (int i = 0; i < threads; ++i) {
        const int *o = &out[16 * i], lane = i % 32, warp = i - lane;
        EXPECT(o[0] == warp + 5);
        EXPECT(o[1] == (lane < 3 ? i : i - 3));
        EXPECT(o[2] == (lane % 16 >= 13 ? i : i + 3));
        EXPECT(o[3] == (i ^ 1));
        EXPECT(unsigned(o[4]) == thirds);
        EXPECT(o[5] == 3);
        EXPECT(o[6] == 16);
        EXPECT(o[7] == 3);
        EXPECT(o[8] == 1);
        EXPECT(o[9] == warp + (lane < 16 ? 15 : 16));
        EXPECT(o[10] == threads && o[11] == 1);
        EXPECT(o[12] == 31 * 16 + 32 * warp);
        EXPECT(o[13] == (i < 3 ? 3 : i) && o[14] == 126 && o[15] == 39);
    }
    int counted = 0;
    cudaMemcpyFromSymbol(&counted, total, sizeof counted);
    EXPECT(counted == 32 * 11);
    EXPECT(sums.read()[0] == 32.0f);
}

__global__ void copy_asynchronously(const float4* from, float4* to) {
    __shared__ float4 stages[2][32];
    const int i = threadIdx.x;
    __pipeline_memcpy_async(&stages[0][i], from + i, 16);
    __pipeline_commit();
    __pipeline_memcpy_async(&stages[1][i], from + 32 + i, 16, i == 7 ? 16 : 0);  // 7: zeros
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    to[i] = stages[0][31 - i];
    __pipeline_wait_prior(0);
    __syncthreads();
    to[32 + i] = stages[1][31 - i];
}

void test_copies() {
    std::vector<float4> values(64);
    for (int i = 0; i < 64; ++i) values[i] = make_float4(i, -i, 2 * i, 1);
    Memory<float4> from(values), to(size_t(64));
    copy_asynchronously<<<1, 32>>>(from.data, to.data);
    const std::vector<float4> got = to.read();
    for (int i = 0; i < 32; ++i) {
        EXPECT(got[i].x == 31 - i && got[i].y == i - 31);
        EXPECT(got[32 + i].z == (31 - i == 7 ? 0 : 2 * (63 - i)));
    }
    EXPECT(cudaMemcpy(from.data, values.data(), 65 * sizeof(float4), cudaMemcpyHostToDevice) ==
           cudaErrorInvalidValue);
    cudaGetLastError();
}

// --- WMMA ---------------------------------------------------------------------------------------

using namespace nvcuda;

/// D = A B + C, for one warp. `relu` goes through the accumulator element by element.
template <int M, int N, class LayoutA, class LayoutB, class Sum>
__global__ void multiply(const half* A, const half* B, const Sum* C, Sum* D, bool relu) {
    constexpr int K = 16;
    wmma::fragment<wmma::matrix_a, M, N, K, half, LayoutA> a;
    wmma::fragment<wmma::matrix_b, M, N, K, half, LayoutB> b;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> c, d;
    wmma::load_matrix_sync(a, A, std::is_same_v<LayoutA, wmma::row_major> ? K : M);
    wmma::load_matrix_sync(b, B, std::is_same_v<LayoutB, wmma::row_major> ? N : K);
    wmma::load_matrix_sync(c, C, N, wmma::mem_row_major);
    wmma::fill_fragment(d, Sum(0.0f));
    wmma::mma_sync(d, a, b, d);
    for (int i = 0; i < d.num_elements; ++i) {  // fragments of one type have one mapping
        d.x[i] = d.x[i] + c.x[i];
        if (relu && float(d.x[i]) < 0) d.x[i] = Sum(0.0f);
    }
    wmma::store_matrix_sync(D, d, M, wmma::mem_col_major);
}

template <int M, int N, class LayoutA, class LayoutB, class Sum>
void test_multiply(bool relu) {
    constexpr int K = 16;
    std::vector<half> a(M * K), b(K * N);
    std::vector<Sum> c(M * N);
    for (int i = 0; i < M * K; ++i) a[i] = half(float((i * 7) % 11 - 5));
    for (int i = 0; i < K * N; ++i) b[i] = half(float((i * 5) % 13 - 6));
    for (int i = 0; i < M * N; ++i) c[i] = Sum(float(i % 17 - 8));
    Memory<half> A(a), B(b);
    Memory<Sum> C(c), D(c.size());
    multiply<M, N, LayoutA, LayoutB><<<1, 32>>>(A.data, B.data, C.data, D.data, relu);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    const std::vector<Sum> got = D.read();
    bool same = true;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            float sum = float(c[i * N + j]);  // small integers: exact in every format
            for (int k = 0; k < K; ++k)
                sum += float(a[std::is_same_v<LayoutA, wmma::row_major> ? i * K + k : k * M + i]) *
                       float(b[std::is_same_v<LayoutB, wmma::row_major> ? k * N + j : j * K + k]);
            if (relu && sum < 0) sum = 0;
            same &= float(got[j * M + i]) == sum;
        }
    EXPECT(same);
}

void test_wmma() {
    using Row = wmma::row_major;
    using Column = wmma::col_major;
    test_multiply<16, 16, Row, Row, float>(false);
    test_multiply<16, 16, Row, Column, float>(true);
    test_multiply<16, 16, Column, Row, half>(true);
    test_multiply<32, 8, Column, Column, float>(false);
    test_multiply<8, 32, Row, Row, half>(false);
}

// --- ptx.cuh ------------------------------------------------------------------------------------

/// D = A B for one warp, all of them [16, 16]. `zeros`: what the copies of B bring instead.
__global__ void multiply_ptx(const half* A, const half* B, float* D, bool zeros) {
    alignas(16) __shared__ half a_tile[256], b_tile[256];
    const int lane = threadIdx.x;
    ptx::cp_async_16(&a_tile[lane * 8], &A[lane * 8], true);
    ptx::cp_async_16(&b_tile[lane * 8], &B[lane * 8], !zeros);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncwarp();
    uint32_t a[4], b[4];
    ptx::ldmatrix_x4(a, &a_tile[lane % 16 * 16 + lane / 16 * 8]);
    ptx::ldmatrix_x4_trans(b, &b_tile[lane % 16 * 16 + lane / 16 * 8]);
    float d[2][4] = {};
    for (int j = 0; j < 2; ++j) ptx::mma_m16n8k16(d[j], a, b[2 * j], b[2 * j + 1]);
    for (int j = 0; j < 2; ++j)
        for (int e = 0; e < 4; ++e)
            D[(lane / 4 + e / 2 * 8) * 16 + j * 8 + lane % 4 * 2 + e % 2] = d[j][e];
}

/// The same in TF32, with A[16, 8] and B[8, 8].
__global__ void multiply_tf32(const float* A, const float* B, float* D) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    auto bits = [](float x) { return __float_as_uint(x); };
    const uint32_t a[4] = {bits(A[g * 8 + t]), bits(A[(g + 8) * 8 + t]), bits(A[g * 8 + t + 4]),
                           bits(A[(g + 8) * 8 + t + 4])};
    float d[4] = {};
    ptx::mma_m16n8k8(d, a, bits(B[t * 8 + g]), bits(B[(t + 4) * 8 + g]));
    for (int e = 0; e < 4; ++e) D[(g + e / 2 * 8) * 8 + t * 2 + e % 2] = d[e];
}

__global__ void approximate(const float* x, float* to) {
    to[3 * threadIdx.x] = ptx::ex2_approx(x[threadIdx.x]);
    to[3 * threadIdx.x + 1] = ptx::rcp_approx(x[threadIdx.x]);
    to[3 * threadIdx.x + 2] = ptx::tanh_approx(x[threadIdx.x]);
}

void test_ptx() {
    std::vector<half> a(256), b(256);
    for (int i = 0; i < 256; ++i) a[i] = half(float((i * 7) % 11 - 5));
    for (int i = 0; i < 256; ++i) b[i] = half(float((i * 5) % 13 - 6));
    Memory<half> A(a), B(b);
    Memory<float> D(256), x({-3, 0.5f, 20}), y(9);
    for (const bool zeros : {false, true}) {
        multiply_ptx<<<1, 32>>>(A.data, B.data, D.data, zeros);
        EXPECT(cudaDeviceSynchronize() == cudaSuccess);
        const std::vector<float> got = D.read();
        bool same = true;
        for (int i = 0; i < 16; ++i)
            for (int j = 0; j < 16; ++j) {
                float sum = 0;
                for (int k = 0; k < 16 && !zeros; ++k)
                    sum += float(a[i * 16 + k]) * float(b[k * 16 + j]);
                same &= got[i * 16 + j] == sum;
            }
        EXPECT(same);
    }
    const float tiny = 0x1p-11f;  // beside 1, the first bit that TF32 does not have
    std::vector<float> wide(192);
    for (int i = 0; i < 192; ++i) wide[i] = float((i * 7) % 11 - 5) * (1 + tiny);
    Memory<float> of_both(wide), E(128);
    multiply_tf32<<<1, 32>>>(of_both.data, of_both.data + 128, E.data);
    const std::vector<float> products = E.read();
    for (int i = 0; i < 128; ++i) {
        float sum = 0;
        for (int k = 0; k < 8; ++k)
            sum += float((i / 8 * 8 + k) * 7 % 11 - 5) * float((128 + k * 8 + i % 8) * 7 % 11 - 5);
        EXPECT(products[i] == sum);
    }
    approximate<<<1, 3>>>(x.data, y.data);
    const std::vector<float> got = y.read(), right{0.125f,      -1 / 3.0f, -0.99505475f,
                                                   1.41421356f, 2,         0.46211716f,
                                                   1048576,     0.05f,     1};
    for (int i = 0; i < 9; ++i) EXPECT(std::abs(got[i] - right[i]) <= 1e-6f * std::abs(right[i]));
}

// --- half and bfloat16 --------------------------------------------------------------------------

/// Every half to fp32 and back, and the roundings around it.
template <class T>
__global__ void convert(const float* from, T* to, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) to[i] = T(from[i]);
}

/// The value of a format with `mantissa` bits after the point, by definition.
double value_of(unsigned bits, int mantissa) {
    const int exponents = 15 - mantissa, bias = (1 << (exponents - 1)) - 1;
    const int exponent = int(bits >> mantissa) & ((1 << exponents) - 1);
    const double fraction = double(bits & ((1u << mantissa) - 1)) / double(1 << mantissa);
    double value =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    if (exponent == (1 << exponents) - 1) value = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -value : value;
}

template <class T>
unsigned short bits_of(T value) {
    unsigned short bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

template <class T>
void test_format(int mantissa) {
    // Between neighbours: the lower, a bit above it, the middle, a bit below and above that.
    std::vector<float> inputs;
    std::vector<unsigned short> expected;
    const unsigned infinity = bits_of(T(INFINITY));
    bool exact = true;
    for (unsigned sign : {0u, 0x8000u})
        for (unsigned i = 0; i < infinity; ++i) {
            const unsigned short bits = sign | i;
            T number;
            std::memcpy(static_cast<void*>(&number), &bits, sizeof bits);
            exact &= double(float(number)) == value_of(bits, mantissa);
            // Past the largest number the next step of the same size would be; it is infinity.
            const double low = value_of(i, mantissa);
            const double high =
                i + 1 < infinity ? value_of(i + 1, mantissa) : 2 * low - value_of(i - 1, mantissa);
            const float middle = float((low + high) / 2), s = sign ? -1 : 1;
            if (std::isinf(middle)) continue;
            const unsigned even = i % 2 == 0 ? bits : bits + 1;
            for (auto [x, bits_expected] : {std::pair{float(low), unsigned(bits)},
                                            {middle, even},
                                            {std::nextafter(middle, 0.0f), unsigned(bits)},
                                            {std::nextafter(middle, INFINITY), bits + 1u}}) {
                if (std::isinf(x)) continue;
                inputs.push_back(s * x);
                expected.push_back(bits_expected);
            }
        }
    EXPECT(exact);
    size_t wrong_on_host = 0, wrong = 0;
    Memory<float> from(inputs);
    Memory<T> to(inputs.size());
    convert<<<(inputs.size() + 255) / 256, 256>>>(from.data, to.data, inputs.size());
    const std::vector<T> got = to.read();
    for (size_t i = 0; i < inputs.size(); ++i) {
        wrong += bits_of(got[i]) != expected[i];
        wrong_on_host += bits_of(T(inputs[i])) != expected[i];
    }
    EXPECT(wrong == 0 && wrong_on_host == 0);
    EXPECT(bits_of(T(NAN)) == 0x7FFF && std::isnan(float(T(NAN))));
    EXPECT(std::isinf(float(T(1e300))) && float(T(-INFINITY)) == -INFINITY);
}

/// The same of e4m3, which has no infinity: what is too large becomes the largest number.
void test_fp8() {
    using fp8 = __nv_fp8_e4m3;
    bool right = true;
    for (unsigned sign : {0u, 0x80u})
        for (unsigned i = 0; i < 0x7E; ++i) {
            auto value = [](unsigned code) {
                return code < 8 ? std::ldexp(float(code), -9)
                                : std::ldexp(float(8 + code % 8), int(code / 8) - 10);
            };
            fp8 number;
            number.__x = static_cast<unsigned char>(sign | i);
            const float s = sign ? -1 : 1, middle = (value(i) + value(i + 1)) / 2;
            right &= float(number) == s * value(i);
            for (auto [x, code] : {std::pair{value(i), i},
                                   {middle, i % 2 == 0 ? i : i + 1},
                                   {std::nextafter(middle, 0.0f), i},
                                   {std::nextafter(middle, INFINITY), i + 1}})
                right &= fp8(s * x).__x == (sign | code);
        }
    EXPECT(right);
    EXPECT(fp8(1000.0f).__x == 0x7E && fp8(-INFINITY).__x == 0xFE);
    EXPECT(std::isnan(float(fp8(NAN))));
}

__global__ void half_arithmetic(const half* x, const half* y, const half* z, half* sum,
                                half* product, half* quotient, half* fused, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= size) return;
    sum[i] = x[i] + y[i];
    product[i] = x[i] * y[i];
    quotient[i] = x[i] / y[i];
    fused[i] = __hfma(x[i], y[i], z[i]);
}

void test_half() {
    test_format<half>(10);
    test_format<__nv_bfloat16>(7);
    test_fp8();

    // 2^-11 + 2^-40 + 1 must round up, which double rounding through fp32 gets wrong.
    EXPECT(bits_of(half(1.0 + 0x1p-11 + 0x1p-40)) == 0x3C01);
    EXPECT(bits_of(half(1.0 + 0x1p-11)) == 0x3C00);

    std::vector<half> x, y, z;
    uint32_t state = 1;
    auto random_half = [&]() {
        state = state * 1664525u + 1013904223u;
        return half(std::ldexp(float(state >> 8) * 0x1p-23f - 1.0f, int(state >> 3 & 15) - 8));
    };
    for (int i = 0; i < 200000; ++i)
        x.push_back(random_half()), y.push_back(random_half()), z.push_back(random_half());
    const size_t n = x.size();
    Memory<half> X(x), Y(y), Z(z), sum(n), product(n), quotient(n), fused(n);
    half_arithmetic<<<(n + 255) / 256, 256>>>(X.data, Y.data, Z.data, sum.data, product.data,
                                              quotient.data, fused.data, n);
    const std::vector<half> sums = sum.read(), products = product.read(), fuseds = fused.read();
    const std::vector<half> quotients = quotient.read();
    size_t wrong = 0, wrong_quotients = 0;
    for (size_t i = 0; i < n; ++i) {  // all but the quotients are exact in fp64, and rounded once
        const double a = float(x[i]), b = float(y[i]), c = float(z[i]);
        wrong += bits_of(sums[i]) != bits_of(half(a + b));
        wrong += bits_of(products[i]) != bits_of(half(a * b));
        wrong += bits_of(fuseds[i]) != bits_of(half(a * b + c));
        if (!(std::fabs(a / b) < 60000)) continue;
        const double error = std::fabs(double(float(quotients[i])) - a / b);
        wrong_quotients += !(error <= std::fabs(a / b) * 0x1p-11 + 0x1p-25);
    }
    EXPECT(wrong == 0);
    EXPECT(wrong_quotients == 0);

    const half2 pair = __floats2half2_rn(1.5f, -2.0f);
    EXPECT(__low2float(pair) == 1.5f && __half22float2(pair).y == -2.0f);
    EXPECT(sizeof(half2) == 4 && alignof(half2) == 4 && alignof(float4) == 16);
    EXPECT(half(3) > half(2.5f) && half(1) == half(1.0) && -half(1) < half(0));
}

__global__ void add_to(int* number, int amount) { *number += amount; }
template <class T>
__global__ void add_any(T* number, T amount) {
    *number += amount;
}

void test_graphs() {
    const Memory<int> number(1);
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    const auto kernel = add_to;
    for (int amount : {1, 20}) kernel<<<1, 1, 0, stream>>>(number.data, amount);
    add_any<<<1, 1, 0, stream>>>(number.data, 300);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    EXPECT(number.read()[0] == 0);
    EXPECT(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    EXPECT(cudaGraphDestroy(graph) == cudaSuccess);
    for (int i = 0; i < 2; ++i) EXPECT(cudaGraphLaunch(executable, nullptr) == cudaSuccess);
    EXPECT(number.read()[0] == 642);
    EXPECT(cudaGraphExecDestroy(executable) == cudaSuccess);
    // The default stream waits for all others, so it may get no work beside a capture.
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    add_to<<<1, 1>>>(number.data, 1);
    EXPECT(cudaGetLastError() == cudaErrorStreamCaptureImplicit);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    EXPECT(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
    EXPECT(number.read()[0] == 642);
    cudaStreamDestroy(stream);
}

/// C = 3 op(A) op(B) + 2 C for each of a batch, in fp16; small integers, so that all is exact. The
/// last matrix of each ends where its memory ends.
void test_batches() {
    cublasHandle_t cublas = nullptr;
    EXPECT(cublasCreate(&cublas) == CUBLAS_STATUS_SUCCESS);
    constexpr int m = 5, n = 37, k = 3, ld = 40, batches = 3, stride = 1600;
    auto numbers = [](int columns, int seed) {  // with gaps below and between the matrices
        std::vector<half> all((batches - 1) * stride + columns * ld);
        for (size_t i = 0; i < all.size(); ++i) all[i] = float((i * 7 + i / 11 + seed) % 5) - 2;
        return all;
    };
    for (const bool at : {false, true})
        for (const bool bt : {false, true}) {
            const auto a = numbers(at ? m : k, 0), b = numbers(bt ? k : n, 1), c = numbers(n, 3);
            const Memory<half> A(a), B(b), C(c);
            auto call = [&](int lda, int count) {
                const float alpha = 3, beta = 2;
                return cublasGemmStridedBatchedEx(
                    cublas, at ? CUBLAS_OP_T : CUBLAS_OP_N, bt ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k,
                    &alpha, A.data, CUDA_R_16F, lda, stride, B.data, CUDA_R_16F, ld, stride, &beta,
                    C.data, CUDA_R_16F, ld, stride, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
            };
            EXPECT(call(at ? k - 1 : m - 1, batches) == CUBLAS_STATUS_INVALID_VALUE);
            EXPECT(call(ld, -1) == CUBLAS_STATUS_INVALID_VALUE);
            EXPECT(call(ld, batches) == CUBLAS_STATUS_SUCCESS);
            std::vector<half> expected = c;
            for (int i = 0; i < batches * m * n; ++i) {
                const int from = i / (m * n) * stride, row = i % m, column = i / m % n;
                float sum = 0;
                for (int l = 0; l < k; ++l)
                    sum += float(a[from + (at ? row * ld + l : l * ld + row)]) *
                           float(b[from + (bt ? l * ld + column : column * ld + l)]);
                half& number = expected[from + column * ld + row];
                number = 3 * sum + 2 * float(number);
            }
            EXPECT(C.read() == expected);
        }
    EXPECT(cublasDestroy(cublas) == CUBLAS_STATUS_SUCCESS);
}

int main() {
    test_launches();
    test_graphs();
    test_limits();
    test_threads();
    test_copies();
    test_wmma();
    test_ptx();
    test_half();
    test_batches();
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
