// DLRM line by line, a kernel for each, as a framework runs it. E is a multiple of 4: a thread
// moves 4 numbers, 8 or 16 bytes.
#pragma once

#include "dlrm/library.cuh"

namespace dlrm {

using demo::DlrmShape, demo::Four, demo::four;
constexpr int kElementThreads = 256;  // of a block; each has one element, or four
constexpr int kTables = DlrmShape::kTables, kVectors = DlrmShape::kVectors;
constexpr int kPairs = DlrmShape::kPairs;
constexpr int kHidden = DlrmShape::kHidden;  // columns of the top MLP's first layer

__device__ size_t my_index() { return size_t(blockIdx.x) * blockDim.x + threadIdx.x; }
inline size_t blocks(size_t threads) { return (threads + kElementThreads - 1) / kElementThreads; }

// --- The lookups ---------------------------------------------------------------------------------
/// Of a table.
__device__ size_t row_of(uint32_t id) { return (size_t(id) + 1) % DlrmShape::kRows; }

__global__ void hash(const uint32_t* ids, uint32_t* rows, size_t size) {
    if (my_index() < size) rows[my_index()] = row_of(ids[my_index()]);
}
/// out[n] = table[rows[26 n]]: one table's vectors, for all samples.
template <class T>
__global__ void gather_one(const T* table, const uint32_t* rows, T* out, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E;
    if (n < N) four(&out[e]) = four(&table[rows[n * kTables] * E + e % E]);
}
/// z[n, v] = vectors[v, n]: 27 matrices [N, E] become one, [N, 27 E].
template <class T>
__global__ void cat(const T* vectors, T* z, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E / kVectors, v = e / E % kVectors;
    if (n < N) four(&z[e]) = four(&vectors[(v * N + n) * E + e % E]);
}

// --- The interaction: outer product ... ----------------------------------------------------------
/// f[n, i, j] = z[n, i] z[n, j]. A block has 1024 features of one sample.
template <class T>
__global__ void outer(const T* z, T* f, unsigned int width) {
    const unsigned int e = (blockIdx.y * kElementThreads + threadIdx.x) * 4, i = e / width,
                       j = e % width;
    z += size_t(blockIdx.x) * width, f += size_t(blockIdx.x) * width * width;
    if (i >= width) return;
    Four<T> product = four(&z[j]);
    for (T& v : product.at) v = z[i] * v;
    four(&f[e]) = product;
}
inline dim3 outer_grid(size_t N, size_t width) {
    return dim3(N, (width * width / 4 + kElementThreads - 1) / kElementThreads);
}

// --- ... or dot products -------------------------------------------------------------------------
template <class T>
__device__ T dot(const T* a, const T* b, size_t E) {
    float sum = 0;
    for (size_t e = 0; e < E; e += 4)
        for (int c = 0; c < 4; ++c) sum += float(four(&a[e]).at[c]) * float(four(&b[e]).at[c]);
    return sum;
}
/// Pair p of vectors i > j: (1, 0), (2, 0), (2, 1), (3, 0), ... Where those of i begin p is
/// i (i - 1) / 2, and 1 + 8 p is (2 i - 1)^2; up to the next i's the root is less than 2 i + 1.
/// sqrtf rounds correctly, so of such small numbers, up to 2801, it is right at both ends.
__device__ int2 pair(int p) {
    const int i = int((1 + sqrtf(float(1 + 8 * p))) / 2);
    return {i, p - i * (i - 1) / 2};
}
/// products[n, i, j]: of all vectors with all.
template <class T>
__global__ void products(const T* z, T* products, size_t N, size_t E) {
    const size_t p = my_index(), v = p / kVectors, n = v / kVectors;  // v: n and i
    if (n < N) products[p] = dot(&z[v * E], &z[(n * kVectors + p % kVectors) * E], E);
}
/// f[n] = [bottom | the products below the diagonal].
template <class T>
__global__ void triangle(const T* bottom, const T* products, T* f, size_t N, size_t E) {
    const size_t size = E + kPairs, n = my_index() / size, k = my_index() % size;
    if (n >= N) return;
    const int2 p = k < E ? int2{0, 0} : pair(int(k - E));
    f[my_index()] = k < E ? bottom[n * E + k] : products[(n * kVectors + p.x) * kVectors + p.y];
}

}  // namespace dlrm

namespace demo {

/// The contender, with its temporary memory. Must not outlive `model` and `mlps`.
template <class T>
class DlrmChain {
  public:
    DlrmChain(const Dlrm<T>& model, const DlrmLayers<T>& mlps) : m(model), mlps(mlps) {}

    Contender contender() const {
        using namespace dlrm;
        T *const v = v_.data(), *const z = z_.data(), *const p = p_.data(), *const f = f_.data();
        auto between = [=, this] {
            hash<<<blocks(N * kTables), kElementThreads>>>(m.ids.data(), rows_.data(), N * kTables);
            for (size_t t = 0; t < kTables; ++t)
                gather_one<<<blocks(N * E / 4), kElementThreads>>>(
                    m.tables.data() + t * DlrmShape::kRows * E, rows_.data() + t,
                    v + (1 + t) * N * E, N, E);
            cat<<<blocks(N * width / 4), kElementThreads>>>(v, z, N, E);
            if (m.shape.dot) {
                products<<<blocks(N * kSquare), kElementThreads>>>(z, p, N, E);
                triangle<<<blocks(N * F), kElementThreads>>>(v, p, f, N, E);
            } else {
                outer<<<outer_grid(N, width), kElementThreads>>>(z, f, width);
            }
        };
        // hash: ids to rows; lookups; cat; then products and triangle, or the outer product
        const size_t lookups = N * kTables * 8 + m.lookup_bytes() + 2 * sizeof(T) * N * width;
        const size_t rest = sizeof(T) * N * (width + (m.shape.dot ? kSquare + 2 * F : F));
        return mlps.contender({.kernel = "chain",
                               .role = Role::kChain,
                               .launches = size_t(m.shape.dot ? 30 : 29),
                               .temporary_bytes = rows_.bytes() + v_.bytes() + z_.bytes() +
                                                  f_.bytes() + (m.shape.dot ? p_.bytes() : 0),
                               .moved_bytes = lookups + rest},
                              {v, E, f, m.top[0].W, F, false}, between);
    }

  private:
    static constexpr size_t kSquare = DlrmShape::kVectors * DlrmShape::kVectors;
    const Dlrm<T>& m;
    const DlrmLayers<T>& mlps;
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, F = m.shape.features;
    const Buffer<uint32_t> rows_{N, DlrmShape::kTables};
    const Buffer<T> v_{N, width}, z_{N, width}, p_{m.shape.dot ? N : 1, kSquare}, f_{N, F};
};

}  // namespace demo
