// Belongs to lesson 13, 13_dlrm: its first step, a kernel or two between the library's gemms.
#pragma once

#include "demo.cuh"
#include "dlrm/chain.cuh"

namespace dlrm {

/// Hash, lookups and cat: z[n, 1 + t] = tables[t, row of ids[n, t]]. z[n, 0] is there already.
template <class T>
__global__ void gather(const uint32_t* ids, const T* tables, T* z, size_t N, size_t E) {
    const size_t e = my_index() * 4, n = e / E / kTables, t = e / E % kTables;
    if (n >= N) return;
    const size_t row = t * demo::DlrmShape::kRows + row_of(ids[e / E]);
    four(&z[(n * kVectors + 1 + t) * E + e % E]) = four(&tables[row * E + e % E]);
}

/// Lookups and dot products. A block has one sample, whose vectors lie in shared memory.
/// f[n, 0 .. E - 1] is there already; zeros fill a row of f up to `pitch`.
template <class T>
__global__ void gather_dot(const uint32_t* ids, const T* tables, T* f, size_t pitch, size_t E) {
    extern __shared__ __align__(128) unsigned char shared[];
    T* const z = reinterpret_cast<T*>(shared);
    const size_t padded = E + 4;  // neighboring vectors begin in different banks
    ids += size_t(blockIdx.x) * kTables, f += size_t(blockIdx.x) * pitch;
    for (size_t e = threadIdx.x * 4; e < kVectors * E; e += blockDim.x * 4) {
        const size_t v = e / E, row = v ? (v - 1) * demo::DlrmShape::kRows + row_of(ids[v - 1]) : 0;
        four(&z[v * padded + e % E]) = v ? four(&tables[row * E + e % E]) : four(&f[e]);
    }
    __syncthreads();  // the vectors are complete
    for (int p = threadIdx.x; p < int(pitch - E); p += blockDim.x)
        f[E + p] = p < kPairs ? dot(&z[pair(p).x * padded], &z[pair(p).y * padded], E) : T(0.0f);
}

/// grouped: the library's gemms with bias and ReLU, and between them gather and the chain's outer,
/// or gather_dot. It stores `z`, [N, width], and the features `f`, [N, pitch]. All must outlive it.
template <class T>
demo::Contender grouped(const demo::Dlrm<T>& m, const demo::DlrmLayers<T>& mlps, T* z, T* f) {
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, pitch = m.shape.pitch;
    const bool dot = m.shape.dot;
    auto between = [=, &m] {
        if (dot) {
            gather_dot<T><<<N, 128, kVectors*(E + 4) * sizeof(T)>>>(m.ids, m.tables, f, pitch, E);
        } else {
            gather<T><<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z, N, E);
            outer<T><<<outer_grid(N, width), kElementThreads>>>(z, f, width);
        }
    };
    const size_t lookup_bytes = dot ? N * kTables * (4 + sizeof(T) * E) : m.lookup_bytes();
    const size_t z_bytes = dot ? 0 : sizeof(T) * N * width, f_bytes = sizeof(T) * N * pitch;
    return mlps.contender({.kernel = "grouped",
                           .launches = dot ? 1u : 2u,
                           .temporary_bytes = z_bytes + f_bytes,
                           .moved_bytes = lookup_bytes + z_bytes + f_bytes,
                           .renew = [&mlps] { mlps.pad_W(); }},
                          {dot ? f : z, dot ? pitch : width, f, mlps.padded_W(), pitch}, between);
}

}  // namespace dlrm
