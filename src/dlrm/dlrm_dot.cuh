// Belongs to bonus_dlrm: its ladder for --dot and --lookups, where features are dot products.
//
// A sample's 351 products are T T^T below the diagonal, where T are its 27 vectors: six tiles of
// mma, by one warp. They are cheap: what takes time is to look the vectors up, and with few samples
// to read the weights.
//
//     all_products    lookups and products in one kernel, between the library's gemms: with --dot
//                     the program calls that library_best
//     fused_model     the MLPs, too: the whole model in one kernel
#pragma once

#include <algorithm>
#include <string>

#include "demo/copy.cuh"
#include "demo/launch.cuh"
#include "dlrm/dlrm_mlps.cuh"
#include "hopper.cuh"
#include "ptx.cuh"

namespace dlrm_hopper {

// --- What both rungs share -----------------------------------------------------------------------

/// d[16, 8] += a[16, kDepth] b[kDepth, 8].
template <class T>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, half>)
        ptx::mma_m16n8k16(d, a, b0, b1);
    else
        ptx::mma_m16n8k8(d, a, b0, b1);
}

/// Lanes 1 to 26 have a table each; other lanes' ids and rows are any.
__device__ bool looks_up() {
    const int lane = threadIdx.x % 32;
    return lane > 0 && lane < dlrm::kVectors;
}
template <class T>
__device__ const T* row_at(const Model<T>& m, uint32_t row) {
    return &m.tables[((threadIdx.x % 32 - 1) * demo::DlrmShape::kRows + row) * m.E];
}

/// The dot products of a sample's vectors, by a warp.
template <class T>
struct Products {
    float sums[6][4] = {};  // 16 x 8 products: two tiles for vectors 0 to 15, four for the rest

    /// Adds the products of 32 bytes of each vector. A thread has word lane % 4 of both 16 bytes of
    /// vector 8 q + lane / 4: low[q] and high[q]. That is how mma wants a row of A and a column of
    /// B (see ptx::mma_m16n8k16): so the same registers serve as both.
    __device__ void add(const uint32_t (&low)[4], const uint32_t (&high)[4]) {
#pragma unroll
        for (int tile = 0; tile < 6; ++tile) {
            const int i = tile < 2 ? 0 : 2, j = tile < 2 ? tile : tile - 2;
            const uint32_t a[4] = {low[i], low[i + 1], high[i], high[i + 1]};
            mma<T>(sums[tile], a, low[j], high[j]);
        }
    }
    /// Pair p = vectors i > j is stored at(p).
    template <class At>
    __device__ void store(At at) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int tile = 0; tile < 6; ++tile)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int i = (tile < 2 ? 0 : 16) + lane / 4 + e / 2 * 8;
                const int j = (tile < 2 ? tile : tile - 2) * 8 + lane % 4 * 2 + e % 2;
                if (i < dlrm::kVectors && j < i) *at(i * (i - 1) / 2 + j) = T(sums[tile][e]);
            }
    }
};

// --- all_products: lookups and products between the library's gemms ------------------------------
// Adds    to lesson 13's gather_dot: mma, and copies beside it. A block is a warp, and does sample
//         after sample. While it multiplies, the next sample's vectors arrive in shared memory, and
//         the ids after that in registers.
// Costs   shared memory: two samples' vectors for each warp. With E = 128 the 14 warps of a
//         multiprocessor have 100 KB under way; 32 KB would be enough to keep memory busy.
// Limits  memory: each lookup reads a row, 256 bytes with E = 128. See --lookups.
// Source  CUDA Programming Guide, "Asynchronous Data Copies"; Little's law.

/// Bytes from vector to vector in shared memory: a multiple of 32, as an mma step takes, plus 16,
/// so that ldmatrix finds 8 vectors in different banks.
template <class T>
__host__ __device__ int room(unsigned int E) {
    return (E * sizeof(T) + 31) / 32 * 32 + 16;
}
/// f[n] = [the first vector, which is there already | the products | zeros], in rows of `pitch`. A
/// Piece is 16 bytes, or 8 where a vector's size is no multiple of 16.
template <class Piece, class T>
__global__ void __launch_bounds__(32)
    all_products(const __grid_constant__ Model<T> m, T* f, int pitch) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x, E = int(m.E), between = room<T>(m.E);
    const int of_sample = dlrm::kVectors * between, count = pitch - E;
    T* const products = reinterpret_cast<T*>(shared + 2 * of_sample);
    if (sizeof(T) * m.E % 32 > 0)  // no copy reaches what fills up the last 32 bytes
        for (int c = lane * 16; c < 2 * of_sample; c += 512)
            *reinterpret_cast<uint4*>(shared + c) = {};
    for (int c = dlrm::kPairs + lane; c < count; c += 32) products[c] = T(0.0f);
    __syncwarp();  // all zeros are there

    auto id_of = [&](size_t n) {
        return looks_up() && n < m.N ? m.ids[n * kTables + lane - 1] : 0;
    };
    // 1 << shift neighboring lanes copy a vector: at least one for each of its pieces.
    const int size = E * int(sizeof(T)), pieces = size / int(sizeof(Piece)),
              shift = pieces > 1 ? 32 - __clz(pieces - 1) : 0;
    const int c = (lane & ((1 << shift) - 1)) * int(sizeof(Piece));
    auto fetch = [&](size_t n, uint32_t id, int stage) {
        if (n < m.N) {
            const T* const vector = looks_up() ? row_at(m, modulus_hash(id)) : &f[n * pitch];
            unsigned char* const to = shared + stage * of_sample + c;
#pragma unroll 4
            for (int first = 0; first < dlrm::kVectors; first += 32 >> shift) {
                const int v = first + (lane >> shift);
                const auto from = reinterpret_cast<const unsigned char*>(
                    __shfl_sync(~0u, reinterpret_cast<unsigned long long>(vector), v % 32));
                if (v >= dlrm::kVectors || c >= size) continue;
                if constexpr (sizeof(Piece) < 16)
                    *reinterpret_cast<Piece*>(&to[v * between]) =
                        *reinterpret_cast<const Piece*>(&from[c]);
                else if (size < 128)
                    ptx::cp_async_16(&to[v * between], &from[c]);
                else  // L2 fetches 128 bytes, most of which are this row's
                    ptx::cp_async_16(&to[v * between], &from[c], true);
            }
        }
        ptx::cp_async_commit_group();
    };

    size_t n = blockIdx.x, next = n + gridDim.x;
    fetch(n, id_of(n), 0);
    uint32_t id = id_of(next);
    const int mine = min(lane, dlrm::kVectors - 1) * between;  // others read the last one
    for (int stage = 0; n < m.N; n = next, next += gridDim.x, stage ^= 1) {
        fetch(next, id, stage ^ 1);
        id = id_of(next + gridDim.x);
        ptx::cp_async_wait_group<1>();
        __syncwarp();  // the other lanes' copies are there, too
        const unsigned char* const vector = shared + stage * of_sample + mine;
        Products<T> sums;
#pragma unroll 2
        for (int k = 0; k < between - 16; k += 32) {
            uint32_t low[4], high[4];
            ptx::ldmatrix_x4(low, &vector[k]);
            ptx::ldmatrix_x4(high, &vector[k + 16]);
            sums.add(low, high);
        }
        sums.store([=](int p) { return &products[p]; });
        __syncwarp();  // the products are there, and nobody needs the vectors any more
        for (int c = lane * 4; c < count; c += 128)
            dlrm::four(&f[n * pitch + E + c]) = dlrm::four(&products[c]);
        __syncwarp();  // nobody needs the products any more
    }
}

/// Numbers from row to row of f: a multiple of 16.
static size_t products_pitch(const demo::DlrmShape& shape) {
    return (shape.features + 15) / 16 * 16;
}
/// Launches it, with as many warps as are resident at a time.
template <class T>
static void launch_products(const Model<T>& model, T* f, size_t pitch, const demo::Gpu& gpu,
                            cudaStream_t stream) {
    auto launch = [&](auto kernel) {
        const size_t bytes = 2 * dlrm::kVectors * room<T>(model.E) + (pitch - model.E) * sizeof(T);
        demo::allow_shared_bytes(kernel, bytes);
        const size_t most =
            gpu.multiprocessors * demo::blocks_per_multiprocessor(kernel, 32, bytes);
        kernel<<<std::min(model.N, most), 32, bytes, stream>>>(model, f, int(pitch));
    };
    model.E * sizeof(T) % 16 == 0 ? launch(all_products<uint4, T>) : launch(all_products<uint2, T>);
}

// --- fused_model: --dot in one kernel ------------------------------------------------------------
// Adds    the MLPs (dlrm_mlps.cuh). A block takes 16 to 64 samples through the whole model, and
//         stores the result alone (and the top MLP's first layer, to be verified). Vectors come
//         straight into registers; three warps fetch the rows into L2, a group of samples ahead.
// Costs   each block reads all weights, 1 MB (in TF32 2), for each group of samples. Hopper alone.
// Limits  up to 2112 samples, 16 a block, the copies of weights: about 50 bytes a clock into each
//         multiprocessor. With more also lookups, as a warp has one sample's on their way: with
//         very many samples, or long vectors, library_best with all_products is faster.
// Source  Müller et al., "Real-time Neural Radiance Caching for Path Tracing", 2021, as lesson 12.

/// Where vector `lane` of sample n is.
template <class T>
__device__ const T* vector_of(const Model<T>& m, size_t n) {
    if (!looks_up()) return m.tables;  // its products are not used
    const size_t id = n * kTables + threadIdx.x % 32 - 1;
    return row_at(m, modulus_hash(m.ids[id]));
}

/// Features E ... `end` of a sample, zeros behind the products. The first vector is features 0 ...
/// E - 1. at(c) is where feature c is. A thread loads 8 bytes, as an mma needs, or 16.
template <class Piece, class T, class At>
__device__ void interact(const T* vector, int E, int end, At at) {
    constexpr int kMmas = sizeof(Piece) / 8;  // mma of a piece
    const int lane = threadIdx.x % 32;
    const T* vectors[4];  // that this thread loads from: one of each 8
#pragma unroll
    for (int q = 0; q < 4; ++q)
        vectors[q] = reinterpret_cast<const T*>(
            __shfl_sync(~0u, reinterpret_cast<unsigned long long>(vector), 8 * q + lane / 4));
    Products<T> products;
#pragma unroll(2 / kMmas)
    for (int k = 0; k < E; k += kMmas * kDepth<T>) {
        // mma wants thread t to have numbers 2t, 2t + 1, 2t + 8, 2t + 9 of 16. A sum's order is
        // free, so t has four neighbors; in TF32 2t and 2t + 1 of 8, in place of t and t + 4.
        const int c = k + lane % 4 * (kMmas * kDepth<T> / 4);
        uint32_t words[2 * kMmas][4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            Piece some{};
            if (c < E)
                some = *reinterpret_cast<const Piece*>(q == 0 && lane < 4 ? at(c) : &vectors[q][c]);
#pragma unroll
            for (int w = 0; w < 2 * kMmas; ++w)
                words[w][q] = reinterpret_cast<const uint32_t(&)[2 * kMmas]>(some)[w];
        }
#pragma unroll
        for (int s = 0; s < kMmas; ++s) products.add(words[2 * s], words[2 * s + 1]);
    }
    products.store([=](int p) { return at(E + p); });
    for (int c = E + dlrm::kPairs + lane; c < end; c += 32) *at(c) = T(0.0f);
}

template <int kRows, class T>
__global__ void __launch_bounds__(kMlpThreads, 1) fused_model(const __grid_constant__ Model<T> m) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Block<kRows, T> block(m, shared);
    auto lookup = [&](size_t first, int r) { return vector_of(m, min(first + r, m.N - 1)); };
    const auto ahead = [&](size_t first) {  // three warps fetch the rows of the tables into L2
#pragma unroll 1
        for (int r = threadIdx.x / 32 % 4 - 1; r < kRows; r += 3) {
            const T* const vector = lookup(first, r);
            for (unsigned int e = 0; e < m.E; e += 128 / sizeof(T)) ptx::prefetch_L2(&vector[e]);
        }
    };
    const auto work = [&](size_t first) {
        const int warp = threadIdx.x / 32;
        const T* vector = lookup(first, warp);
        block.bottom_mlp(first);
#pragma unroll 1
        for (int r = warp; r < kRows; r += kWarps) {
            const T* const now = vector;
            vector = lookup(first, r + kWarps);  // while this sample's products are computed
            // The shuffle keeps E's value here: else the compiler would compute all places of
            // features before the first layer, in registers that are needed.
            const int E = __shfl_sync(~0u, int(m.E), 0), end = int(m.features());
            auto at = [&](int c) { return &block.narrow[place<kRows, T>(r, c)]; };
            if (E * sizeof(T) % 64 == 0)  // four lanes load 16 bytes each
                interact<uint4>(now, E, end, at);
            else
                interact<uint2>(now, E, end, at);
        }
        meet();  // the features are complete
        block.apply(m.top[0], block.narrow, block.wide);
        block.for_each_four(first, kHidden, kHidden, [&](int from, size_t to) {
            dlrm::four(&m.hidden[to]) = dlrm::four(&block.wide[from]);
        });
        block.top_mlp(first);
    };
    block.run(0, m.tiles, work, ahead);
}

// --- Launching -----------------------------------------------------------------------------------

/// The model with dot products. Must not outlive `packed`.
template <class T>
class Dot {
  public:
    Dot(const demo::DlrmLayers<T>& mlps, const Packed<T>& packed, const demo::Session& session)
        : m(packed.m), mlps(mlps), packed_(packed), session_(session) {}

    demo::Contender library_best() const {
        auto between = [this](cudaStream_t stream) {
            launch_products(packed_.model(), f_.data(), pitch, session_.gpu, stream);
        };
        auto pad = [this] {  // the weights, with zeros for the features' padding
            const demo::Input<T>& W = m.top[0].W;
            DEMO_CHECK(cudaMemset(W_.data(), 0, W_.bytes()));
            if (kTurned<T>) {
                demo::turn<T><<<dlrm::blocks(W.size()), dlrm::kElementThreads>>>(
                    W, W_.data(), m.top[0].K, kHidden, pitch);
                mlps.turn_W();
            } else {
                DEMO_CHECK(cudaMemcpy(W_.data(), W, W.bytes(), cudaMemcpyDeviceToDevice));
            }
        };
        return mlps.graph(
            {.kernel = "library_best",
             .role = demo::Role::kLibrary,
             .launches = 1,
             .temporary_bytes = f_.bytes(),
             .moved_bytes = m.shape.N * (kTables * (4 + sizeof(T) * m.shape.E) + sizeof(T) * pitch),
             .renew = pad},
            {f_.data(), pitch, f_.data(), W_.data(), pitch, true, kTurned<T>}, between);
    }

    demo::Contender fused_model(const demo::Workload& work) const {
        const auto setup = [this](demo::Contender& self) {
            self.renew();
            packed_.with_rows([&](auto rows, int blocks, size_t bytes) {
                const auto kernel = dlrm_hopper::fused_model<rows, T>;
                demo::allow_shared_bytes(kernel, bytes);
                self.launch = [=, model = packed_.model()] {
                    kernel<<<blocks, kMlpThreads, bytes>>>(model);
                };
            });
        };
        return {.kernel = "fused_model",
                .setup = setup,
                .moved_bytes = work.least_bytes,
                .why_not = hopper::why_not(session_.gpu),
                .renew = [this] { packed_.pack(); }};
    }

  private:
    const demo::Dlrm<T>& m;
    const demo::DlrmLayers<T>& mlps;
    const Packed<T>& packed_;
    const demo::Session& session_;
    const size_t pitch = products_pitch(m.shape);
    const demo::Buffer<T> f_{m.shape.N, pitch}, W_{pitch, kHidden};
};

// --- --lookups -----------------------------------------------------------------------------------

/// What all_products must leave of a feature: of the first vector, of a product, or zero.
template <class T>
struct ExpectProduct {
    const uint32_t* ids;
    const T *tables, *first;
    size_t E;

    __device__ demo::Expected operator()(size_t, size_t n, size_t column) const {
        auto vector = [=, this](size_t v) {
            if (v == 0) return &first[n * E];
            const size_t row = dlrm::row_of(ids[n * kTables + v - 1]);
            return &tables[((v - 1) * demo::DlrmShape::kRows + row) * E];
        };
        if (column < E) return {double(float(first[n * E + column])), 0};
        if (column >= E + dlrm::kPairs) return {0, 0};
        const int2 pair = dlrm::pair(int(column - E));
        const T *a = vector(pair.x), *b = vector(pair.y);
        demo::DlrmTerms<T> terms{0};
        for (size_t e = 0; e < E; ++e) terms.add(double(float(a[e])) * double(float(b[e])), 0);
        const demo::DlrmSum sum = terms.end(E);
        constexpr demo::Format format = demo::kFormat<T>;
        return {sum.value, sum.error() + format.roundoff * fabs(sum.value) + format.subnormal};
    }
};

/// --lookups: all_products beside a copy of as many bytes as it reads and writes.
template <class T>
static void run_lookups(demo::Session& session, const demo::DlrmShape& shape) {
    const size_t N = shape.N, E = shape.E, pitch = products_pitch(shape);
    const bool zipf = session.options.choice("--ids") == "zipf";
    const demo::Input<uint32_t> ids(session, "ids", {N, kTables},
                                    {.then = zipf ? demo::Then::kZipf : demo::Then::kNothing});
    const demo::Input<T> tables(session, "tables", {kTables, demo::DlrmShape::kRows, E});
    const demo::Input<T> first(session, "first", {N, E});
    const demo::Output<T> f(session, "features", {N, pitch});
    Model<T> model{};
    model.ids = ids, model.tables = tables, model.N = N, model.E = unsigned(E);
    const size_t rows = demo::saturating_product(N, kTables, E, sizeof(T));
    const demo::Workload work{
        .shape = "lookups" + (E == shape.kUsualE ? "" : "e" + std::to_string(E)),
        .size = N,
        .dtype = session.dtype(),
        .flops = 2.0 * double(dlrm::kPairs * N) * double(E),
        .least_bytes = demo::saturating_sum(ids.bytes(), std::min(rows, tables.bytes()), f.bytes()),
        .memory_bound = true,
        .text = std::to_string(N) + " samples, 27 vectors of " + std::to_string(E),
        .arithmetic = "fp32 sums"};
    const auto copy_first = [&] {
        DEMO_CHECK(cudaMemcpy2DAsync(f, pitch * sizeof(T), first, E * sizeof(T), E * sizeof(T), N,
                                     cudaMemcpyDeviceToDevice));
    };
    const demo::Contender all_products{
        .kernel = "all_products",
        .launch = [&] { launch_products(model, f.data(), pitch, session.gpu, nullptr); },
        .moved_bytes = work.least_bytes,
        .prepare = copy_first};
    session.run(work, f.check(ExpectProduct<T>{ids, tables, first, E}),
                {all_products, demo::copy_contender(session, work)});
}

}  // namespace dlrm_hopper
