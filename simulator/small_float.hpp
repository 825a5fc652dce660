// What half and bfloat16 have in common: arithmetic in fp32 or wider, rounded once to nearest even.
// fp32 has more than twice as many bits as either, plus two, so that rounding its sums, products,
// quotients and roots a second time gives what rounding them once would. Both formats come from
// fp32 through from_float() and go back through to_float(), which each defines.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace simulator {

/// `x` rounded to fp32 such that rounding it again, to fewer bits, is as good as rounding x itself:
/// to odd.
inline float to_odd(double x) {
    const float nearest = float(x);
    const auto bits = std::bit_cast<uint32_t>(nearest);
    if (double(nearest) == x || x != x || std::isinf(nearest) || (bits & 1)) return nearest;
    const bool towards_zero = std::fabs(double(nearest)) > std::fabs(x);
    return std::bit_cast<float>(towards_zero ? bits - 1 : bits + 1);
}

template <class T>
concept SmallFloat = requires {
    typename T::DemoSmallFloat;
};
template <class T>
concept SmallFloat2 = requires {
    typename T::DemoSmallFloat2;
};

template <class T>
T map2(T a, auto f) {
    return T(f(a.x), f(a.y));
}
template <class T>
T map2(T a, T b, auto f) {
    return T(f(a.x, b.x), f(a.y, b.y));
}

}  // namespace simulator

// CUDA has these names for both formats, alone and in pairs: __hadd(a, b), __hadd2(a2, b2).
#define SIMULATOR_UNARY(name, name2, value)                        \
    template <simulator::SmallFloat T>                             \
    T name(T a) {                                                  \
        const float x = float(a);                                  \
        return T(value);                                           \
    }                                                              \
    template <simulator::SmallFloat2 T>                            \
    T name2(T a) {                                                 \
        return simulator::map2(a, [](auto x) { return name(x); }); \
    }
#define SIMULATOR_BINARY(name, name2, value)                                     \
    template <simulator::SmallFloat T>                                           \
    T name(T a, T b) {                                                           \
        const float x = float(a), y = float(b);                                  \
        return T(value);                                                         \
    }                                                                            \
    template <simulator::SmallFloat2 T>                                          \
    T name2(T a, T b) {                                                          \
        return simulator::map2(a, b, [](auto x, auto y) { return name(x, y); }); \
    }
#define SIMULATOR_COMPARE(name, sign)  \
    template <simulator::SmallFloat T> \
    bool name(T a, T b) {              \
        return float(a) sign float(b); \
    }                                  \
    template <simulator::SmallFloat T> \
    bool operator sign(T a, T b) {     \
        return float(a) sign float(b); \
    }
#define SIMULATOR_OPERATOR(sign, name, name2)                                                 \
    template <simulator::SmallFloat T>                                                        \
    T operator sign(T a, T b) {                                                               \
        return name(a, b);                                                                    \
    }                                                                                         \
    template <simulator::SmallFloat2 T>                                                       \
    T operator sign(T a, T b) {                                                               \
        return name2(a, b);                                                                   \
    }                                                                                         \
    template <class T>                                                                        \
    requires simulator::SmallFloat<T> || simulator::SmallFloat2<T> T& operator sign##=(T& a,  \
                                                                                       T b) { \
        return a = a sign b;                                                                  \
    }

SIMULATOR_BINARY(__hadd, __hadd2, x + y)
SIMULATOR_BINARY(__hsub, __hsub2, x - y)
SIMULATOR_BINARY(__hmul, __hmul2, x* y)
SIMULATOR_BINARY(__hdiv, __h2div, x / y)
SIMULATOR_BINARY(__hmin, __hmin2, std::fmin(x, y))
SIMULATOR_BINARY(__hmax, __hmax2, std::fmax(x, y))
SIMULATOR_UNARY(__hneg, __hneg2, -x)
SIMULATOR_UNARY(__habs, __habs2, std::fabs(x))
SIMULATOR_UNARY(hexp, h2exp, std::exp(x))
SIMULATOR_UNARY(hlog, h2log, std::log(x))
SIMULATOR_UNARY(hsqrt, h2sqrt, std::sqrt(x))
SIMULATOR_UNARY(hrsqrt, h2rsqrt, 1 / std::sqrt(x))
SIMULATOR_UNARY(hrcp, h2rcp, 1 / x)
SIMULATOR_UNARY(htanh, h2tanh, std::tanh(x))
SIMULATOR_COMPARE(__heq, ==)
SIMULATOR_COMPARE(__hne, !=)
SIMULATOR_COMPARE(__hlt, <)
SIMULATOR_COMPARE(__hle, <=)
SIMULATOR_COMPARE(__hgt, >)
SIMULATOR_COMPARE(__hge, >=)
SIMULATOR_OPERATOR(+, __hadd, __hadd2)
SIMULATOR_OPERATOR(-, __hsub, __hsub2)
SIMULATOR_OPERATOR(*, __hmul, __hmul2)
SIMULATOR_OPERATOR(/, __hdiv, __h2div)

template <class T>
requires simulator::SmallFloat<T> || simulator::SmallFloat2<T> T operator-(T a) {
    if constexpr (simulator::SmallFloat<T>)
        return __hneg(a);
    else
        return __hneg2(a);
}
template <simulator::SmallFloat T>
T __hfma(T a, T b, T c) {  // exact in fp64 but for what cannot decide a tie
    return T(simulator::to_odd(double(float(a)) * double(float(b)) + double(float(c))));
}
template <simulator::SmallFloat2 T>
T __hfma2(T a, T b, T c) {
    return T(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
template <simulator::SmallFloat T>
bool __hisnan(T a) {
    return float(a) != float(a);
}
template <simulator::SmallFloat T>
int __hisinf(T a) {
    return std::isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0;
}
template <simulator::SmallFloat2 T>
auto __low2half(T a) {
    return a.x;
}
template <simulator::SmallFloat2 T>
auto __high2half(T a) {
    return a.y;
}
template <simulator::SmallFloat2 T>
float __low2float(T a) {
    return float(a.x);
}
template <simulator::SmallFloat2 T>
float __high2float(T a) {
    return float(a.y);
}

/// The members of __half and of __nv_bfloat16, which differ in from_float() and to_float() alone.
#define SIMULATOR_SMALL_FLOAT(name)                               \
    using DemoSmallFloat = void;                                  \
    name() = default;                                             \
    name(float x) : __x(from_float(x)) {}                         \
    name(double x) : __x(from_float(simulator::to_odd(x))) {}     \
    template <class I>                                            \
    requires std::is_integral_v<I> name(I x) : name(double(x)) {} \
    operator float() const { return to_float(__x); }              \
                                                                  \
  protected:                                                      \
    unsigned short __x;                                           \
                                                                  \
  public:

/// The same for the types of two.
#define SIMULATOR_SMALL_FLOAT2(name, T) \
    using DemoSmallFloat2 = void;       \
    T x, y;                             \
    name() = default;                   \
    name(T x, T y) : x(x), y(y) {}
