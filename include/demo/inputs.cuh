// What kernels read. Each element follows from its index and a seed, so an input can be filled
// again, from another seed, and checked for changes.
#pragma once

#include <string>
#include <vector>

#include "device.cuh"
#include "verify.cuh"

namespace demo {

template <class T>
inline constexpr const char* kTypeName = std::is_same_v<T, __half>          ? "fp16"
                                         : std::is_same_v<T, __nv_bfloat16> ? "bf16"
                                         : std::is_same_v<T, double>        ? "fp64"
                                         : std::is_same_v<T, int8_t>        ? "int8"
                                         : std::is_same_v<T, int32_t>       ? "int32"
                                         : std::is_same_v<T, uint32_t>      ? "uint32"
                                         : sizeof(T) == 1                   ? "bytes"
                                                                            : "fp32";

/// Element i of an input whose rows have `columns` elements. (fmaf, so that the compiler rounds it
/// in the same way wherever it is inlined.)
template <class T>
__device__ T element_of(const Fill& fill, size_t columns, size_t i) {
    if constexpr (std::is_same_v<T, uint32_t>)
        return fill.then == Then::kZipf ? zipf_id(fill.seed, i) : random_id(fill.seed, i);
    const float u = random_uniform(fill.seed, i);
    float value, offset = fill.offset;
    if (fill.hard.is_hard(i / columns)) {
        const size_t row = i / columns;
        const HardRow& kind = fill.hard.kind_of(row);
        value = fmaf(kind.scale, u, kind.offset);
        if (kind.step > 0) value = kind.step * rintf(value / kind.step);
        if (kind.peak != 0 && i % columns == random_bits(fill.seed, ~row) % columns)
            value = kind.peak;
    } else {
        if constexpr (std::is_same_v<T, double>)
            return fill.scale * random_uniform_fp64(fill.seed, i);
        if (fill.then == Then::kOffsetRows) offset = i / columns % 2 == 0 ? 100.0f : -100.0f;
        value = fmaf(fill.scale, u, offset);
    }
    if (fill.then >= Then::kCount) {  // an MLP, whose every 16th column counts (mlp.cuh)
        const size_t row = i / columns, column = i % columns;
        if (fill.then == Then::kPassOn) {
            if (row % 16 == 0 || column % 16 == 0) value = row % columns == column;
        } else if (column % 16 == 0) {
            const float odd_32nds = (floorf(16 * float(T(value))) + 0.5f) / 16;
            value = odd_32nds + (fill.then == Then::kCountFrom32 ? 32 : 0);
        }
    }
    if constexpr (std::is_same_v<T, float>)  // to the nearest number with 10 bits after the point
        if (fill.then == Then::kRoundToTf32)
            return __uint_as_float((__float_as_uint(value) + 0x1000) & ~0x1FFFu);
    return T(value);
}

template <class T>
__global__ void fill_elements(T* data, size_t size, size_t columns, Fill fill) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride)
        data[i] = element_of<T>(fill, columns, i);
}

/// Notes how many elements are not what they were filled with, and the first of them.
template <class T>
__global__ void count_changed(const T* data, size_t size, size_t columns, Fill fill,
                              Verdict* verdict) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        const T expected = element_of<T>(fill, columns, i);
        if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
            if (data[i] == expected) continue;  // in fp32 neighbors are the same
        } else if (float(data[i]) == float(expected)) {
            continue;
        }
        atomicAdd(&verdict->changed, 1ull);
        atomicMin(&verdict->first_changed, (unsigned long long)(i));
    }
}

/// Fills `data` as `fill` says: at first uniform in [-scale, scale].
template <class T>
void fill_uniform(T* data, size_t size, size_t columns, const Fill& fill) {
    if (dry_run || size == 0) return;
    fill_elements<<<blocks_to_visit(size), 256>>>(data, size, columns, fill);
    DEMO_CHECK(cudaGetLastError());
}
template <class T>
void fill_uniform(const Buffer<T>& buffer, uint64_t seed, float scale = 1) {
    fill_uniform(buffer.data(), buffer.size(), buffer.size(), {.scale = scale, .seed = seed});
}

/// The same in host memory.
void fill_uniform(std::vector<float>& host, uint64_t seed);

/// rows x columns x ..., or SIZE_MAX.
size_t elements_of(const std::vector<size_t>& shape);

/// An input or an output, with what its element type decides.
template <class T>
Array array_of(const std::string& name, const T* data, const std::vector<size_t>& shape) {
    const size_t size = elements_of(shape), columns = shape.back();
    return {.name = name,
            .dtype = kTypeName<T>,
            .shape = shape,
            .bytes = saturating_product(size, sizeof(T)),
            .data = data,
            .is_output = false,
            .refill =
                [=](const Fill& fill) { fill_uniform(const_cast<T*>(data), size, columns, fill); },
            .compare =
                [=](const Fill& fill, Verdict* verdict) {
                    count_changed<<<blocks_to_visit(size), 256>>>(data, size, columns, fill,
                                                                  verdict);
                }};
}

}  // namespace demo
