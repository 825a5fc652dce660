// Belongs to lesson 13, 13_dlrm: its first step, a kernel or two between the library's gemms.
#pragma once

#include "demo.cuh"
#include "demo/dlrm_chain.cuh"

namespace dlrm {

using namespace demo::dlrm;  // kTables = 26, kVectors = 27, kPairs, four(), row_of(), dot(), pair()

/// Hash, lookups and cat: z[n, 1 + t] = tables[t, row of ids[n, t]]. z[n, 0] is there already.
__global__ void gather(const uint32_t* ids, const half* tables, half* z, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E / kTables, t = e / E % kTables;
    if (n >= N) return;
    const size_t row = t * demo::DlrmShape::kRows + row_of(ids[e / E]);
    four(&z[(n * kVectors + 1 + t) * E + e % E]) = four(&tables[row * E + e % E]);
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

/// grouped: the library's gemms with bias and ReLU, and between them gather and the chain's outer,
/// or gather_dot. It stores `z`, [N, width], and the features `f`, [N, pitch]. All must outlive it.
inline demo::Contender grouped(const demo::Dlrm& m, const demo::DlrmLayers& mlps,
                               const demo::Buffer<half>& z, const demo::Buffer<half>& f) {
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, pitch = m.shape.pitch;
    auto lookups_and_outer = [=, &m, &z, &f] {
        gather<<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z.data(), N, E);
        outer<<<outer_grid(N, width), kElementThreads>>>(z.data(), f.data(), width);
    };
    auto lookups_and_dot = [=, &m, &f] {
        const size_t shared_bytes = kVectors * (E + 4) * sizeof(half);
        gather_dot<<<N, 128, shared_bytes>>>(m.ids, m.tables, f.data(), pitch, E);
    };
    if (m.shape.dot)
        return mlps.contender({.kernel = "grouped",
                               .launches = 1,
                               .temporary_bytes = f.bytes(),
                               .moved_bytes = N * kTables * (4 + 2 * E) + 2 * N * pitch,
                               .renew = [&mlps] { mlps.pad_W(); }},
                              {f.data(), pitch, f.data(), mlps.padded_W(), pitch}, lookups_and_dot);
    return mlps.contender({.kernel = "grouped",
                           .launches = 2,
                           .temporary_bytes = z.bytes() + f.bytes(),
                           .moved_bytes = m.lookup_bytes() + 2 * N * (width + pitch)},
                          {z.data(), width, f.data(), m.top[0].W, pitch}, lookups_and_outer);
}

}  // namespace dlrm
