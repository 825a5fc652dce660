// 8: Softmax over the rows of x[rows, cols]: out = e^(x - max) / sum of e^(x - max).
//
// Every row first has to be seen whole: its maximum, then its sum. Whoever wants to read it only
// once must have somewhere to keep it. (Why the maximum: e^89 is beyond what fp32 holds, and
// subtracting the same from all of a row changes nothing but keeps e's argument at 0 and below.)
//
// chain            as a framework runs it eagerly, five kernels: the rows' maxima, x - max, e^t,
// the
//                  rows' sums, e / sum. Reads 5 MN + 2 M, writes 3 MN + 2 M: four times the least.
// fused            a block takes a row, keeps it in shared memory, and goes over it three times. A
//                  row that does not fit is read three times.
// fused_registers  a row in the registers of a team that is as large as the row asks for:
//
//                      columns (fp32)   team                      keeps
//                      up to    1024    one warp                  up to 8 vectors a thread
//                      up to   16384    one block                 4 vectors a thread
//                      up to  131072    a cluster of 2 .. 8 blocks, which read each other's
//                                       shared memory (compute capability 9.0 and later)
//                      beyond           the same, but nothing is kept: the row is read twice
//
//                  Maximum and sum in one go: each thread finds (max, sum of e^(x - max)) of its
//                  own part, and two such parts merge into one. So the team has to meet once, not
//                  twice, and a warp needs no barrier at all.
//
// A row that is -infinity throughout is NaN: there is no distribution over nothing. (It is in
// PyTorch too.) A single -infinity is 0, and a NaN or +infinity makes its whole row NaN.
//
// TFLOP/s counts five operations per element, the chain's.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>
#include <bit>
#include <cfloat>

#include "demo.cuh"
#include "demo/elementwise.cuh"

namespace softmax {

constexpr int kThreads = 256;
constexpr float kNothing = -INFINITY;  // the maximum of no numbers

/// What a part of a row comes down to: its maximum, and the sum of e^(x - maximum) over it.
struct Part {
    float max, sum;
};

/// The maximum, to be subtracted: where it is -infinity, x - max would be NaN, and 0 does as well.
__device__ float shift(float max) { return max == kNothing ? 0 : max; }

__device__ Part merge(Part a, Part b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * __expf(a.max - shift(max)) + b.sum * __expf(b.max - shift(max))};
}

/// Merges the parts of a warp's threads. All of them get the result.
__device__ Part merge_warp(Part part) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        part = merge(
            part, {__shfl_xor_sync(~0u, part.max, lanes), __shfl_xor_sync(~0u, part.sum, lanes)});
    return part;
}

/// Merges the parts of a block's threads (whole warps of them, up to 32). All get the result.
__device__ Part merge_block(Part part) {
    __shared__ Part parts[32];
    part = merge_warp(part);
    const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) parts[warp] = part;
    __syncthreads();  // every warp's part is there
    part = lane < blockDim.x / 32 ? parts[lane] : Part{kNothing, 0};
    return merge_warp(part);
}

// --- One kernel per operation -------------------------------------------------------------------

/// A block per row: its maximum. fp32 whatever T is: a sum of 131072 terms exceeds fp16.
template <class T>
__global__ void row_max(const T* x, float* max, size_t rows, size_t cols) {
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = kNothing;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            own = fmaxf(own, float(x[row * cols + col]));
        const Part part = merge_block({own, 0});
        if (threadIdx.x == 0) max[row] = part.max;
        __syncthreads();  // merge_block's memory may be used again
    }
}

template <class T>
__global__ void row_sum(const T* e, float* sum, size_t rows, size_t cols) {
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = 0;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            own += float(e[row * cols + col]);
        const Part part = merge_block({0, own});  // with equal maxima, merging is adding
        if (threadIdx.x == 0) sum[row] = part.sum;
        __syncthreads();  // merge_block's memory may be used again
    }
}

template <class T>
__global__ void subtract(const T* x, const float* max, T* t, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) t[i] = T(float(x[i]) - max[i / cols]);
}

template <class T>
__global__ void exponential(const T* t, T* e, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) e[i] = T(expf(float(t[i])));
}

template <class T>
__global__ void divide(const T* e, const float* sum, T* out, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(float(e[i]) / sum[i / cols]);
}

// --- A block per row ----------------------------------------------------------------------------

template <class T>
__global__ void fused(const T* x,  // [rows, cols] row-major, like out
                      T* out, size_t rows, size_t cols, bool fits) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const kept = reinterpret_cast<T*>(shared);  // [cols], where that fits
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* const from = x + row * cols;
        const T* const again = fits ? kept : from;

        float max = kNothing;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x) {
            const T value = from[col];
            if (fits) kept[col] = value;
            max = fmaxf(max, float(value));
        }
        max = merge_block({max, 0}).max;
        __syncthreads();  // merge_block's memory may be used again

        float sum = 0;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            sum += __expf(float(again[col]) - shift(max));
        sum = merge_block({0, sum}).sum;

        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            out[row * cols + col] = T(__expf(float(again[col]) - shift(max)) / sum);
        __syncthreads();  // the next row may take the memory
    }
}

// --- A team per row -----------------------------------------------------------------------------

/// Elements that a thread moves at a time: 16 bytes, or one element where rows do not begin at
/// multiples of 16 bytes.
template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Piece {
    static constexpr int kSize = kElements;
    T at[kElements];
};

/// The part of kPieces pieces. (One maximum for all, so that each element takes one e^x.)
template <class T, int kElements, int kPieces>
__device__ Part part_of(const Piece<T, kElements> (&pieces)[kPieces]) {
    float max = kNothing, sum = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
        for (T value : pieces[i].at) max = fmaxf(max, float(value));
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
        for (T value : pieces[i].at) sum += __expf(float(value) - shift(max));
    return {max, sum};
}

/// Loads a thread's pieces of a row: every `stride`-th from `first`. Beyond the row is -infinity.
template <class T, int kElements, int kPieces>
__device__ void load(Piece<T, kElements> (&pieces)[kPieces], const T* row, size_t first,
                     size_t stride, size_t cols) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const size_t p = first + i * stride;
        if (p < cols / kElements)
            pieces[i] = reinterpret_cast<const Piece<T, kElements>*>(row)[p];
        else
            for (T& value : pieces[i].at) value = T(kNothing);
    }
}

/// Stores the softmax of the same pieces, given the whole row's maximum and sum.
template <class T, int kElements, int kPieces>
__device__ void store(const Piece<T, kElements> (&pieces)[kPieces], Part whole, T* row,
                      size_t first, size_t stride, size_t cols) {
    const float factor = 1 / whole.sum, max = shift(whole.max);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const size_t p = first + i * stride;
        if (p >= cols / kElements) continue;
        Piece<T, kElements> result;
        for (int j = 0; j < kElements; ++j)
            result.at[j] = T(__expf(float(pieces[i].at[j]) - max) * factor);
        reinterpret_cast<Piece<T, kElements>*>(row)[p] = result;
    }
}

/// A warp per row, for rows of up to 32 * kPieces pieces.
template <class T, int kElements, int kPieces>
__global__ void by_warp(const T* x,  // [rows, cols] row-major, like out
                        T* out, size_t rows, size_t cols) {
    const size_t row = size_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    Piece<T, kElements> pieces[kPieces];
    load(pieces, x + row * cols, lane, 32, cols);
    const Part whole = merge_warp(part_of(pieces));
    store(pieces, whole, out + row * cols, lane, 32, cols);
}

/// Blocks that share a row, and can read each other's shared memory. A single block before 9.0.
struct Cluster {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __device__ unsigned int size() const { return cooperative_groups::cluster_group::num_blocks(); }
    __device__ unsigned int rank() const { return cooperative_groups::cluster_group::block_rank(); }

    /// Merges the blocks' parts. All threads get the result.
    __device__ Part merge_all(Part part) const {
        auto cluster = cooperative_groups::this_cluster();
        if (size() == 1) return part;
        __shared__ Part own;
        if (threadIdx.x == 0) own = part;
        cluster.sync();  // every block's part is there
        part = {kNothing, 0};
        for (unsigned int block = 0; block < size(); ++block)
            part = merge(part, *cluster.map_shared_rank(&own, block));
        return part;
    }
    /// No block may leave while another still reads its shared memory.
    __device__ void leave() const {
        if (size() > 1) cooperative_groups::this_cluster().sync();
    }
#else
    __device__ unsigned int size() const { return 1; }
    __device__ unsigned int rank() const { return 0; }
    __device__ Part merge_all(Part part) const { return part; }
    __device__ void leave() const {}
#endif
};

/// A block or a cluster per row: each block keeps `share` pieces of it in shared memory.
template <class T, int kElements>
__global__ void by_block(const T* x,  // [rows, cols] row-major, like out
                         T* out, size_t cols, size_t share) {
    extern __shared__ __align__(16) unsigned char shared[];
    using Unit = Piece<T, kElements>;
    Unit* const kept = reinterpret_cast<Unit*>(shared);  // [share]
    const Cluster cluster;
    const size_t row = blockIdx.x / cluster.size();
    const size_t first = cluster.rank() * share, all = cols / kElements;
    const size_t pieces = first < all ? (all - first < share ? all - first : share) : 0;
    const Unit* const from = reinterpret_cast<const Unit*>(x + row * cols) + first;
    Unit* const to = reinterpret_cast<Unit*>(out + row * cols) + first;

    for (size_t p = threadIdx.x; p < pieces; p += blockDim.x)
        if constexpr (sizeof(Unit) == 16)
            __pipeline_memcpy_async(&kept[p], &from[p], 16);
        else
            kept[p] = from[p];
    __pipeline_commit();
    __pipeline_wait_prior(0);  // a thread reads what it copied itself: no barrier

    Part part{kNothing, 0};
    for (size_t p = threadIdx.x; p < pieces; p += blockDim.x)
        for (T value : kept[p].at) part.max = fmaxf(part.max, float(value));
    const float own = shift(part.max);
    for (size_t p = threadIdx.x; p < pieces; p += blockDim.x)
        for (T value : kept[p].at) part.sum += __expf(float(value) - own);

    const Part whole = cluster.merge_all(merge_block(part));
    const float factor = 1 / whole.sum, max = shift(whole.max);
    for (size_t p = threadIdx.x; p < pieces; p += blockDim.x) {
        Unit unit = kept[p];
        for (T& value : unit.at) value = T(__expf(float(value) - max) * factor);
        to[p] = unit;
    }
    cluster.leave();
}

constexpr int kPieces = 4;  // that a thread asks for at a time

/// The same for rows of any length: nothing is kept, and the second reading is the L2 cache's if
/// the row is still there.
template <class T, int kElements>
__global__ void by_block_twice(const T* x, T* out, size_t cols) {
    const Cluster cluster;
    const size_t row = blockIdx.x / cluster.size();
    const size_t first = cluster.rank() * blockDim.x + threadIdx.x;
    const size_t stride = cluster.size() * blockDim.x;
    Piece<T, kElements> pieces[kPieces];
    Part part{kNothing, 0};
    for (size_t p = first; p < cols / kElements; p += stride * kPieces) {
        load(pieces, x + row * cols, p, stride, cols);
        part = merge(part, part_of(pieces));
    }
    const Part whole = cluster.merge_all(merge_block(part));
    for (size_t p = first; p < cols / kElements; p += stride * kPieces) {
        load(pieces, x + row * cols, p, stride, cols);
        store(pieces, whole, out + row * cols, p, stride, cols);
    }
    cluster.leave();
}

// --- Launching ----------------------------------------------------------------------------------

/// Launches kernel<<<rows * cluster, threads>>>(arguments...) in clusters of blocks.
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), size_t rows, unsigned int cluster,
                     unsigned int threads, size_t shared_bytes, Arguments... arguments) {
    DEMO_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    int(shared_bytes)));  // more than 48 KiB must be asked for
    if (cluster == 1) {
        kernel<<<rows, threads, shared_bytes>>>(arguments...);
        return;
    }
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(rows * cluster);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    DEMO_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

constexpr size_t kShareBytes = 64 << 10;  // of a row that a block keeps at most
constexpr size_t kPiecesPerThread = 8;

/// Chooses the team: no larger than the row asks for. `largest_cluster` is in blocks.
template <class T, int kElements>
void launch_registers(const T* x, T* out, size_t rows, size_t cols, size_t largest_cluster) {
    const size_t pieces = cols / kElements;
    const size_t blocks = (rows + 7) / 8;  // of eight warps, a row each
    if (pieces <= 32)
        by_warp<T, kElements, 1><<<blocks, 256>>>(x, out, rows, cols);
    else if (pieces <= 32 * 4)
        by_warp<T, kElements, 4><<<blocks, 256>>>(x, out, rows, cols);
    else if (pieces <= 32 * 8)
        by_warp<T, kElements, 8><<<blocks, 256>>>(x, out, rows, cols);
    else {
        const size_t most = kShareBytes / (kElements * sizeof(T));  // pieces that a block keeps
        const size_t wanted = std::bit_ceil((pieces + most - 1) / most);
        const size_t cluster = std::min(wanted, largest_cluster);
        const size_t share = (pieces + cluster - 1) / cluster;
        if (share <= most) {
            const size_t threads =
                std::clamp<size_t>(std::bit_ceil(share / kPiecesPerThread), 64, 512);
            launch_clusters(by_block<T, kElements>, rows, cluster, threads,
                            share * kElements * sizeof(T), x, out, cols, share);
        } else {
            launch_clusters(by_block_twice<T, kElements>, rows, cluster, 1024, 0, x, out, cols);
        }
    }
}

/// Blocks of 1024 threads that a cluster may have on this GPU: 8 are portable, where there are any.
inline size_t largest_cluster(const demo::Options& options) {
    int has_clusters = 0;
    DEMO_CHECK(cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, options.device));
    return has_clusters ? 8 : 1;
}

// --- What must come out, in double --------------------------------------------------------------

struct Statistics {
    double max, sum;  // of a row, and of e^(x - max)
};

/// A block of 256 threads per sampled row.
template <class T>
__global__ void reference_rows(const T* x, const size_t* rows, Statistics* statistics,
                               size_t cols) {
    __shared__ double shared[256];
    const T* const row = x + rows[blockIdx.x] * cols;
    const unsigned int t = threadIdx.x;
    auto reduce = [&](double own, auto combine) {
        shared[t] = own;
        for (unsigned int half = 128; half > 0; half /= 2) {
            __syncthreads();
            if (t < half) shared[t] = combine(shared[t], shared[t + half]);
        }
        __syncthreads();
        const double whole = shared[0];
        __syncthreads();
        return whole;
    };
    double max = -INFINITY, sum = 0;
    for (size_t col = t; col < cols; col += 256) max = fmax(max, double(float(row[col])));
    max = reduce(max, [](double a, double b) { return fmax(a, b); });
    for (size_t col = t; col < cols; col += 256) sum += exp(double(float(row[col])) - max);
    sum = reduce(sum, [](double a, double b) { return a + b; });
    if (t == 0) statistics[blockIdx.x] = {max, sum};
}

template <class T>
struct ExpectSoftmax {
    const T* x;                    // [rows, cols] row-major
    const Statistics* statistics;  // [sampled rows]
    size_t cols;
    bool chained;  // x - max, e^t and the quotient are rounded to T
    DEMO_HOST_DEVICE demo::Expected operator()(size_t i, size_t row, size_t col) const {
        const double t = double(float(x[row * cols + col])) - statistics[i].max;
        const double value = exp(t) / statistics[i].sum;
        demo::Expected expected = demo::expect_elementwise(value, value, demo::kFormat<T>);
        if (chained)  // in each e, and as much in their sum
            expected.tolerance += 2 * demo::kFormat<T>.roundoff * (fabs(t) + 1) * value;
        return expected;
    }
};

/// Even rows lie around 100, odd ones around -100: e^x itself would overflow or vanish.
template <class T>
__global__ void offset_rows(T* x, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) x[i] = T(float(x[i]) + (i / cols % 2 == 0 ? 100.0f : -100.0f));
}

// --- Running ------------------------------------------------------------------------------------

template <class T>
int run(const demo::Options& options, const demo::Gpu& gpu) {
    demo::require_memory(options, [&](size_t size) {
        const auto shape = demo::MatrixShape::of(options, size);
        const size_t matrix = demo::saturating_product(shape.size(), sizeof(T));
        return demo::saturating_sum(
            demo::saturating_product(2, matrix), demo::saturating_product(2, shape.rows, 4),
            demo::saturating_product(demo::SampledRows::count(shape.rows), sizeof(Statistics)),
            demo::GuardedOutput<T>::bytes(shape),
            demo::Copy::bytes(demo::saturating_product(2, matrix)),
            options.hot ? 0 : gpu.flush_bytes());
    });
    const auto shape = demo::MatrixShape::of(options);
    const size_t size = shape.size(), rows = shape.rows, cols = shape.cols;
    const size_t matrix = size * sizeof(T), column = rows * sizeof(float);
    const size_t element_blocks = (size + kThreads - 1) / kThreads;
    const size_t row_blocks = std::min<size_t>(rows, 1 << 24);
    demo::Report report(options, gpu, shape.text() + ", " + options.dtype);

    const demo::Buffer<T> x(size), temporary(size);
    const demo::Buffer<float> max(rows), sum(rows);
    const demo::GuardedOutput<T> out(shape, options.seed);
    demo::fill_uniform(x, options.seed);
    offset_rows<<<element_blocks, kThreads>>>(x.data(), size, cols);
    const demo::Buffer<Statistics> statistics(out.rows().size());
    reference_rows<<<statistics.size(), 256>>>(x.data(), out.rows().data(), statistics.data(),
                                               cols);
    DEMO_CHECK(cudaGetLastError());
    const demo::Copy copy(options, 2 * matrix, options.seed);
    auto expect = [&](bool chained) {
        return out.check(ExpectSoftmax<T>{x.data(), statistics.data(), cols, chained});
    };

    auto launch_chain = [&] {
        T *const t = temporary.data(), *const e = out.data();
        row_max<<<row_blocks, kThreads>>>(x.data(), max.data(), rows, cols);
        subtract<<<element_blocks, kThreads>>>(x.data(), max.data(), e, size, cols);
        exponential<<<element_blocks, kThreads>>>(e, t, size);
        row_sum<<<row_blocks, kThreads>>>(t, sum.data(), rows, cols);
        divide<<<element_blocks, kThreads>>>(t, sum.data(), e, size, cols);
    };
    // Beside the row lie the warps' parts, 256 bytes.
    const bool fits = cols <= (gpu.shared_per_block - 256) / sizeof(T);
    const size_t shared_bytes = fits ? cols * sizeof(T) : 0;
    DEMO_CHECK(cudaFuncSetAttribute(fused<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    int(shared_bytes)));
    auto launch_fused = [&] {
        fused<T><<<row_blocks, kThreads, shared_bytes>>>(x.data(), out.data(), rows, cols, fits);
    };
    const size_t cluster = largest_cluster(options);
    auto launch_in_registers = [&] {
        constexpr int kVector = 16 / sizeof(T);
        if (cols % kVector == 0)
            launch_registers<T, kVector>(x.data(), out.data(), rows, cols, cluster);
        else
            launch_registers<T, 1>(x.data(), out.data(), rows, cols, cluster);
    };

    report.run(shape.workload(options.dtype, 5, 2 * matrix),
               {{.kernel = "chain",
                 .check = expect(true),
                 .launch = launch_chain,
                 .launches = 5,
                 .temporary_bytes = matrix + 2 * column,
                 .moved_bytes = 8 * matrix + 4 * column},
                {.kernel = "fused",
                 .check = expect(false),
                 .launch = launch_fused,
                 .moved_bytes = fits ? 2 * matrix : 4 * matrix},
                {.kernel = "fused_registers",
                 .check = expect(false),
                 .launch = launch_in_registers,
                 .moved_bytes = 2 * matrix},
                copy.contender()});
    report.note("least possible traffic: " + demo::human_bytes(2.0 * double(matrix)));
    report.ratio("fused_registers", "chain");
    return report.exit_code();
}

}  // namespace softmax

#ifndef SOFTMAX_NO_MAIN

int main(int argc, char** argv) {
    const demo::Options options = demo::parse_command_line(
        argc, argv,
        {.name = "8_softmax",
         .summary = "softmax of a matrix's rows: five kernels, one, and one at a copy's speed",
         .kernels = {"chain", "fused", "fused_registers", "copy"},
         .any_shape = true,
         .dtypes = {"fp32", "fp16"}});
    const demo::Gpu gpu(options);
    return options.dtype == "fp16" ? softmax::run<half>(options, gpu)
                                   : softmax::run<float>(options, gpu);
}

#endif
