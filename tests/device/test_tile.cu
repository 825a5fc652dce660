// CUDA Tile C++ as the programs use it: what its functions compute, which types they accept, and
// what they do at a tensor's edge. On a GPU, and on the simulator, whose cuda_tile.h this tests.
// Built without tile kernels it exits with 77 and the reason.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "demo.cuh"
#include "demo/device.cuh"
#include "test_memory.cuh"

#ifdef __CUDACC_TILE__
#include <cuda_tile.h>

namespace {

namespace ct = cuda::tiles;
using namespace ct::literals;
using demo_test::Memory, demo_test::numbers;

// --- A tensor's edges ---------------------------------------------------------------------------

/// Each block copies a tile of 4 x 8 to the same place in a tensor of another width.
template <ct::view_padding kPadding, class T, class Out>
__tile_global__ void copy_masked(const T* x, Out* out, uint32_t rows, uint32_t columns,
                                 uint32_t out_rows, uint32_t out_columns) {
    using Shape = ct::shape<4, 8>;
    auto X = ct::partition_view{ct::tensor_span{x, ct::extents{rows, columns}}, Shape{}};
    auto O = ct::partition_view{ct::tensor_span{out, ct::extents{out_rows, out_columns}}, Shape{}};
    int column = ct::bid().x, row = ct::bid().y;
    O.store_masked(X.template load_masked<kPadding>(row, column), row, column);
}

template <ct::view_padding kPadding, class T = float, class Out = T>
void expect_padding(float padding) {
    const Memory<T> x(numbers<T>(5 * 11, [](int i) { return float(i); }));
    const Memory<Out> out(8 * 16);
    copy_masked<kPadding, T, Out><<<dim3(2, 2)>>>(x.data(), out.data(), 5, 11, 8, 16);
    const std::vector<Out> result = out.read();
    for (int i = 0; i < 8 * 16; ++i) {
        const int row = i / 16, column = i % 16;
        const bool inside = row < 5 && column < 11;
        EXPECT_EQ(float(result[i]), inside ? float(row * 11 + column) : padding)
            << row << ", " << column;
    }
}

TEST(View, PadsWhatIsOutside) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    expect_padding<ct::view_padding::zero>(0);
    expect_padding<ct::view_padding::zero, int>(0);
    expect_padding<ct::view_padding::negative_inf>(-kInf);
    expect_padding<ct::view_padding::positive_inf, half>(kInf);
    expect_padding<ct::view_padding::negative_inf, __nv_bfloat16, float>(-kInf);  // widened
}

TEST(View, LeavesOutWhatIsOutside) {
    const Memory<float> x(numbers<float>(8 * 16, [](int i) { return float(i); }));
    const Memory<float> out(numbers<float>(8 * 11, [](int) { return -7.0f; }));
    copy_masked<ct::view_padding::zero><<<dim3(2, 2)>>>(x.data(), out.data(), 8, 16, 6, 11);
    EXPECT_EQ(out.read(), numbers<float>(8 * 11, [](int i) {
                  return i < 6 * 11 ? float(i / 11 * 16 + i % 11) : -7.0f;
              }));
}

/// One-dimensional, whole tiles alone, several to a block, with extents and indices of 64 bits.
__tile_global__ void reverse_tiles(const half* __restrict__ x, half* __restrict__ out, uint64_t n) {
    x = ct::assume_aligned<16>(x);
    out = ct::assume_aligned(out, 16_ic);
    n = ct::assume_divisible<32>(n);
    using Extents = ct::extents<uint64_t, ct::dynamic_extent>;
    auto X = ct::partition_view{ct::tensor_span{x, Extents{n}}, ct::shape<32>{}};
    auto O = ct::partition_view{ct::tensor_span{out, Extents{n}}, ct::shape<32>{}};
    const int tiles = int(n / 32);
    for (auto t : ct::irange(int(ct::bid().x), tiles, int(ct::num_blocks().x))) {
        [[cutile::hint(0, latency = 4)]] auto tile = X.load(t);
        O.store(tile, int64_t(tiles - 1 - t));
    }
}

TEST(View, OfOneDimension) {
    const Memory<half> x(numbers<half>(7 * 32, [](int i) { return float(i); })), out(7 * 32);
    reverse_tiles<<<3>>>(x.data(), out.data(), 7 * 32);
    const std::vector<half> result = out.read();
    for (int i = 0; i < 7 * 32; ++i) EXPECT_EQ(float(result[i]), (6 - i / 32) * 32 + i % 32);
}

/// The range's numbers, as decimal digits.
__tile_global__ void count(int* out, int begin, int end, int step) {
    auto O = ct::partition_view{ct::tensor_span{out, ct::extents{1_ic}}, ct::shape<1>{}};
    int digits = 0;
    for (auto i : ct::irange(begin, end, step)) digits = 10 * digits + i;
    for (auto i : ct::irange(7, 9)) digits = 10 * digits + i;
    O.store(ct::full<ct::tile<int, ct::shape<1>>>(digits), 0);
}

TEST(Range, Steps) {
    const Memory<int> out(1);
    const auto digits = [&](int begin, int end, int step) {
        count<<<1, 1>>>(out.data(), begin, end, step);
        return out.read()[0];
    };
    EXPECT_EQ(digits(1, 8, 3), 14778);
    EXPECT_EQ(digits(1, 7, 3), 1478);
    EXPECT_EQ(digits(5, 5, 1), 78);
    EXPECT_EQ(digits(6, 5, 1), 78);
}

// --- Operations ---------------------------------------------------------------------------------

constexpr int kRows = 4, kColumns = 8;
using Tile = ct::tile<float, ct::shape<kRows, kColumns>>;
using IntTile = ct::tile<int, ct::shape<kRows, kColumns>>;
using Row = ct::tile<float, ct::shape<1, kColumns>>;
using Column = ct::tile<float, ct::shape<kRows, 1>>;

/// Tiles in memory, one below the other.
__tile__ auto tiles_of(float* memory) {
    return ct::partition_view{ct::tensor_span{memory, ct::extents{64_ic, 8_ic}},
                              ct::shape<kRows, kColumns>{}};
}

using Expected = std::function<double(double x, int row, int column)>;

/// What a kernel makes of x: its i-th tile is expected[i] of x's elements. NaN is equal to NaN.
void expect_tiles(void (*launch)(float* x, float* out), const std::vector<Expected>& expected,
                  double tolerance = 0) {
    constexpr int kSize = kRows * kColumns;
    std::vector<float> x(16 * kSize);
    for (int i = 0; i < kSize; ++i) x[i] = float(i % 7 - 3) + 0.25f * float(i % 5);
    x[9] = NAN;
    const Memory<float> in(x), out(16 * kSize);
    launch(in.data(), out.data());
    const std::vector<float> result = out.read();
    for (size_t i = 0; i < kSize * expected.size(); ++i) {
        const int element = int(i % kSize), row = element / kColumns, column = element % kColumns;
        const double value = expected[i / kSize](x[element], row, column);
        const bool right = std::isnan(value)
                               ? std::isnan(result[i])
                               : std::fabs(result[i] - value) <= tolerance * std::fabs(value);
        EXPECT_TRUE(right || value == result[i])
            << "tile " << i / kSize << ", row " << row << ", column " << column << ": " << result[i]
            << ", not " << value;
    }
}

__tile_global__ void make_tiles(float* out) {
    auto O = tiles_of(out);
    auto iota = ct::iota<IntTile>();
    auto rows = ct::reshape<ct::shape<4, 1>>(ct::iota<ct::tile<int, ct::shape<4>>>());
    auto columns = ct::iota<ct::tile<int, ct::shape<8>>>();
    O.store(ct::element_cast<float>(iota), 0, 0);
    O.store(ct::element_cast<float>(10 * rows + columns), 1, 0);
    O.store(ct::element_cast<float>(ct::broadcast<ct::shape<4, 8>>(-columns)), 2, 0);
    O.store(ct::full<Tile>(2.5f) - ct::ones<Tile>() * ct::zeros<Tile>(), 3, 0);
    O.store(ct::element_cast<float>(ct::transpose(ct::reshape(iota, ct::shape<8, 4>{}))), 4, 0);
    O.store(ct::element_cast<float>(iota % 5 + iota / 5), 5, 0);
}

TEST(Tile, IsMadeAndReshaped) {
    expect_tiles([](float*, float* out) { make_tiles<<<1>>>(out); },
                 {
                     [](double, int row, int column) { return 8 * row + column; },
                     [](double, int row, int column) { return 10 * row + column; },
                     [](double, int, int column) { return -column; },
                     [](double, int, int) { return 2.5; },
                     [](double, int row, int column) { return 4 * column + row; },
                     [](double, int row, int column) {
                         return (8 * row + column) % 5 + (8 * row + column) / 5;
                     },
                 });
}

__tile_global__ void compare_tiles(float* x, float* out) {
    auto v = tiles_of(x).load(0, 0);
    auto O = tiles_of(out);
    O.store(ct::max(v, 0.5f), 0, 0);
    O.store(ct::min(v, v * 0.0f + 0.5f), 1, 0);
    O.store(ct::max(v, 0.5f, ct::propagate_nan_t{}), 2, 0);
    O.store(ct::min(0.5f, v, ct::propagate_nan_t{}), 3, 0);
    O.store(ct::element_cast<float>(v < 0.5f), 4, 0);
    O.store(ct::element_cast<float>((v >= 0 && !(v == 1.0f)) || v != v), 5, 0);
    O.store(ct::select(v > 0, v, -v), 6, 0);
    O.store(ct::select(ct::isnan(v), ct::zeros<Tile>(), ct::abs(v)), 7, 0);
    O.store(ct::select(ct::iota<ct::tile<int, ct::shape<8>>>() < 3, v, ct::full<Tile>(9)), 8, 0);
}

TEST(Tile, ComparesAndSelects) {
    expect_tiles([](float* x, float* out) { compare_tiles<<<1>>>(x, out); },
                 {
                     [](double x, int, int) { return std::fmax(x, 0.5); },
                     [](double x, int, int) { return std::fmin(x, x != x ? x : 0.5); },
                     [](double x, int, int) { return x != x ? x : std::fmax(x, 0.5); },
                     [](double x, int, int) { return x != x ? x : std::fmin(x, 0.5); },
                     [](double x, int, int) { return x < 0.5; },
                     [](double x, int, int) { return x != x || (x >= 0 && x != 1); },
                     [](double x, int, int) { return x > 0 ? x : -x; },
                     [](double x, int, int) { return x != x ? 0 : std::fabs(x); },
                     [](double x, int, int column) { return column < 3 ? x : 9; },
                 });
}

__tile_global__ void apply_functions(float* x, float* out) {
    auto v = tiles_of(x).load(0, 0);
    auto O = tiles_of(out);
    O.store(ct::exp(v), 0, 0);
    O.store(ct::exp(v, ct::round_approximate_t{}), 1, 0);
    O.store(ct::exp2(v), 2, 0);
    O.store(ct::tanh(v), 3, 0);
    O.store(ct::log(1 + v * v), 4, 0);
    O.store(ct::log2(2 + v * v), 5, 0);
    O.store(ct::sqrt(v * v + 1.0f), 6, 0);
    O.store(ct::rsqrt(v * v + 1.0f), 7, 0);
    O.store(ct::div(v, 1.0f + ct::exp(-v), ct::round_approximate_t{}), 8, 0);
    O.store(ct::fma(v, 0.5f, v) / 3.0f, 9, 0);
}

TEST(Tile, HasFunctions) {
    const std::vector<Expected> expected = {
        [](double x, int, int) { return std::exp(x); },
        [](double x, int, int) { return std::exp(x); },
        [](double x, int, int) { return std::exp2(x); },
        [](double x, int, int) { return std::tanh(x); },
        [](double x, int, int) { return std::log(1 + x * x); },
        [](double x, int, int) { return std::log2(2 + x * x); },
        [](double x, int, int) { return std::sqrt(x * x + 1); },
        [](double x, int, int) { return 1 / std::sqrt(x * x + 1); },
        [](double x, int, int) { return x / (1 + std::exp(-x)); },
        [](double x, int, int) { return x / 2; },
    };
    expect_tiles([](float* x, float* out) { apply_functions<<<1>>>(x, out); }, expected, 1e-5);
}

__tile_global__ void reduce_tiles(float* x, float* out) {
    auto v = tiles_of(x).load(0, 0);
    v = ct::select(ct::isnan(v), ct::full<Tile>(1.5f), v);
    auto O = tiles_of(out);
    Column column = ct::sum<1>(v);  // the dimension stays, with one element
    Row row = ct::sum(v, 0_ic);
    O.store(column + ct::zeros<Tile>(), 0, 0);
    O.store(row + ct::zeros<Tile>(), 1, 0);
    O.store(ct::broadcast<ct::shape<4, 8>>(ct::reduce_max<1>(v)), 2, 0);
    O.store(ct::broadcast<ct::shape<4, 8>>(ct::reduce_min<0>(v)), 3, 0);
    O.store(ct::reduce_max<1>(tiles_of(x).load(0, 0)) + ct::zeros<Tile>(), 4, 0);  // without NaN
    auto large = v > 2.9f;
    O.store(ct::zeros<Tile>() + ct::element_cast<float>(ct::any_of<1>(large)), 5, 0);
    O.store(ct::zeros<Tile>() + ct::element_cast<float>(ct::all_of<1>(!large)), 6, 0);
}

TEST(Tile, IsReduced) {
    static float v[kRows][kColumns];
    for (int i = 0; i < kRows * kColumns; ++i)
        v[i / kColumns][i % kColumns] = i == 9 ? 1.5f : float(i % 7 - 3) + 0.25f * float(i % 5);
    const auto over = [](int size, double start, auto f, auto element) {
        for (int i = 0; i < size; ++i) start = f(start, double(element(i)));
        return start;
    };
    const auto add = [](double x, double y) { return x + y; };
    const auto larger = [](double x, double y) { return std::fmax(x, y); };
    const auto smaller = [](double x, double y) { return std::fmin(x, y); };
    const auto row_max = [=](double, int row, int) {
        return over(kColumns, -9, larger, [=](int i) { return v[row][i]; });
    };
    const auto any = [=](double, int row, int) { return row_max(0, row, 0) > 2.9; };
    expect_tiles([](float* x, float* out) { reduce_tiles<<<1>>>(x, out); },
                 {
                     [=](double, int row, int) {
                         return over(kColumns, 0, add, [=](int i) { return v[row][i]; });
                     },
                     [=](double, int, int column) {
                         return over(kRows, 0, add, [=](int i) { return v[i][column]; });
                     },
                     row_max,
                     [=](double, int, int column) {
                         return over(kRows, 9, smaller, [=](int i) { return v[i][column]; });
                     },
                     [=](double, int row, int) {
                         return over(kColumns, -9, larger,
                                     [=](int i) { return row == 1 && i == 1 ? -9 : v[row][i]; });
                     },
                     any,
                     [=](double, int row, int) { return !any(0, row, 0); },
                 });
}

// --- Types --------------------------------------------------------------------------------------

template <class T>
using Of = ct::tile<T, ct::shape<4, 8>>;

// What the operands of + become. Those that are not listed have to be cast.
template <class A, class B, class Sum>
constexpr bool kBecome = std::is_same_v<decltype(std::declval<A>() + std::declval<B>()), Sum>;
static_assert(kBecome<Of<half>, Of<float>, Of<float>> && kBecome<Of<float>, half, Of<float>>);
static_assert(kBecome<Of<half>, int, Of<half>> && kBecome<float, Of<float>, Of<float>>);
static_assert(kBecome<Of<int>, Of<float>, Of<float>> && kBecome<Of<int>, bool, Of<int>>);
static_assert(kBecome<Row, Column, Tile> && kBecome<ct::tile<float, ct::shape<8>>, Column, Tile>);

template <class A, class B>
concept CanBeAdded = requires(A a, B b) {
    a + b;
};
static_assert(CanBeAdded<Of<half>, half> && !CanBeAdded<Of<half>, float>);
static_assert(!CanBeAdded<Of<half>, Of<__nv_bfloat16>> && !CanBeAdded<Of<float>, double>);
static_assert(!CanBeAdded<Of<int>, float> && !CanBeAdded<Of<int>, unsigned int>);
static_assert(!CanBeAdded<Of<float>, ct::tile<float, ct::shape<4>>>);  // the last extents differ

template <class T, class Shape>
concept CanBeBroadcast = requires(T tile) {
    ct::broadcast<Shape>(tile);
};
static_assert(CanBeBroadcast<Row, ct::shape<4, 8>> && CanBeBroadcast<float, ct::shape<4, 8>>);
static_assert(!CanBeBroadcast<Tile, ct::shape<1, 8>> && !CanBeBroadcast<Row, ct::shape<8>>);

template <class View, class T>
concept CanBeStored = requires(View view, T tile) {
    view.store(tile, 0, 0);
};
template <class T>
using ViewOf =
    ct::partition_view<ct::tensor_span<T, decltype(ct::extents{1u, 1u})>, ct::shape<4, 8>>;
static_assert(CanBeStored<ViewOf<float>, Of<half>> && !CanBeStored<ViewOf<half>, Of<float>>);
static_assert(!CanBeStored<ViewOf<const float>, Tile> && !CanBeStored<ViewOf<float>, Row>);

template <class A, class B>
concept CanBeRange = requires(A a, B b) {
    ct::irange(a, b);
};
static_assert(CanBeRange<int, int> && CanBeRange<int, long> && !CanBeRange<int, unsigned int>);

template <class A, class B, class Sums>
concept CanBeMultiplied = requires(A a, B b, Sums sums) {
    ct::mma(a, b, sums);
};
template <class T, size_t kM, size_t kN>
using Matrix = ct::tile<T, ct::shape<kM, kN>>;
static_assert(CanBeMultiplied<Matrix<half, 4, 8>, Matrix<half, 8, 2>, Matrix<float, 4, 2>>);
static_assert(!CanBeMultiplied<Matrix<half, 4, 8>, Matrix<half, 4, 2>, Matrix<float, 4, 2>>);
static_assert(!CanBeMultiplied<Matrix<half, 4, 8>, Matrix<float, 8, 2>, Matrix<float, 4, 2>>);

// --- Products -----------------------------------------------------------------------------------

/// C = A B of one block's 64 x 32, the inner dimension in tiles of 16.
template <class T, class Sum>
__tile_global__ void multiply(const T* A, const T* B, Sum* C, uint32_t K) {
    auto a = ct::partition_view{ct::tensor_span{A, ct::extents{64_ic, K}}, ct::shape<64, 16>{}};
    auto b = ct::partition_view{ct::tensor_span{B, ct::extents{K, 32_ic}}, ct::shape<16, 32>{}};
    auto c = ct::partition_view{ct::tensor_span{C, ct::extents{64_ic, 32_ic}}, ct::shape<64, 32>{}};
    auto sums = ct::zeros<ct::tile<Sum, ct::shape<64, 32>>>();
    for (auto k : ct::irange(0, int(K + 15) / 16))
        sums = ct::mma(a.load_masked(0, k), b.load_masked(k, 0), sums);
    c.store(sums, 0, 0);
}

/// `epsilon`: of the sums' type.
template <class T, class Sum>
void expect_product(int K, double epsilon) {
    auto number = [](int i) { return float(unsigned(i) * 2654435761u >> 20) / 2048 - 1; };
    const auto a = numbers<T>(64 * K, number);
    const auto b = numbers<T>(K * 32, [=](int i) { return number(i + 54321); });
    const Memory<T> A(a), B(b);
    const Memory<Sum> C(64 * 32);
    multiply<T, Sum><<<1>>>(A.data(), B.data(), C.data(), K);
    const std::vector<Sum> c = C.read();
    for (int i = 0; i < 64 * 32; ++i) {
        double sum = 0, size = 0;
        for (int k = 0; k < K; ++k) {
            const double product = double(float(a[i / 32 * K + k])) * float(b[k * 32 + i % 32]);
            sum += product, size += std::fabs(product);
        }
        EXPECT_NEAR(double(float(c[i])), sum, 4 * epsilon * size) << i / 32 << ", " << i % 32;
    }
}

TEST(Mma, AgainstDouble) {
    expect_product<half, float>(64, 0x1p-24);
    expect_product<__nv_bfloat16, float>(24, 0x1p-24);  // with half a tile
    expect_product<half, half>(32, 0x1p-11);
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    demo::program_name = "test_tile";
    const demo::Gpu gpu{demo::Options{}};
    return RUN_ALL_TESTS();
}
#else
int main() {
    demo::program_name = "test_tile";
    demo::fail(demo::kSkipped, "built without tile kernels");
}
#endif
