// A program's inputs and outputs: arrays on the device that know their names, shapes and data.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "session.cuh"

namespace demo {

template <class T>
inline constexpr const char* kTypeName = std::is_same_v<T, __half>          ? "fp16"
                                         : std::is_same_v<T, __nv_bfloat16> ? "bf16"
                                         : sizeof(T) == 1                   ? "bytes"
                                                                            : "fp32";

// --- Random data --------------------------------------------------------------------------------

template <class T>
__global__ void fill_uniform_kernel(T* data, size_t size, uint64_t seed, float scale) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride)
        data[i] = T(scale * random_uniform(seed, i));
}

/// Fills `buffer` with the data set `seed`: uniform in [-scale, scale], rounded to T.
template <class T>
void fill_uniform(const Buffer<T>& buffer, uint64_t seed, float scale = 1) {
    if (dry_run) return;
    fill_uniform_kernel<<<1024, 256>>>(buffer.data(), buffer.size(), seed, scale);
    DEMO_CHECK(cudaGetLastError());
}

/// The same in host memory.
inline void fill_uniform(std::vector<float>& host, uint64_t seed) {
    for (size_t i = 0; i < host.size(); ++i) host[i] = random_uniform(seed, i);
}

/// Rounds to the nearest number with 10 bits after the point, which TF32 represents exactly: so
/// all that is left to verify is the arithmetic.
__global__ void round_to_tf32(float* data, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) data[i] = __uint_as_float((__float_as_uint(data[i]) + 0x1000) & ~0x1FFFu);
}

/// Even rows lie around 100, odd ones around -100: e^x itself would overflow or vanish.
template <class T>
__global__ void offset_rows(T* data, size_t size, size_t columns) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) data[i] = T(float(data[i]) + (i / columns % 2 == 0 ? 100.0f : -100.0f));
}

// --- Inputs and outputs -------------------------------------------------------------------------

/// Notes an array while it exists: `name`, its type and shape, and where it is.
class Registered {
  public:
    Registered(Session& session, const Array& array) : session_(session) {
        session_.arrays.push_back(array);
        place_ = std::prev(session_.arrays.end());
    }
    ~Registered() { session_.arrays.erase(place_); }
    Registered(const Registered&) = delete;

  private:
    Session& session_;
    std::list<Array>::iterator place_;
};

inline size_t elements(const std::vector<size_t>& shape) {
    size_t count = 1;
    for (const size_t length : shape) count = saturating_product(count, length);
    return count;
}

/// Names an input that is in `data` already: lesson 1's, which calls cudaMalloc by itself.
template <class T>
Registered input(Session& session, const std::string& name, const T* data,
                 const std::vector<size_t>& shape, uint64_t seed) {
    const size_t bytes = saturating_product(elements(shape), sizeof(T));
    if (dry_run) dry_run->take(bytes);
    return {session, {name, kTypeName<T>, shape, bytes, data, false, {.seed = seed}}};
}

/// Names such an output.
template <class T>
Registered output(Session& session, const std::string& name, T* data,
                  const std::vector<size_t>& shape) {
    const size_t bytes = saturating_product(elements(shape), sizeof(T));
    if (dry_run) dry_run->take(bytes);
    return {session, {name, kTypeName<T>, shape, bytes, data, true, {}}};
}

/// Device memory with a program's input: random, each input from a seed of its own.
template <class T>
class Input : public Buffer<T> {
  public:
    const std::vector<size_t> shape;

    /// `shape`: row-major. `fill`: uniform in [-1, 1] where it says nothing else.
    Input(Session& session, const std::string& name, const std::vector<size_t>& shape,
          Fill fill = {})
        : Buffer<T>(elements(shape)),
          shape(shape),
          registered_(session, {name, kTypeName<T>, shape, this->bytes(), this->data(), false,
                                seeded(session, fill)}) {
        fill_uniform(*this, session.arrays.back().fill.seed, fill.scale);
        change(fill.then);
    }
    operator const T*() const { return this->data(); }

  private:
    void change(Then then) {
        if (dry_run || then == Then::kNothing) return;
        const size_t blocks = (this->size() + 255) / 256;
        if (then == Then::kOffsetRows)
            offset_rows<<<blocks, 256>>>(this->data(), this->size(), shape.back());
        if constexpr (std::is_same_v<T, float>)
            if (then == Then::kRoundToTf32)
                round_to_tf32<<<blocks, 256>>>(this->data(), this->size());
        DEMO_CHECK(cudaGetLastError());
    }

    static Fill seeded(const Session& session, Fill fill) {
        fill.seed = session.options.seed + session.arrays.size();
        return fill;
    }
    const Registered registered_;
};

/// Device memory for a program's output, followed by some that nothing may write.
template <class T>
class Output : public Buffer<T> {
  public:
    const std::vector<size_t> shape;

    Output(Session& session, const std::string& name, const std::vector<size_t>& shape)
        : Buffer<T>(saturating_sum(elements(shape), kGuard)),
          shape(shape),
          registered_(session, {name,
                                kTypeName<T>,
                                shape,
                                saturating_product(elements(shape), sizeof(T)),
                                this->data(),
                                true,
                                {}}) {}
    operator T*() const { return this->data(); }

    size_t rows() const { return shape[0]; }
    size_t columns() const { return shape[1]; }

    /// How to verify it: expect(i, row, column) says what an element of the i-th of `rows` is.
    /// Neither the output nor `rows` may go before it.
    template <class Expect>
    Check check(const SampledRows& rows, Expect expect) const {
        return {this->data(), this->bytes(), [this, &rows, expect] {
                    Verdict verdict =
                        verify_output(this->data(), this->rows(), columns(), rows, expect);
                    verdict.written_behind = written_behind();
                    return verdict;
                }};
    }

  private:
    static constexpr size_t kGuard = 64 << 10;  // elements

    unsigned long long written_behind() const {
        std::vector<unsigned char> guard(kGuard * sizeof(T));
        DEMO_CHECK(cudaMemcpy(guard.data(), this->data() + elements(shape), guard.size(),
                              cudaMemcpyDeviceToHost));
        return (unsigned long long)(guard.size()) -
               (unsigned long long)(std::count(guard.begin(), guard.end(), 0xFF));
    }
    const Registered registered_;
};

}  // namespace demo
