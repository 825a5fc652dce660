// CUDA's vectors of one to four numbers, and the sizes of grids and blocks.
#pragma once

#define SIMULATOR_VECTOR(T, name, pair, quad)                             \
    struct name##1 {                                                      \
        T x;                                                              \
    };                                                                    \
    struct alignas(pair) name##2 {                                        \
        T x, y;                                                           \
    };                                                                    \
    struct name##3 {                                                      \
        T x, y, z;                                                        \
    };                                                                    \
    struct alignas(quad) name##4 {                                        \
        T x, y, z, w;                                                     \
    };                                                                    \
    constexpr name##1 make_##name##1(T x) { return {x}; }                 \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIMULATOR_VECTOR(signed char, char, 2, 4)
SIMULATOR_VECTOR(unsigned char, uchar, 2, 4)
SIMULATOR_VECTOR(short, short, 4, 8)
SIMULATOR_VECTOR(unsigned short, ushort, 4, 8)
SIMULATOR_VECTOR(int, int, 8, 16)
SIMULATOR_VECTOR(unsigned int, uint, 8, 16)
SIMULATOR_VECTOR(long long, longlong, 16, 16)
SIMULATOR_VECTOR(unsigned long long, ulonglong, 16, 16)
SIMULATOR_VECTOR(float, float, 8, 16)
SIMULATOR_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
