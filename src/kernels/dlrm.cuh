// Belongs to lesson 13, 13_dlrm: lookups and interaction as kernels between the library's gemms. E
// is a multiple of 4: a thread moves 4 numbers, 8 bytes.
#pragma once

#include "demo.cuh"
#include "demo/dlrm_layers.cuh"

namespace dlrm {

constexpr int kThreads = 256, kTables = 26, kVectors = 27, kPairs = 351;
struct alignas(8) Half4 {
    half at[4];
};
__device__ size_t my_index() { return size_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ const Half4& four(const half* from) { return *reinterpret_cast<const Half4*>(from); }
__device__ Half4& four(half* to) { return *reinterpret_cast<Half4*>(to); }
inline size_t blocks(size_t threads) { return (threads + kThreads - 1) / kThreads; }

// --- The lookups ---------------------------------------------------------------------------------
__device__ size_t row_of(uint32_t id) { return (size_t(id) + 1) % demo::DlrmShape::kRows; }

/// Hash, lookups and cat: z[n, 1 + t] = tables[t, row of ids[n, t]]. z[n, 0] is there already.
__global__ void gather(const uint32_t* ids, const half* tables, half* z, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E / kTables, t = e / E % kTables;
    if (n >= N) return;
    const size_t row = t * demo::DlrmShape::kRows + row_of(ids[e / E]);
    four(&z[(n * kVectors + 1 + t) * E + e % E]) = four(&tables[row * E + e % E]);
}

// --- The interaction -----------------------------------------------------------------------------
/// f[n, i, j] = z[n, i] z[n, j]. A block has 1024 features of one sample.
__global__ void outer(const half* z, half* f, unsigned int width) {
    const unsigned int e = (blockIdx.y * kThreads + threadIdx.x) * 4, i = e / width, j = e % width;
    z += size_t(blockIdx.x) * width, f += size_t(blockIdx.x) * width * width;
    if (i >= width) return;
    Half4 product = four(&z[j]);
    for (half& v : product.at) v = __hmul(z[i], v);
    four(&f[e]) = product;
}
inline dim3 outer_grid(size_t N, size_t width) {
    return dim3(N, (width * width / 4 + kThreads - 1) / kThreads);
}
__device__ half dot(const half* a, const half* b, size_t E) {
    float sum = 0;
    for (size_t e = 0; e < E; e += 4)
        for (int c = 0; c < 4; ++c) sum += float(four(&a[e]).at[c]) * float(four(&b[e]).at[c]);
    return sum;
}
/// Pair p of vectors i > j: (1, 0), (2, 0), (2, 1), (3, 0), ...
__device__ int2 pair(int p) {
    const int i = int((1 + sqrtf(float(1 + 8 * p))) / 2);
    return {i, p - i * (i - 1) / 2};
}
/// Lookups and dot products. A block has one sample, whose vectors lie in shared memory.
/// f[n, 0 .. E - 1] is there already; zeros fill a row of f up to `pitch`.
__global__ void gather_dot(const uint32_t* ids, const half* tables, half* f, size_t pitch,
                           size_t E) {
    extern __shared__ __align__(128) unsigned char shared[];
    half* const z = reinterpret_cast<half*>(shared);
    const size_t padded = E + 4;  // neighboring vectors begin in different banks
    ids += size_t(blockIdx.x) * kTables, f += size_t(blockIdx.x) * pitch;
    for (size_t e = threadIdx.x * 4; e < kVectors * E; e += blockDim.x * 4) {
        const size_t v = e / E, row = v ? (v - 1) * demo::DlrmShape::kRows + row_of(ids[v - 1]) : 0;
        four(&z[v * padded + e % E]) = v ? four(&tables[row * E + e % E]) : four(&f[e]);
    }
    __syncthreads();  // the vectors are complete
    for (int p = threadIdx.x; p < int(pitch - E); p += blockDim.x)
        f[E + p] = p < kPairs ? dot(&z[pair(p).x * padded], &z[pair(p).y * padded], E) : half(0);
}

// --- grouped: the library's gemms with bias and ReLU, and between them the kernels above ---------
/// Must not outlive `model` and `mlps`.
class Grouped {
  public:
    Grouped(const demo::Dlrm& model, const demo::DlrmLayers& mlps) : m(model), mlps(mlps) {}

    void launch_gather() const {
        gather<<<blocks(N * kTables * E / 4), kThreads>>>(m.ids, m.tables, z.data(), N, E);
    }
    demo::Contender outer_product() const {
        auto between = [this] {
            launch_gather();
            outer<<<outer_grid(N, width), kThreads>>>(z.data(), f_.data(), width);
        };
        return mlps.contender({.kernel = "grouped",
                               .launches = 2,
                               .temporary_bytes = z.bytes() + f_.bytes(),
                               .moved_bytes = m.lookup_bytes() + 2 * N * (width + F)},
                              {z.data(), width, f_.data(), m.top[0].W, F}, between);
    }
    demo::Contender dot_products() const {
        auto between = [this] {
            const size_t shared_bytes = kVectors * (E + 4) * sizeof(half);
            gather_dot<<<N, 128, shared_bytes>>>(m.ids, m.tables, f_.data(), pitch, E);
        };
        auto pack = [this] {  // the weights, with rows of zeros for the features' padding
            const demo::Input<half>& W = m.top[0].W;
            DEMO_CHECK(cudaMemset(W_.data(), 0, W_.bytes()));
            DEMO_CHECK(cudaMemcpy(W_.data(), W, W.bytes(), cudaMemcpyDeviceToDevice));
        };
        return mlps.contender({.kernel = "grouped",
                               .launches = 1,
                               .temporary_bytes = f_.bytes(),
                               .moved_bytes = N * kTables * (4 + 2 * E) + 2 * N * pitch,
                               .renew = pack},
                              {f_.data(), pitch, f_.data(), W_.data(), pitch}, between);
    }

  private:
    const demo::Dlrm& m;
    const demo::DlrmLayers& mlps;
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, F = m.shape.features;
    const size_t pitch = (F + 7) / 8 * 8;  // the features' rows begin at multiples of 16 bytes
    const demo::Buffer<half> f_{N, pitch}, W_{m.shape.dot ? pitch : 1, demo::DlrmShape::kHidden};

  public:
    const demo::Buffer<half> z{N, width};  // for fused_interaction, too
};

}  // namespace dlrm
