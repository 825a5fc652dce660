// Belongs to lesson 13, 13_dlrm: lookups and interaction as kernels between the library's gemms, a
// kernel for each line or one for all. E is a multiple of 4: a thread moves 4 numbers, 8 bytes.
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

__global__ void hash(const uint32_t* ids, uint32_t* rows, size_t size) {
    if (my_index() < size) rows[my_index()] = row_of(ids[my_index()]);
}
/// out[n] = table[rows[26 n]]: one table's vectors, for all samples.
__global__ void gather_one(const half* table, const uint32_t* rows, half* out, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E;
    if (n < N) four(&out[e]) = four(&table[rows[n * kTables] * E + e % E]);
}
/// z[n, v] = vectors[v, n]: 27 matrices [N, E] become one, [N, 27 E].
__global__ void cat(const half* vectors, half* z, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E / kVectors, v = e / E % kVectors;
    if (n < N) four(&z[e]) = four(&vectors[(v * N + n) * E + e % E]);
}
/// All of that at once: z[n, 1 + t] = tables[t, row of ids[n, t]]. z[n, 0] is there already.
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
__device__ half dot(const half* a, const half* b, size_t E) {
    float sum = 0;
    for (size_t e = 0; e < E; e += 4)
        for (int c = 0; c < 4; ++c) sum += float(four(&a[e]).at[c]) * float(four(&b[e]).at[c]);
    return sum;
}
/// products[n, i, j]: of all vectors with all.
__global__ void products(const half* z, half* products, size_t N, size_t E) {
    const size_t p = my_index(), v = p / kVectors, n = v / kVectors;  // v: n and i
    if (n < N) products[p] = dot(&z[v * E], &z[(n * kVectors + p % kVectors) * E], E);
}
/// Pair p of vectors i > j: (1, 0), (2, 0), (2, 1), (3, 0), ...
__device__ int2 pair(int p) {
    const int i = int((1 + sqrtf(float(1 + 8 * p))) / 2);
    return {i, p - i * (i - 1) / 2};
}
/// f[n] = [bottom | the products below the diagonal].
__global__ void triangle(const half* bottom, const half* products, half* f, size_t N, size_t E) {
    const size_t size = E + kPairs, n = my_index() / size, k = my_index() % size;
    if (n >= N) return;
    const int2 p = k < E ? int2{0, 0} : pair(int(k - E));
    f[my_index()] = k < E ? bottom[n * E + k] : products[(n * kVectors + p.x) * kVectors + p.y];
}
/// All of that at once, lookups included. A block has one sample: its vectors lie in shared memory.
/// f[n, 0 .. E - 1] is there already; zeros fill a row of f up to `pitch`.
__global__ void gather_dot(const uint32_t* ids, const half* tables, half* f, size_t pitch,
                           size_t E) {
    extern __shared__ __align__(16) unsigned char shared[];
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

// --- Calling them --------------------------------------------------------------------------------
/// Both ways, with their temporary memory. Must not outlive `model` and `mlps`.
class Unfused {
  public:
    Unfused(const demo::Dlrm& model, const demo::DlrmLayers& mlps) : m(model), mlps(mlps) {}

    /// What a framework launches for the model, line by line.
    demo::Contender chain() const {
        auto setup = [this](demo::Contender& self) {
            half *const v = vectors_.data(), *const z = z_.data(), *const p = products_.data();
            const auto bottom = mlps.bottom(v, E, false);
            const auto top = mlps.top(f_.data(), m.top[0].W, F, false);
            self.launch = [=, this] {
                bottom();
                hash<<<blocks(N * kTables), kThreads>>>(m.ids, rows_.data(), N * kTables);
                for (size_t t = 0; t < kTables; ++t)
                    gather_one<<<blocks(N * E / 4), kThreads>>>(&m.tables[t * m.shape.kRows * E],
                                                                rows_.data() + t,
                                                                v + (1 + t) * N * E, N, E);
                cat<<<blocks(N * width / 4), kThreads>>>(v, z, N, E);
                if (m.shape.dot) {
                    products<<<blocks(N * kSquare), kThreads>>>(z, p, N, E);
                    triangle<<<blocks(N * F), kThreads>>>(v, p, f_.data(), N, E);
                } else {
                    outer<<<outer_grid, kThreads>>>(z, f_.data(), width);
                }
                top();
            };
        };
        const size_t lookups = N * kTables * (12 + 4 * E) + 4 * N * width;
        const size_t own = m.shape.dot ? 2 * N * (width + kSquare + 2 * F) : 2 * N * (width + F);
        return {
            .kernel = "chain",
            .role = demo::Role::kChain,
            .setup = setup,
            .launches = mlps.launches(false) + 28 + (m.shape.dot ? 2 : 1),
            .repeatable = false,  // cuBLASLt chooses
            .temporary_bytes = mlps.temporary_bytes() + rows_.bytes() + vectors_.bytes() +
                               z_.bytes() + 2 * N * (F + (m.shape.dot ? kSquare : 0)),
            .moved_bytes = mlps.moved_bytes(false) + mlps.first_bytes(F, false) + lookups + own};
    }

    /// The library's epilogues, and one kernel for the lookups; under --dot for the products, too.
    demo::Contender grouped() const {
        auto setup = [this](demo::Contender& self) {
            half *const z = z_.data(), *const f = f_.data();
            pack();
            const auto bottom =
                m.shape.dot ? mlps.bottom(f, pitch, true) : mlps.bottom(z, width, true);
            const auto top = mlps.top(f, m.shape.dot ? W_.data() : m.top[0].W.data(), pitch, true);
            self.launch = [=, this] {
                bottom();
                if (m.shape.dot) {
                    gather_dot<<<N, 128, kVectors*(E + 4) * sizeof(half)>>>(m.ids, m.tables, f,
                                                                            pitch, E);
                } else {
                    gather<<<blocks(N * kTables * E / 4), kThreads>>>(m.ids, m.tables, z, N, E);
                    outer<<<outer_grid, kThreads>>>(z, f, width);
                }
                top();
            };
        };
        const size_t own = m.shape.dot ? N * pitch : N * (width - E + width + F);
        return {
            .kernel = "grouped",
            .setup = setup,
            .launches = mlps.launches(true) + (m.shape.dot ? 1 : 2),
            .repeatable = false,
            .temporary_bytes = mlps.temporary_bytes() + f_.bytes() + (m.shape.dot ? 0 : z_.bytes()),
            .moved_bytes = mlps.moved_bytes(true) + mlps.first_bytes(pitch, true) +
                           N * kTables * (4 + 2 * E) + 2 * own,
            .renew = [this] { pack(); }};
    }
    half* z() const { return z_.data(); }

  private:
    static constexpr size_t kSquare = kVectors * kVectors;
    const demo::Dlrm& m;
    const demo::DlrmLayers& mlps;
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, F = m.shape.features;
    const size_t pitch =
        (F + 7) / 8 * 8;  // of features, so that rows begin at multiples of 16 bytes
    const dim3 outer_grid{unsigned(N), unsigned((F + 4 * kThreads - 1) / (4 * kThreads))};
    const demo::Buffer<uint32_t> rows_{N, kTables};
    const demo::Buffer<half> vectors_{N, width}, z_{N, width}, f_{N, pitch};
    const demo::Buffer<half> products_{m.shape.dot ? N : 1, kSquare},
        W_{m.shape.dot ? pitch : 1, m.shape.kHidden};

    /// Under --dot: the top MLP's first weights, with rows of zeros for the features' padding.
    void pack() const {
        if (!m.shape.dot) return;
        DEMO_CHECK(cudaMemset(W_.data(), 0, W_.bytes()));
        DEMO_CHECK(cudaMemcpy(W_.data(), m.top[0].W, m.top[0].W.bytes(), cudaMemcpyDeviceToDevice));
    }
};

}  // namespace dlrm
