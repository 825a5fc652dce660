// CUDA Tile C++: the part of NVIDIA's <cuda_tile.h> (CUDA 13.3) that the demos use, with its names,
// its rules for types and its results. A tile is an array on the heap here, a tile block one thread
// that does all of its work. What a GPU leaves undefined ends the program: an index outside of a
// tensor, an assumption that does not hold. (Concepts and functions that NVIDIA's header lacks are
// the simulator's own: map(), reduce(), convert(), and names with capitals.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "../count.hpp"
#include "../tiles.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "device_launch_parameters.h"

namespace cuda::tiles {

// --- Numbers that are types ---------------------------------------------------------------------

template <class T>
concept integral = std::is_integral_v<T>;

template <auto kValue>
concept PowerOfTwo = (kValue > 0 && (kValue & (kValue - 1)) == 0);

template <integral auto kValue>
struct integral_constant {
    using value_type = decltype(kValue);
    static constexpr value_type value = kValue;
    constexpr operator value_type() const { return value; }
    constexpr value_type operator()() const { return value; }
};

namespace literals {

/// 128_ic
template <char... kDigits>
constexpr auto operator""_ic() {
    constexpr long long value = [] {
        long long value = 0;
        for (char digit : {kDigits...})
            if (digit != '\'') value = 10 * value + (digit - '0');
        return value;
    }();
    if constexpr (value <= std::numeric_limits<int>::max())
        return integral_constant<int(value)>{};
    else
        return integral_constant<long(value)>{};
}

}  // namespace literals

// --- Extents and shapes -------------------------------------------------------------------------

enum : size_t { dynamic_extent = size_t(-1) };

template <size_t kRank, size_t kDynamic, class T, class... Values>
concept Extents = sizeof...(Values) > 0 && (std::is_convertible_v<Values, T> && ...) &&
                  (sizeof...(Values) == kRank || sizeof...(Values) == kDynamic);

/// How long each dimension is: a constant, or dynamic_extent for a number of type T.
template <integral T, size_t... kExtents>
struct extents {
    using index_type = T;
    using rank_type = size_t;

    static constexpr size_t rank() { return sizeof...(kExtents); }
    static constexpr size_t rank_dynamic() { return ((kExtents == dynamic_extent) + ... + 0); }
    static constexpr size_t static_extent(size_t i) {
        const size_t all[] = {kExtents..., 0};
        return all[i];
    }
    constexpr T extent(size_t i) const { return values_[i]; }

    constexpr extents() = default;

    /// Those that are dynamic, or all.
    template <class... Values>
    requires Extents<rank(), rank_dynamic(), T, Values...>
    constexpr explicit extents(Values... values) {
        const T given[] = {fitting(values)...};
        size_t next = 0;
        for (size_t i = 0; i < rank(); ++i) {
            const bool is_given = sizeof...(Values) == rank() || static_extent(i) == dynamic_extent;
            if (static_extent(i) == dynamic_extent) values_[i] = given[next];
            next += is_given;
        }
    }

  private:
    static constexpr T fitting(auto value) {
        const auto number = +value;  // of a constant, too
        if constexpr (integral<std::remove_const_t<decltype(number)>>)
            if (!std::in_range<T>(number)) simulator::fail_extent(uint64_t(number), sizeof(T));
        return T(number);
    }

    T values_[sizeof...(kExtents) + 1] = {T(kExtents == dynamic_extent ? 0 : kExtents)...};
};

template <class T>
inline constexpr size_t kExtentOf = dynamic_extent;
template <auto kValue>
inline constexpr size_t kExtentOf<integral_constant<kValue>> = size_t(kValue);

template <class... T>
extents(T...) -> extents<uint32_t, kExtentOf<T>...>;

template <size_t... kExtents>
using shape = extents<uint32_t, kExtents...>;

template <class T>
inline constexpr bool kIsTileShape = false;
template <size_t... kExtents>
inline constexpr bool kIsTileShape<shape<kExtents...>> = (PowerOfTwo<kExtents> && ...) &&
                                                         (kExtents * ... * 1) <= 1 << 24;

/// Every extent is a constant and a power of two.
template <class T>
concept tile_shape = kIsTileShape<T>;

template <tile_shape S>
constexpr size_t product_of_extents() {
    size_t product = 1;
    for (size_t i = 0; i < S::rank(); ++i) product *= S::static_extent(i);
    return product;
}
template <tile_shape S>
inline constexpr size_t shape_size_v = product_of_extents<S>();

// --- Elements, and which of them become which ---------------------------------------------------

template <class T>
concept floating_point =
    std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_floating_point_v<T>;
template <class T>
concept scalar = integral<T> || floating_point<T>;

template <class To, class From>
concept Holds = requires(From x) {
    To{x};
};

/// Whether every number of type From is one of type To.
template <scalar From, scalar To>
constexpr bool keeps_value() {
    if (std::is_same_v<From, To>) return true;
    if (integral<From> && integral<To>) return Holds<To, From>;
    return floating_point<From> && std::is_floating_point_v<To> && sizeof(From) < sizeof(To);
}

/// Whether an operand with elements From may become one with elements To without a cast: to a
/// floating point type any integer may, too.
template <scalar From, scalar To>
constexpr bool may_become() {
    return keeps_value<From, To>() || (integral<From> && floating_point<To>);
}

/// What two types of elements become in an operation; void where one has to be cast.
template <scalar A, scalar B>
constexpr auto common_element() {
    if constexpr (std::is_same_v<A, B>)
        return std::type_identity<A>();
    else if constexpr (integral<A> && integral<B>)
        return std::type_identity<std::common_type_t<A, B>>();
    else if constexpr (may_become<A, B>())
        return std::type_identity<B>();
    else if constexpr (may_become<B, A>())
        return std::type_identity<A>();
    else
        return std::type_identity<void>();
}

template <scalar To, scalar From>
To convert(From x) {
    if constexpr (std::is_same_v<To, From>)
        return x;
    else if constexpr (std::is_class_v<From>)
        return To(float(x));
    else
        return To(x);
}

// --- Tiles --------------------------------------------------------------------------------------

template <scalar E, tile_shape S>
class tile;

template <class T>
struct Parts {  // of a scalar, or of a tile
    using Element = T;
    using Shape = shape<>;
    static constexpr bool kIsTile = false;
};
template <class E, class S>
struct Parts<tile<E, S>> {
    using Element = E;
    using Shape = S;
    static constexpr bool kIsTile = true;
};
template <class T>
struct Parts<const T> : Parts<T> {};
template <class T>
using tile_element_t = typename Parts<T>::Element;
template <class T>
using tile_shape_t = typename Parts<T>::Shape;

template <class T>
concept tile_like = scalar<tile_element_t<T>>;
template <class T>
concept floating_point_tile = floating_point<tile_element_t<T>>;
template <class T>
concept integral_tile = integral<tile_element_t<T>>;

/// The same, of other elements.
template <tile_like T, scalar E>
using tile_with_element_t = std::conditional_t<Parts<T>::kIsTile, tile<E, tile_shape_t<T>>, E>;

template <tile_like From, tile_like To>
inline constexpr bool kSameShape = std::is_same_v<tile_shape_t<From>, tile_shape_t<To>>;

/// Whether a tile is one of type To as it is: of the same shape, and no element loses anything.
template <class From, class To>
concept non_narrowing_tile_convertible_to = tile_like<From> && tile_like<To> &&
    kSameShape<From, To> && keeps_value<tile_element_t<From>, tile_element_t<To>>();

template <class T, class Tile>
concept OtherOf = !std::is_same_v<T, Tile> && tile_like<T> && kSameShape<T, Tile>;
template <class S>
concept HasOneElement = (shape_size_v<S> == 1);

/// Where the elements are, row by row: those of a tile, or a scalar itself.
template <scalar T>
const T* elements_of(const T& x) {
    return &x;
}
template <class E, class S>
const E* elements_of(const tile<E, S>& x) {
    return x.elements();
}

template <scalar E, tile_shape S>
class tile final {
  public:
    using element_type = E;
    using shape_type = S;
    using rank_type = size_t;
    using index_type = uint32_t;

    tile() {  // NaN, until it is assigned to
        if constexpr (std::is_same_v<E, bool>)
            std::fill_n(elements_, kSize, true);
        else
            std::memset(static_cast<void*>(elements_), 0xFF, kSize * sizeof(E));
    }
    tile(const tile& other) { std::copy_n(other.elements_, kSize, elements_); }
    tile(tile&& other) noexcept : elements_(std::exchange(other.elements_, nullptr)) {}
    tile& operator=(tile other) noexcept {
        std::swap(elements_, other.elements_);
        return *this;
    }
    ~tile() { delete[] elements_; }

    template <OtherOf<tile> T>
    explicit(!non_narrowing_tile_convertible_to<T, tile>) tile(const T& other) {
        for (size_t i = 0; i < kSize; ++i) elements_[i] = convert<E>(elements_of(other)[i]);
    }
    template <scalar T>
    requires HasOneElement<S>
    explicit operator T() const { return convert<T>(*elements_); }

    E* elements() { return elements_; }
    const E* elements() const { return elements_; }

  private:
    static constexpr size_t kSize = shape_size_v<S>;
    E* elements_ = new E[kSize];
};
template <scalar E>
tile(E) -> tile<E, shape<>>;

// --- Element by element -------------------------------------------------------------------------

/// How far apart neighbors along each of S's dimensions lie in an operand of shape T: 0 where the
/// operand repeats. Dimensions that it lacks are the first ones.
template <class T, class S>
constexpr auto strides_in() {
    struct {
        size_t of[S::rank() + 1] = {};
    } strides;
    size_t stride = 1;
    for (size_t i = T::rank(); i-- > 0;) {
        strides.of[i + S::rank() - T::rank()] = T::static_extent(i) == 1 ? 0 : stride;
        stride *= T::static_extent(i);
    }
    return strides;
}

template <class A, class B>
constexpr bool broadcast_compatible() {
    for (size_t i = 1; i <= A::rank() && i <= B::rank(); ++i) {
        const size_t a = A::static_extent(A::rank() - i), b = B::static_extent(B::rank() - i);
        if (a != b && a != 1 && b != 1) return false;
    }
    return true;
}

/// S's extent along a dimension of `rank`, of which S may lack the first ones.
template <class S>
constexpr size_t extent_of(size_t dimension, size_t rank) {
    const size_t missing = rank - S::rank();
    return dimension < missing ? 1 : S::static_extent(dimension - missing);
}

/// The shape that both are broadcast to.
template <class A, class B = shape<>>
constexpr auto common_shape() {
    constexpr size_t rank = std::max(A::rank(), B::rank());
    return []<size_t... i>(std::index_sequence<i...>) {
        return shape<std::max(extent_of<A>(i, rank), extent_of<B>(i, rank))...>();
    }
    (std::make_index_sequence<rank>());
}

template <class T, class S>
concept broadcastable_to = tile_like<T> && broadcast_compatible<tile_shape_t<T>, S>() &&
    std::is_same_v<decltype(common_shape<tile_shape_t<T>, S>()), S>;

template <class E, class F, class... Operands>
void map_row(size_t size, const size_t* steps, F f, E* __restrict result,
             const Operands*... operands) {
    [&]<size_t... i>(std::index_sequence<i...>) {
        if ((steps[i] & ...))  // so that the compiler knows
            for (size_t j = 0; j < size; ++j) result[j] = f(operands[j]...);
        else
            for (size_t j = 0; j < size; ++j) result[j] = f(operands[j * steps[i]]...);
    }
    (std::index_sequence_for<Operands...>());
}

/// f of the operands' elements, which are broadcast to shape S.
template <class E, class S, class F, class... Operands>
tile<E, S> map(F f, const Operands&... operands) {
    tile<E, S> result;
    constexpr size_t size = shape_size_v<S>;
    if constexpr ((std::is_same_v<tile_shape_t<Operands>, S> && ...)) {
        constexpr size_t steps[] = {(void(sizeof(Operands)), size_t(1))...};
        map_row(size, steps, f, result.elements(), elements_of(operands)...);
    } else {
        constexpr size_t rank = S::rank(), columns = S::static_extent(rank - 1);
        const size_t steps[] = {strides_in<tile_shape_t<Operands>, S>().of[rank - 1]...};
        for (size_t row = 0; row < size / columns; ++row) {
            auto place = [&](auto strides) {
                size_t place = 0, rest = row;
                for (size_t i = rank - 1; i-- > 0; rest /= S::static_extent(i))
                    place += rest % S::static_extent(i) * strides.of[i];
                return place;
            };
            map_row(columns, steps, f, result.elements() + row * columns,
                    elements_of(operands) + place(strides_in<tile_shape_t<Operands>, S>())...);
        }
    }
    return result;
}

/// The same, and of scalars alone a scalar.
template <class E, class F, class... Operands>
auto map(F f, const Operands&... operands) {
    if constexpr ((Parts<Operands>::kIsTile || ...)) {
        using S = decltype(common_shape<tile_shape_t<Operands>...>());
        return map<E, S>(f, operands...);
    } else {
        return E(f(operands...));
    }
}

/// What the elements of two operands become together. A tile's stay what they are beside a scalar.
template <tile_like A, tile_like B>
constexpr auto element_together() {
    using a = tile_element_t<A>;
    using b = tile_element_t<B>;
    if constexpr (Parts<A>::kIsTile == Parts<B>::kIsTile)
        return common_element<a, b>();
    else
        return std::type_identity<std::conditional_t<Parts<A>::kIsTile, a, b>>();
}

template <class A, class B>
concept Broadcastable = broadcast_compatible<tile_shape_t<A>, tile_shape_t<B>>();
template <class A, class B, class E>
concept Becoming = Broadcastable<A, B> && !std::is_void_v<E> && requires {
    requires may_become<tile_element_t<A>, E>();
    requires may_become<tile_element_t<B>, E>();
};
template <class A, class B>
using Together = typename decltype(element_together<A, B>())::type;
template <class A, class B>
concept arithmetic_tile_convertible =
    tile_like<A> && tile_like<B> && Becoming<A, B, Together<A, B>>;

template <class A, class B>
using Compared = typename decltype(common_element<tile_element_t<A>, tile_element_t<B>>())::type;
template <class A, class B>
concept arithmetic_tile_comparable = tile_like<A> && tile_like<B> && Becoming<A, B, Compared<A, B>>;

template <class A, class B>
concept OneIsATile = Parts<A>::kIsTile || Parts<B>::kIsTile;  // the others have operators already

template <class A, class B, class F>
requires arithmetic_tile_convertible<A, B>
auto arithmetic(F f, const A& a, const B& b) {
    using E = Together<A, B>;
    return map<E>([f](auto x, auto y) { return E(f(convert<E>(x), convert<E>(y))); }, a, b);
}

#define SIMULATOR_ARITHMETIC(sign, name)                                  \
    template <tile_like A, tile_like B>                                   \
    requires OneIsATile<A, B> && arithmetic_tile_convertible<A, B>        \
    auto operator sign(const A& a, const B& b) {                          \
        return arithmetic([](auto x, auto y) { return x sign y; }, a, b); \
    }                                                                     \
    template <tile_like A, tile_like B>                                   \
    requires arithmetic_tile_convertible<A, B>                            \
    auto name(const A& a, const B& b) {                                   \
        return arithmetic([](auto x, auto y) { return x sign y; }, a, b); \
    }
SIMULATOR_ARITHMETIC(+, add)
SIMULATOR_ARITHMETIC(-, sub)
SIMULATOR_ARITHMETIC(*, mul)
SIMULATOR_ARITHMETIC(/, div)
#undef SIMULATOR_ARITHMETIC

template <integral_tile A, integral_tile B>
requires OneIsATile<A, B> && arithmetic_tile_convertible<A, B>
auto operator%(const A& a, const B& b) {
    return arithmetic([](auto x, auto y) { return x % y; }, a, b);
}

#define SIMULATOR_COMPARISON(sign)                                                               \
    template <tile_like A, tile_like B>                                                          \
    requires OneIsATile<A, B> && arithmetic_tile_comparable<A, B>                                \
    auto operator sign(const A& a, const B& b) {                                                 \
        using E = Compared<A, B>;                                                                \
        return map<bool>([](auto x, auto y) { return convert<E>(x) sign convert<E>(y); }, a, b); \
    }
SIMULATOR_COMPARISON(<)
SIMULATOR_COMPARISON(<=)
SIMULATOR_COMPARISON(>)
SIMULATOR_COMPARISON(>=)
SIMULATOR_COMPARISON(==)
SIMULATOR_COMPARISON(!=)
#undef SIMULATOR_COMPARISON

#define SIMULATOR_LOGIC(sign)                                                                 \
    template <tile_like A, tile_like B>                                                       \
    requires OneIsATile<A, B> && Broadcastable<A, B>                                          \
    auto operator sign(const A& a, const B& b) {                                              \
        using E = bool;                                                                       \
        return map<E>([](auto x, auto y) { return convert<E>(x) sign convert<E>(y); }, a, b); \
    }
SIMULATOR_LOGIC(&&)
SIMULATOR_LOGIC(||)
#undef SIMULATOR_LOGIC

template <scalar E, class S>
tile<bool, S> operator!(const tile<E, S>& a) {
    return map<bool>([](E x) { return !convert<bool>(x); }, a);
}
template <scalar E, class S>
tile<E, S> operator-(const tile<E, S>& a) {
    return map<E>([](E x) { return E(-x); }, a);
}

// --- Modes of operations ------------------------------------------------------------------------

enum class rounding_mode : unsigned char {
    round_ties_to_even,
    round_approximate = 4,
    round_full = 5,
};
template <rounding_mode kMode>
struct rounding_mode_constant {};
using round_ties_to_even_t = rounding_mode_constant<rounding_mode::round_ties_to_even>;
using round_approximate_t = rounding_mode_constant<rounding_mode::round_approximate>;
using round_full_t = rounding_mode_constant<rounding_mode::round_full>;

/// What is approximate on a GPU is so for fp32 alone. Here it is exact.
template <rounding_mode kMode, class E>
concept RoundsDivision = floating_point<E> &&
    (kMode == rounding_mode::round_ties_to_even || std::is_same_v<E, float>);
template <rounding_mode kMode, class E>
concept RoundsExponential = floating_point<E> &&
    (kMode == rounding_mode::round_full ||
     (kMode == rounding_mode::round_approximate && std::is_same_v<E, float>));

template <rounding_mode kMode, tile_like A, tile_like B>
requires arithmetic_tile_convertible<A, B> && RoundsDivision<kMode, Together<A, B>>
auto div(const A& a, const B& b, rounding_mode_constant<kMode>) { return div(a, b); }

enum class nan_propagation_mode : unsigned char { suppress_nan, propagate_nan };
template <nan_propagation_mode kMode>
struct nan_propagation_mode_constant {};
using suppress_nan_t = nan_propagation_mode_constant<nan_propagation_mode::suppress_nan>;
using propagate_nan_t = nan_propagation_mode_constant<nan_propagation_mode::propagate_nan>;
inline constexpr auto kSuppress = nan_propagation_mode::suppress_nan;

/// The larger one, or with kSign = -1 the smaller one, and of a NaN and a number what is asked for.
template <nan_propagation_mode kNan, int kSign>
constexpr auto extreme = [](auto x, auto y) {
    const bool first_is_nan = x != x, second = kSign > 0 ? y > x : y < x;
    if (kNan == kSuppress) return first_is_nan || second ? y : x;
    return first_is_nan || !(second || y != y) ? x : y;
};

template <nan_propagation_mode kMode, class A, class B>
concept PropagatesNan = kMode == kSuppress || floating_point<Together<A, B>>;

#define SIMULATOR_EXTREME(name, sign)                                             \
    template <nan_propagation_mode kNan = kSuppress, tile_like A, tile_like B>    \
    requires arithmetic_tile_convertible<A, B> && PropagatesNan<kNan, A, B>       \
    auto name(const A& a, const B& b, nan_propagation_mode_constant<kNan> = {}) { \
        return arithmetic(extreme<kNan, sign>, a, b);                             \
    }
SIMULATOR_EXTREME(max, 1)
SIMULATOR_EXTREME(min, -1)
#undef SIMULATOR_EXTREME

// --- Functions of one tile ----------------------------------------------------------------------

/// Half and bfloat16 go through fp32, and are rounded once.
template <floating_point_tile T, class F>
auto function_of(F f, const T& a) {
    using E = tile_element_t<T>;
    using Wide = std::conditional_t<std::is_same_v<E, double>, double, float>;
    return map<E>([f](E x) { return E(f(Wide(x))); }, a);
}
#define SIMULATOR_FUNCTION(name, value)                      \
    template <floating_point_tile T>                         \
    auto name(const T& a) {                                  \
        return function_of([](auto x) { return value; }, a); \
    }
SIMULATOR_FUNCTION(exp2, std::exp2(x))
SIMULATOR_FUNCTION(log, std::log(x))
SIMULATOR_FUNCTION(log2, std::log2(x))
SIMULATOR_FUNCTION(sqrt, std::sqrt(x))
SIMULATOR_FUNCTION(rsqrt, decltype(x)(1 / std::sqrt(double(x))))
#undef SIMULATOR_FUNCTION

template <rounding_mode kMode = rounding_mode::round_full, floating_point_tile T>
requires RoundsExponential<kMode, tile_element_t<T>>
auto exp(const T& a, rounding_mode_constant<kMode> = {}) {
    return function_of([](auto x) { return std::exp(x); }, a);
}
template <rounding_mode kMode = rounding_mode::round_full, floating_point_tile T>
requires RoundsExponential<kMode, tile_element_t<T>>
auto tanh(const T& a, rounding_mode_constant<kMode> = {}) {
    return function_of([](auto x) { return std::tanh(x); }, a);
}

template <tile_like T>
auto abs(const T& a) {
    using E = tile_element_t<T>;
    return map<E>([](E x) { return x < E(0) ? E(-x) : E(x + E(0)); }, a);  // -0 becomes 0
}
template <floating_point_tile T>
auto isnan(const T& a) {
    return map<bool>([](auto x) { return x != x; }, a);
}

template <class A, class C>
concept OperandOf = broadcastable_to<A, tile_shape_t<C>> &&
    keeps_value<tile_element_t<A>, tile_element_t<C>>();

/// a * b + c, rounded once.
template <floating_point_tile C, OperandOf<C> A, OperandOf<C> B>
auto fma(const A& a, const B& b, const C& c) {
    using E = tile_element_t<C>;
    auto f = [](auto x, auto y, E z) {
        if constexpr (std::is_class_v<E>)
            return __hfma(convert<E>(x), convert<E>(y), z);
        else
            return std::fma(E(x), E(y), z);
    };
    if constexpr (Parts<C>::kIsTile)
        return map<E, tile_shape_t<C>>(f, a, b, c);
    else
        return f(a, b, c);
}

// --- Making and changing tiles ------------------------------------------------------------------

template <tile_like T>
T full(tile_element_t<T> value) {
    if constexpr (Parts<T>::kIsTile)
        return map<tile_element_t<T>, tile_shape_t<T>>([](auto x) { return x; }, value);
    else
        return value;
}
template <tile_like T>
T zeros() {
    return full<T>(tile_element_t<T>(0));
}
template <tile_like T>
T ones() {
    return full<T>(tile_element_t<T>(1));
}

template <class T>
constexpr bool counts_its_elements() {
    constexpr auto most = uint64_t(std::numeric_limits<tile_element_t<T>>::max());
    return shape_size_v<tile_shape_t<T>> - 1 <= most;
}
template <class T>
concept CountsItsElements = integral_tile<T> && Parts<T>::kIsTile && counts_its_elements<T>();

/// 0, 1, 2, ..., row by row.
template <CountsItsElements T>
T iota() {
    T result;
    for (size_t i = 0; i < shape_size_v<tile_shape_t<T>>; ++i)
        result.elements()[i] = tile_element_t<T>(i);
    return result;
}

template <scalar E, tile_like T>
tile_with_element_t<T, E> element_cast(const T& a) {
    return map<E>([](auto x) { return convert<E>(x); }, a);
}

template <class A, class B>
concept SameSize = (shape_size_v<A> == shape_size_v<B>);

template <tile_shape S, tile_like T>
requires SameSize<S, tile_shape_t<T>>
auto reshape(const T& a, S = {}) {
    tile<tile_element_t<T>, S> result;
    std::copy_n(elements_of(a), shape_size_v<S>, result.elements());
    return result;
}

template <tile_shape S, tile_like T>
requires broadcastable_to<T, S>
auto broadcast(const T& a, S = {}) {
    return map<tile_element_t<T>, S>([](auto x) { return x; }, a);
}

template <scalar E, size_t kRows, size_t kColumns>
tile<E, shape<kColumns, kRows>> transpose(const tile<E, shape<kRows, kColumns>>& a) {
    tile<E, shape<kColumns, kRows>> result;
    for (size_t row = 0; row < kRows; ++row)
        for (size_t column = 0; column < kColumns; ++column)
            result.elements()[column * kRows + row] = a.elements()[row * kColumns + column];
    return result;
}

template <tile_like T, tile_like C>
requires broadcastable_to<C, tile_shape_t<T>>
auto select(const C& condition, const T& a, const T& b) {
    auto f = [](auto which, auto x, auto y) { return convert<bool>(which) ? x : y; };
    if constexpr (Parts<T>::kIsTile)
        return map<tile_element_t<T>, tile_shape_t<T>>(f, condition, a, b);
    else
        return f(condition, a, b);
}

// --- Reductions ---------------------------------------------------------------------------------

template <size_t kDimension, class S>
constexpr auto reduced_shape() {
    return []<size_t... i>(std::index_sequence<i...>) {
        return shape<(i == kDimension ? 1 : S::static_extent(i))...>();
    }
    (std::make_index_sequence<S::rank()>());
}

/// One dimension shrinks to 1: its second half is put on its first, again and again. Sums of many
/// elements lose less that way than in one chain, and GPUs do likewise.
template <size_t kDimension, class E, class S, class F>
auto reduce(F f, tile<E, S> a) {
    tile<E, decltype(reduced_shape<kDimension, S>())> result;
    constexpr size_t extent = S::static_extent(kDimension);
    size_t inner = 1;
    for (size_t i = kDimension + 1; i < S::rank(); ++i) inner *= S::static_extent(i);
    for (size_t outer = 0; outer < shape_size_v<S> / extent / inner; ++outer) {
        E* const first = a.elements() + outer * extent * inner;
        for (size_t half = extent * inner / 2; half >= inner; half /= 2)
            for (size_t i = 0; i < half; ++i) first[i] = E(f(first[i], first[i + half]));
        std::copy_n(first, inner, result.elements() + outer * inner);
    }
    return result;
}

/// Of a reduction's arguments: reduce_max<1>(a), or reduce_max(a, 1_ic).
template <auto kDimension, class S>
concept DimensionOf = kDimension >= 0 && size_t(kDimension) < S::rank();

#define SIMULATOR_REDUCTION(name, f)                                     \
    template <integral auto kDimension, scalar E, class S>               \
    requires DimensionOf<kDimension, S>                                  \
    auto name(const tile<E, S>& a, integral_constant<kDimension> = {}) { \
        return reduce<size_t(kDimension)>(f, a);                         \
    }
SIMULATOR_REDUCTION(sum, ([](E x, E y) { return x + y; }))
SIMULATOR_REDUCTION(reduce_max, (extreme<kSuppress, 1>))
SIMULATOR_REDUCTION(reduce_min, (extreme<kSuppress, -1>))
#undef SIMULATOR_REDUCTION

#define SIMULATOR_LOGICAL_REDUCTION(name, sign)                                    \
    template <integral auto kDimension, scalar E, class S>                         \
    requires DimensionOf<kDimension, S>                                            \
    auto name(const tile<E, S>& a, integral_constant<kDimension> = {}) {           \
        return reduce<size_t(kDimension)>([](bool x, bool y) { return x sign y; }, \
                                          element_cast<bool>(a));                  \
    }
SIMULATOR_LOGICAL_REDUCTION(all_of, &&)
SIMULATOR_LOGICAL_REDUCTION(any_of, ||)
#undef SIMULATOR_LOGICAL_REDUCTION

// --- Products -----------------------------------------------------------------------------------

/// Which sums products of elements E may have. (Those of integers are not modelled.)
template <class E, class Sum>
concept MmaElements = (std::is_same_v<E, double> && std::is_same_v<Sum, double>) ||
                      (std::is_same_v<E, __half> && std::is_same_v<Sum, __half>) ||
                      (floating_point<E> && !std::is_same_v<E, double> &&
                       std::is_same_v<Sum, float>);

/// a b + c. Sums of fp16, too, are fp32 here until the last.
template <class E, class Sum, size_t kM, size_t kN, size_t kK>
requires MmaElements<E, Sum>
auto mma(const tile<E, shape<kM, kK>>& a, const tile<E, shape<kK, kN>>& b,
         tile<Sum, shape<kM, kN>> c) {
    if constexpr (std::is_same_v<E, double>) {
        for (size_t i = 0; i < kM; ++i)
            for (size_t k = 0; k < kK; ++k)
                for (size_t j = 0; j < kN; ++j)
                    c.elements()[i * kN + j] += a.elements()[i * kK + k] * b.elements()[k * kN + j];
        return c;
    } else if constexpr (!std::is_same_v<Sum, float>) {
        return element_cast<Sum>(mma(a, b, element_cast<float>(c)));
    } else if constexpr (!std::is_same_v<E, float>) {
        return mma(element_cast<float>(a), element_cast<float>(b), std::move(c));
    } else {
        simulator::multiply(kM, kN, kK, a.elements(), b.elements(), c.elements());
        return c;
    }
}

// --- Memory -------------------------------------------------------------------------------------

/// A tensor in memory, row by row.
template <class E, class Extents>
requires scalar<std::remove_cv_t<E>>
struct tensor_span {
    using element_type = E;
    using value_type = std::remove_cv_t<E>;
    using extents_type = Extents;
    using index_type = typename Extents::index_type;
    using rank_type = size_t;

    constexpr tensor_span(E* data, const Extents& extents) : data_(data), extents_(extents) {}

    constexpr E* data_handle() const { return data_; }
    constexpr const Extents& extents() const { return extents_; }
    constexpr index_type extent(size_t i) const { return extents_.extent(i); }
    static constexpr size_t static_extent(size_t i) { return Extents::static_extent(i); }
    static constexpr size_t rank() { return Extents::rank(); }
    static constexpr size_t rank_dynamic() { return Extents::rank_dynamic(); }

  private:
    E* data_;
    Extents extents_;
};

/// What a tile gets for its elements outside of the tensor.
enum class view_padding : unsigned char { zero, negative_zero, positive_inf, negative_inf, nan };
template <view_padding kPadding>
struct view_padding_constant {};
using view_padding_zero_t = view_padding_constant<view_padding::zero>;
using view_padding_negative_zero_t = view_padding_constant<view_padding::negative_zero>;
using view_padding_positive_inf_t = view_padding_constant<view_padding::positive_inf>;
using view_padding_negative_inf_t = view_padding_constant<view_padding::negative_inf>;
using view_padding_nan_t = view_padding_constant<view_padding::nan>;

template <view_padding kPadding, class E>
concept PaddingOf = floating_point<E> || kPadding == view_padding::zero;

template <view_padding kPadding, scalar E>
E padding_value() {
    switch (kPadding) {
        case view_padding::zero:
            return E(0);
        case view_padding::negative_zero:
            return E(-0.0f);
        case view_padding::positive_inf:
            return E(std::numeric_limits<float>::infinity());
        case view_padding::negative_inf:
            return E(-std::numeric_limits<float>::infinity());
        default:
            return E(std::numeric_limits<float>::quiet_NaN());
    }
}

/// Which tile along a dimension, and where the kernel asks for it.
struct TileIndex {
    int64_t value;
    const char* file;
    int line;

    template <scalar T>
    TileIndex(T value, SIMULATOR_SITE) : value(int64_t(value)), file(file), line(line) {}
};

template <class Span, class S>
concept SameRank = Span::rank()
== S::rank() && S::rank() > 0;

/// The tiles that a tensor is cut into, each of them known by its place among them.
template <class Span, tile_shape S, class Dimensions = std::make_index_sequence<S::rank()>>
requires SameRank<Span, S>
class partition_view;

template <class T, class View>
concept StoreableIn = !std::is_const_v<typename View::element_type> &&
                      non_narrowing_tile_convertible_to<T, typename View::view_tile_type>;

template <class Span, tile_shape S, size_t... kDimensions>
class partition_view<Span, S, std::index_sequence<kDimensions...>> {
    template <size_t>
    using Index = TileIndex;  // one for each dimension

  public:
    using span_type = Span;
    using element_type = typename Span::element_type;
    using value_type = typename Span::value_type;
    using index_type = typename Span::index_type;
    using view_shape_type = S;
    using view_tile_type = tile<value_type, S>;

    constexpr partition_view(const Span& span, S) : span_(span) {}
    constexpr const Span& span() const { return span_; }

    view_tile_type load(Index<kDimensions>... index) const {
        return load_tile("load()", false, value_type(0), {index...});
    }
    template <view_padding kPadding = view_padding::zero>
    requires PaddingOf<kPadding, value_type>
    auto load_masked(Index<kDimensions>... index) const {
        return load_tile("load_masked()", true, padding_value<kPadding, value_type>(), {index...});
    }
    template <view_padding kPadding>
    requires PaddingOf<kPadding, value_type>
    auto load_masked(view_padding_constant<kPadding>, Index<kDimensions>... index) const {
        return load_masked<kPadding>(index...);
    }

    template <StoreableIn<partition_view> T>
    void store(const T& value, Index<kDimensions>... index) const {
        store_tile("store()", false, value, {index...});
    }
    template <StoreableIn<partition_view> T>
    void store_masked(const T& value, Index<kDimensions>... index) const {
        store_tile("store_masked()", true, value, {index...});
    }

  private:
    static constexpr size_t kRank = S::rank(), kColumns = S::static_extent(kRank - 1);

    view_tile_type load_tile(const char* what, bool masked, value_type padding,
                             std::initializer_list<TileIndex> index) const {
        view_tile_type result;
        visit_rows(what, false, masked, index, [&](element_type* from, size_t inside, size_t row) {
            value_type* const to = result.elements() + row * kColumns;
            if (inside) std::memcpy(static_cast<void*>(to), from, inside * sizeof(value_type));
            std::fill(to + inside, to + kColumns, padding);
        });
        return result;
    }

    void store_tile(const char* what, bool masked, const view_tile_type& value,
                    std::initializer_list<TileIndex> index) const {
        visit_rows(what, true, masked, index, [&](element_type* to, size_t inside, size_t row) {
            const value_type* const from = value.elements() + row * kColumns;
            if (inside) std::memcpy(static_cast<void*>(to), from, inside * sizeof(value_type));
        });
    }

    /// For each row of a tile: visit(where it begins in memory, how much of it is in the tensor,
    /// which row). A row runs along the last dimension.
    template <class Visit>
    void visit_rows(const char* what, bool store, bool masked,
                    std::initializer_list<TileIndex> index, Visit visit) const {
        const simulator::Site site{what, index.begin()->file, index.begin()->line};
        const uint64_t tensor[] = {uint64_t(span_.extent(kDimensions))...};
        const size_t tile[] = {S::static_extent(kDimensions)...};
        const int64_t places[] = {index.begin()[kDimensions].value...};
        simulator::check_tile({kRank, tensor, tile, places}, masked, site);

        const uint64_t column = uint64_t(places[kRank - 1]) * kColumns;
        const size_t width = std::min<uint64_t>(kColumns, tensor[kRank - 1] - column);
        simulator::TileTraffic traffic;
        for (size_t row = 0; row < shape_size_v<S> / kColumns; ++row) {
            uint64_t begin = column, stride = tensor[kRank - 1], rest = row;
            bool inside = true;
            for (size_t i = kRank - 1; i-- > 0; rest /= tile[i], stride *= tensor[i]) {
                const uint64_t at = uint64_t(places[i]) * tile[i] + rest % tile[i];
                begin += at * stride;
                inside &= at < tensor[i];
            }
            element_type* const memory = span_.data_handle() + (inside ? begin : 0);
            visit(memory, inside ? width : 0, row);
            if (inside) traffic.add(memory, width * sizeof(value_type));
        }
        simulator::count_tile(store, traffic.bytes, traffic.sectors, site);
    }

    Span span_;
};
template <class Span, class S>
partition_view(Span, S) -> partition_view<Span, S>;

// --- Promises to the compiler -------------------------------------------------------------------

/// assume_aligned<16>(x), or assume_aligned(x, 16_ic); likewise the others.
template <integral auto kAlignment, class T>
requires PowerOfTwo<kAlignment>
auto assume_aligned(T* pointer, integral_constant<kAlignment> = {}, SIMULATOR_SITE) {
    simulator::check_aligned(pointer, size_t(kAlignment), {"assume_aligned()", file, line});
    return pointer;
}
template <integral auto kDivisor, integral T>
requires PowerOfTwo<kDivisor>
auto assume_divisible(T value, integral_constant<kDivisor> = {}, SIMULATOR_SITE) {
    simulator::check_divisible(int64_t(value), int64_t(kDivisor),
                               {"assume_divisible()", file, line});
    return value;
}
template <integral auto kLow, integral auto kHigh, integral T>
auto assume_bounded(T value, integral_constant<kLow> = {}, integral_constant<kHigh> = {},
                    SIMULATOR_SITE) {
    simulator::check_bounded(int64_t(value), int64_t(kLow), int64_t(kHigh),
                             {"assume_bounded()", file, line});
    return value;
}

// --- Blocks and loops ---------------------------------------------------------------------------

inline uint3 bid() { return blockIdx; }
inline dim3 num_blocks() { return gridDim; }

/// begin, begin + step, ... below end.
template <integral T>
class irange {
  public:
    class iterator {
      public:
        constexpr iterator(T value, T step) : value_(value), step_(step) {}
        constexpr T operator*() const { return value_; }
        constexpr iterator& operator++() {
            value_ = T(value_ + step_);
            return *this;
        }
        constexpr bool operator==(T end) const { return value_ >= end; }

      private:
        T value_, step_;
    };

    constexpr irange(T begin, T end, T step = 1) : begin_(begin), end_(end), step_(step) {
        if (step <= 0) simulator::fail_step(int64_t(step));
    }
    constexpr iterator begin() const { return {begin_, step_}; }
    constexpr T end() const { return end_; }

  private:
    T begin_, end_, step_;
};
template <class A, arithmetic_tile_convertible<A> B>
irange(A, B) -> irange<Together<A, B>>;
template <class A, arithmetic_tile_convertible<A> B, arithmetic_tile_convertible<Together<A, B>> C>
irange(A, B, C) -> irange<Together<Together<A, B>, C>>;

}  // namespace cuda::tiles
