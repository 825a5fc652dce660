// C = A B, of [N, N] matrices: the data, the reference in fp64 and its bound (in error_bounds.hpp).
//
// plain_matmul.cuh   the same for lesson 1, which allocates its matrices itself
// wmma_tile.cuh      the parts of lesson 3's kernels, which 6, 10 and 11 use as well
// matmul_mma.cuh     mma_ptx, the record of bonus_matmul_mma, and its parts
// matmul_hopper.cuh  the parts of all kernels for Hopper, in the order of bonus_matmul_hopper
// matmul_hopper_record.cuh  its last two rungs: clusters of eight, and the record
// hopper_tiles.cuh   the model that chooses the record's tiles, and gating's
// stream_k.hpp       how stream_k of bonus_matmul_register_tiled divides its tiles
// matmul_record.cuh  both records, as lesson 3 and the experiments run them
//
// The library's way is a call: include/demo/cublas.cuh, cublaslt.cuh.
#pragma once

#include "demo/data.cuh"

namespace demo {

/// The precision in which products of T are accumulated.
template <class T>
inline constexpr SumsIn kSumsIn = std::is_integral_v<T>       ? SumsIn::kExact
                                  : std::is_same_v<T, double> ? SumsIn::kFp64
                                  : sizeof(T) == 1            ? SumsIn::k14Bits
                                                              : SumsIn::kFp32;

/// One thread per element: products[i, j] = (A B)[rows[i], j], in fp64 and in the plainest way.
template <class T>
__global__ void reference_products(const T* A,          // [M, K] row-major
                                   const T* B,          // [K, N] row-major; turned: [N, K]
                                   const size_t* rows,  // [samples]
                                   Product* products,   // [samples, N] row-major
                                   size_t samples, size_t K, size_t N, bool turned = false) {
    const size_t i = size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= samples || j >= N) return;
    Product sum{0, 0};
    size_t added = 0;
    for (size_t k = 0; k < K; ++k) {
        const T b = turned ? B[j * K + k] : B[k * N + j];
        const double term = to_double(A[rows[i] * K + k]) * to_double(b);
        sum.value += term;
        sum.magnitude += fabs(term);
        added += term != 0;
    }
    if (added < 2) sum.magnitude = 0;  // then nothing is rounded
    products[i * N + j] = sum;
}

/// (A B)[rows, :] and (|A| |B|)[rows, :] in fp64, computed once for all kernels that read A and B;
/// the last rows.kSpots rows again when A and B have changed. `rows` must outlive it.
class ProductReference {
  public:
    template <class T>
    ProductReference(const T* A, const T* B, const CheckedRows& rows, size_t K, size_t N,
                     bool turned = false)
        : products_(rows.size(), N) {
        auto compute = [=, this, &rows](size_t first, size_t count) {
            if (dry_run) return;
            const dim3 block(32, 8);
            const dim3 grid((count + block.y - 1) / block.y, (N + block.x - 1) / block.x);
            reference_products<<<grid, block>>>(A, B, rows.data() + first,
                                                products_.data() + first * N, count, K, N, turned);
            DEMO_CHECK(cudaGetLastError());
        };
        compute(0, rows.compared);
        renew_ = [=, &rows] { compute(rows.compared, rows.kSpots); };
    }
    const Product* data() const { return products_.data(); }
    void renew() const { renew_(); }

  private:
    Buffer<Product> products_;  // [rows, N] row-major
    std::function<void()> renew_;
};

/// The element that a matmul must produce, for verify_output().
struct ExpectMatmul {
    const Product* products;  // [checked rows, N] row-major
    size_t K, N;
    Format out;
    SumsIn sums = SumsIn::kFp32;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        return expect_matmul(products[i * N + column], K, out, sums);
    }
};

/// Verifies C[M, N] = A[M, K] B[K, N] with elements of A and B within [-1, 1], of int8_t within
/// [-127, 127]. Must outlive its checks.
class MatmulReference {
  public:
    template <class T>
    MatmulReference(const T* A, const T* B, size_t M, size_t K, size_t N, uint64_t seed,
                    bool turned = false)
        : M_(M),
          K_(K),
          N_(N),
          sums_(kSumsIn<T>),
          largest_(largest_product(K, std::is_integral_v<T> ? 127 * 127 : kHardScale)),
          rows_(CheckedRows::some(M, N, saturating_product(K, N), seed)),
          products_(A, B, rows_, K, N, turned) {}

    /// The same of a program's inputs. Makes some rows of A hard.
    template <class T>
    MatmulReference(const Session& session, const Input<T>& A, const Input<T>& B,
                    bool turned = false)
        : MatmulReference(hardened(A), B.data(), A.shape[0], A.shape[1], B.shape[turned ? 0 : 1],
                          session.options.seed, turned) {}

    /// How to verify the output C[M, N] (row-major).
    template <class Out>
    Check check(Out* C) const {
        return check_of(C, M_, N_, rows_, expect<Out>(), largest_, renew());
    }
    template <class Out>
    Check check(const Output<Out>& C) const {
        return C.check(rows_, expect<Out>(), largest_, renew());
    }

  private:
    template <class T>
    static const T* hardened(const Input<T>& A) {
        A.harden(std::is_integral_v<T> ? hard_operand(127 / kHardScale) : hard_operand());
        return A;
    }
    template <class Out>
    ExpectMatmul expect() const {
        return {products_.data(), K_, N_, kFormat<Out>, sums_};
    }
    std::function<void()> renew() const {
        return [this] { products_.renew(); };
    }

    size_t M_, K_, N_;
    SumsIn sums_;
    double largest_;
    CheckedRows rows_;
    ProductReference products_;
};

/// A square matmul: 2 N^3 operations, three matrices of T. `dtype`: where it is not T's own.
template <class T>
Workload matmul_workload(size_t N, const std::string& dtype = kTypeName<T>) {
    return {.shape = "square",
            .size = N,
            .dtype = dtype,
            .flops = 2.0 * double(N) * double(N) * double(N),
            .least_bytes = saturating_product(3, N, N, sizeof(T)),
            .text = "N = " + std::to_string(N),
            .arithmetic = sizeof(T) == 2 ? "fp32 sums" : ""};
}

/// The N of compare_gpus.sh --grid from `first` to `last`: powers of two, multiples of 128,
/// multiples of 32 alone, and primes times 32.
inline std::vector<size_t> matmul_grid(size_t first, size_t last) {
    std::vector<size_t> all = {512,  544,  640,  736,  768,  800,  992,   1024,  1056,  1152,
                               1184, 1280, 1440, 1536, 1696, 1792, 1952,  2048,  2144,  2400,
                               2560, 3072, 3104, 3584, 4000, 4064, 4096,  4608,  5120,  5216,
                               6144, 6240, 7136, 7680, 8192, 9120, 10240, 11296, 12320, 16384};
    std::erase_if(all, [=](size_t N) { return N < first || N > last; });
    return all;
}

}  // namespace demo
