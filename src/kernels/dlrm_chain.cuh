// Lesson 13's model line by line, a kernel for each, as a framework runs it.
#pragma once

#include "kernels/dlrm.cuh"

namespace dlrm {

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
/// products[n, i, j]: of all vectors with all.
__global__ void products(const half* z, half* products, size_t N, size_t E) {
    const size_t p = my_index(), v = p / kVectors, n = v / kVectors;  // v: n and i
    if (n < N) products[p] = dot(&z[v * E], &z[(n * kVectors + p % kVectors) * E], E);
}
/// f[n] = [bottom | the products below the diagonal].
__global__ void triangle(const half* bottom, const half* products, half* f, size_t N, size_t E) {
    const size_t size = E + kPairs, n = my_index() / size, k = my_index() % size;
    if (n >= N) return;
    const int2 p = k < E ? int2{0, 0} : pair(int(k - E));
    f[my_index()] = k < E ? bottom[n * E + k] : products[(n * kVectors + p.x) * kVectors + p.y];
}
/// The contender, with its temporary memory. Must not outlive `model` and `mlps`.
class Chain {
  public:
    Chain(const demo::Dlrm& model, const demo::DlrmLayers& mlps) : m(model), mlps(mlps) {}

    demo::Contender contender() const {
        half *const v = v_.data(), *const z = z_.data(), *const p = p_.data(), *const f = f_.data();
        auto between = [=, this] {
            hash<<<blocks(N * kTables), kThreads>>>(m.ids, rows_.data(), N * kTables);
            for (size_t t = 0; t < kTables; ++t)
                gather_one<<<blocks(N * E / 4), kThreads>>>(
                    m.tables + t * demo::DlrmShape::kRows * E, rows_.data() + t,
                    v + (1 + t) * N * E, N, E);
            cat<<<blocks(N * width / 4), kThreads>>>(v, z, N, E);
            if (m.shape.dot) {
                products<<<blocks(N * kSquare), kThreads>>>(z, p, N, E);
                triangle<<<blocks(N * F), kThreads>>>(v, p, f, N, E);
            } else {
                outer<<<outer_grid(N, width), kThreads>>>(z, f, width);
            }
        };
        // hash: ids to rows; lookups; cat; then products and triangle, or the outer product
        const size_t lookups = N * kTables * 8 + m.lookup_bytes() + 4 * N * width;
        const size_t rest = m.shape.dot ? 2 * N * (width + kSquare + 2 * F) : 2 * N * (width + F);
        return mlps.contender({.kernel = "chain",
                               .role = demo::Role::kChain,
                               .launches = size_t(m.shape.dot ? 30 : 29),
                               .temporary_bytes = rows_.bytes() + v_.bytes() + z_.bytes() +
                                                  f_.bytes() + (m.shape.dot ? p_.bytes() : 0),
                               .moved_bytes = lookups + rest},
                              {v, E, f, m.top[0].W, F, false}, between);
    }

  private:
    static constexpr size_t kSquare = kVectors * kVectors;
    const demo::Dlrm& m;
    const demo::DlrmLayers& mlps;
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, F = m.shape.features;
    const demo::Buffer<uint32_t> rows_{N, kTables};
    const demo::Buffer<half> v_{N, width}, z_{N, width}, p_{m.shape.dot ? N : 1, kSquare}, f_{N, F};
};

}  // namespace dlrm
