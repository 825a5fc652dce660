// Atomics. They return the old value.
#pragma once

#include <cstring>
#include <type_traits>

#include "../scheduler.hpp"
#include "host_defines.h"

namespace simulator {

// Inlined, so that counting finds the line of the kernel (count.cpp).
template <class T, class Change>
__forceinline__ T atomically(T* address, Change change) {
    T old, next;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        next = change(old);
    } while (
        !__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (std::memcmp(&old, &next, sizeof old) == 0) polled();
    return old;
}
template <class T>
using Same = std::type_identity_t<T>;

}  // namespace simulator

template <class T>
__forceinline__ T atomicAdd(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old + value); });
}
template <class T>
__forceinline__ T atomicSub(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old - value); });
}
__forceinline__ unsigned int atomicInc(unsigned int* address, unsigned int last) {
    return simulator::atomically(address,
                                 [=](unsigned int old) { return old >= last ? 0 : old + 1; });
}
template <class T>
__forceinline__ T atomicMin(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
__forceinline__ T atomicMax(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
__forceinline__ T atomicExch(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T) { return value; });
}
template <class T>
__forceinline__ T atomicCAS(T* address, simulator::Same<T> expected, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return old == expected ? value : old; });
}
template <class T>
__forceinline__ T atomicOr(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old | value); });
}
template <class T>
__forceinline__ T atomicAnd(T* address, simulator::Same<T> value) {
    return simulator::atomically(address, [=](T old) { return T(old & value); });
}
