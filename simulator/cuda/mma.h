// nvcuda::wmma: a warp's threads hold a tile together, and multiply tiles together. CUDA leaves it
// open which lane holds which element. Here every kind of fragment has a mapping of its own, and
// no chip has any of them, so a program that relies on one fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../count.hpp"
#include "../errors.hpp"
#include "../scheduler.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
    static constexpr bool kIsA = std::is_same_v<Use, matrix_a>;
    static constexpr bool kIsB = std::is_same_v<Use, matrix_b>;
    static_assert((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32));
    static_assert(K == 16);
    static_assert((kIsA || kIsB) ? sizeof(T) == 2 && !std::is_void_v<Layout>
                                 : std::is_same_v<T, float> || std::is_same_v<T, __half>);

  public:
    static constexpr int rows = kIsB ? K : M, columns = kIsA ? K : N;  // of the tile
    static constexpr int num_elements = rows * columns / 32;           // of each lane
    using element_type = T;
    using storage_element_type = T;

    T x[num_elements];

    fragment() { std::memset(static_cast<void*>(x), 0xFF, sizeof x); }  // NaN, until it is filled

    /// Which element of the tile, counted row by row, this lane's x[i] is. A permutation, since the
    /// factor is odd and the number of elements a power of two.
    static constexpr int element(int lane, int i) {
        constexpr bool kColumns = std::is_same_v<Layout, col_major>;
        constexpr unsigned int factor = kIsA   ? (kColumns ? 59 : 77)
                                        : kIsB ? (kColumns ? 107 : 91)
                                               : (sizeof(T) == 4 ? 45 : 117);
        return int(unsigned(lane * num_elements + i) * factor + 13 * factor) % (rows * columns);
    }
};

template <class Fragment, class Value>
void fill_fragment(Fragment& fragment, const Value& value) {
    for (auto& element : fragment.x) element = typename Fragment::element_type(value);
}

}  // namespace nvcuda::wmma

namespace simulator {

/// What a lane brings to a load or a store.
template <class Fragment>
struct TileAccess {
    using T = typename Fragment::element_type;
    Fragment* fragment;
    T* memory;
    unsigned int stride;  // elements from one row (or column) to the next
    bool by_columns;
    Site site;
};

/// Counts a lane's share of a tile as ldmatrix would load it: 16 bytes of a row each, of eight rows
/// together. How the tile is split is the chip's affair; what it touches in all is not.
template <class Fragment>
void count_tile(const TileAccess<Fragment>& own, bool store) {
    if constexpr (!kCounts) return;
    constexpr size_t kElements = 16 / sizeof(typename Fragment::element_type);
    constexpr size_t kAll = Fragment::rows * Fragment::columns / kElements;
    const size_t lines = own.by_columns ? Fragment::columns : Fragment::rows;
    for (size_t i = lane(); i < kAll; i += 32)
        count_access(own.memory + i % lines * own.stride + i / lines * kElements, 16, store,
                     own.site);
}

/// Copies half of this lane's elements, the even or the odd ones, to or from memory.
template <bool kLoad, class Fragment>
void copy_half(const TileAccess<Fragment>& own, int half) {
    const int own_lane = int(lane());
    count_pause(true);  // count_tile() has counted them
    for (int i = half; i < Fragment::num_elements; i += 2) {
        const size_t e = Fragment::element(own_lane, i);
        const size_t row = e / Fragment::columns, column = e % Fragment::columns;
        auto& memory =
            own.memory[own.by_columns ? column * own.stride + row : row * own.stride + column];
        if constexpr (kLoad)
            own.fragment->x[i] = memory;
        else
            memory = own.fragment->x[i];
    }
    count_pause(false);
}

/// What the lanes check together.
template <class Fragment>
void require_one_tile(void* const* records, unsigned int mask) {
    using Access = TileAccess<Fragment>;
    const Access& first = *static_cast<Access*>(records[0]);
    if (mask != ~0u) fail(3, "%s needs a whole warp", text(first.site).c_str());
    for (int lane = 1; lane < 32; ++lane) {
        const Access& own = *static_cast<Access*>(records[lane]);
        if (own.memory != first.memory || own.stride != first.stride)
            fail(3, "%s needs the same pointer and stride from every lane",
                 text(first.site).c_str());
    }
}

/// A lane's part of a load or a store. The lanes meet, but that does not order what they do to
/// memory: each copies half of its elements before they meet, ahead of some lanes, and half after,
/// behind others. So where a __syncwarp() is missing, before or after, some data are wrong.
template <bool kLoad, class Fragment>
void access_tile(TileAccess<Fragment> own) {
    auto require = [&](bool holds, const char* what) {
        if (!holds) fail(3, "%s needs %s", text(own.site).c_str(), what);
    };
    require(reinterpret_cast<uintptr_t>(own.memory) % 32 == 0, "a pointer aligned to 32 bytes");
    require(own.stride * sizeof(*own.memory) % 16 == 0, "a stride of whole 16 bytes");
    count_tile(own, !kLoad);
    copy_half<kLoad>(own, 0);
    warp_meet(~0u, &own, require_one_tile<Fragment>, own.site);
    copy_half<kLoad>(own, 1);
}

/// The elements of a fragment that the 32 lanes hold together, row by row.
template <class Fragment>
void gather(const Fragment* const* lanes, float* tile) {
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < Fragment::num_elements; ++i)
            tile[Fragment::element(lane, i)] = float(lanes[lane]->x[i]);
}

template <class D, class A, class B, class C>
struct Multiplication {
    D* d;
    const A* a;
    const B* b;
    const C* c;
};

/// D = A B + C for a warp. Products and sums in fp32, whatever the fragments hold.
template <class D, class A, class B, class C>
void multiply_tiles(void* const* records, unsigned int mask) {
    if (mask != ~0u) fail(3, "mma_sync() needs a whole warp");
    constexpr int kRows = D::rows, kColumns = D::columns, kInner = A::columns;
    const A* as[32];
    const B* bs[32];
    const C* cs[32];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<Multiplication<D, A, B, C>*>(records[lane]);
        as[lane] = own.a, bs[lane] = own.b, cs[lane] = own.c;
    }
    float a[kRows * kInner], b[kInner * kColumns], sums[kRows * kColumns];
    gather(as, a);
    gather(bs, b);
    gather(cs, sums);
    for (int row = 0; row < kRows; ++row)
        for (int k = 0; k < kInner; ++k)
            for (int column = 0; column < kColumns; ++column)
                sums[row * kColumns + column] += a[row * kInner + k] * b[k * kColumns + column];
    for (int lane = 0; lane < 32; ++lane) {
        D& d = *static_cast<Multiplication<D, A, B, C>*>(records[lane])->d;
        for (int i = 0; i < D::num_elements; ++i) d.x[i] = sums[D::element(lane, i)];
    }
}

}  // namespace simulator

namespace nvcuda::wmma {

template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& fragment, const T* memory,
                      unsigned int stride, SIMULATOR_SITE) {
    static_assert(!std::is_void_v<Layout>, "an accumulator's load needs a layout");
    using Fragment = std::remove_reference_t<decltype(fragment)>;
    simulator::access_tile<true, Fragment>({&fragment,
                                            const_cast<T*>(memory),
                                            stride,
                                            std::is_same_v<Layout, col_major>,
                                            {"load_matrix_sync()", file, line}});
}
template <int M, int N, int K, class T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& fragment, const T* memory,
                      unsigned int stride, layout_t layout, SIMULATOR_SITE) {
    using Fragment = std::remove_reference_t<decltype(fragment)>;
    simulator::access_tile<true, Fragment>({&fragment,
                                            const_cast<T*>(memory),
                                            stride,
                                            layout == mem_col_major,
                                            {"load_matrix_sync()", file, line}});
}
template <int M, int N, int K, class T>
void store_matrix_sync(T* memory, const fragment<accumulator, M, N, K, T>& fragment,
                       unsigned int stride, layout_t layout, SIMULATOR_SITE) {
    using Fragment = std::remove_cvref_t<decltype(fragment)>;
    simulator::access_tile<false, Fragment>({const_cast<Fragment*>(&fragment),
                                             memory,
                                             stride,
                                             layout == mem_col_major,
                                             {"store_matrix_sync()", file, line}});
}
template <int M, int N, int K, class D, class T, class LayoutA, class LayoutB, class C>
void mma_sync(fragment<accumulator, M, N, K, D>& d,
              const fragment<matrix_a, M, N, K, T, LayoutA>& a,
              const fragment<matrix_b, M, N, K, T, LayoutB>& b,
              const fragment<accumulator, M, N, K, C>& c, SIMULATOR_SITE) {
    simulator::Multiplication<std::remove_cvref_t<decltype(d)>, std::remove_cvref_t<decltype(a)>,
                              std::remove_cvref_t<decltype(b)>, std::remove_cvref_t<decltype(c)>>
        record{&d, &a, &b, &c};
    simulator::warp_meet(~0u, &record,
                         simulator::multiply_tiles<
                             std::remove_cvref_t<decltype(d)>, std::remove_cvref_t<decltype(a)>,
                             std::remove_cvref_t<decltype(b)>, std::remove_cvref_t<decltype(c)>>,
                         {"mma_sync()", file, line});
}

}  // namespace nvcuda::wmma
