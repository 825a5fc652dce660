// A program's inputs and outputs: arrays on the device that know their names, shapes and data.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "session.cuh"

namespace demo {

// --- Inputs -------------------------------------------------------------------------------------

/// Notes an array while it exists.
class Registered {
  public:
    Registered(Session& session, const Array& array) : session_(session) {
        session_.arrays.push_back(array);
        place_ = std::prev(session_.arrays.end());
    }
    ~Registered() { session_.arrays.erase(place_); }
    Registered(const Registered&) = delete;

    /// Makes some rows of an input hard. The seed says with which kind they begin.
    void harden(HardRows hard) const {
        const size_t columns = place_->shape.back();
        hard.rows = elements_of(place_->shape) / columns;
        std::rotate(hard.kinds, hard.kinds + session_.options.seed % hard.count,
                    hard.kinds + hard.count);
        place_->fill.hard = hard;
        place_->refill(place_->fill);
    }

  private:
    Session& session_;
    std::list<Array>::iterator place_;
};

/// Names an input that is in `data` already: lesson 1's, which calls cudaMalloc by itself.
template <class T>
Registered input(Session& session, const std::string& name, const T* data,
                 const std::vector<size_t>& shape, uint64_t seed) {
    Array array = array_of(name, data, shape);
    array.fill.seed = seed;
    if (dry_run) dry_run->take(array.bytes);
    return {session, array};
}

/// Names such an output.
template <class T>
Registered output(Session& session, const std::string& name, T* data,
                  const std::vector<size_t>& shape) {
    Array array = array_of(name, data, shape);
    array.is_output = true;
    if (dry_run) dry_run->take(array.bytes);
    return {session, array};
}

/// Device memory with a program's input: random, each input from a seed of its own.
template <class T>
class Input : public Buffer<T> {
  public:
    const std::vector<size_t> shape;

    /// `shape`: row-major. `fill`: uniform in [-1, 1] where it says nothing else.
    Input(Session& session, const std::string& name, const std::vector<size_t>& shape,
          Fill fill = {})
        : Buffer<T>(elements_of(shape)),
          shape(shape),
          registered_(session, filled(session, name, fill)) {
        if (fill.hard.count > 0) harden(fill.hard);
    }
    operator const T*() const { return this->data(); }

    void harden(const HardRows& hard) const { registered_.harden(hard); }

  private:
    Array filled(const Session& session, const std::string& name, Fill fill) const {
        Array array = array_of(name, static_cast<const T*>(this->data()), shape);
        fill.seed = session.options.seed + session.arrays.size();
        fill.hard = {};  // harden() knows how many rows there are
        array.fill = fill;
        array.refill(fill);
        return array;
    }
    const Registered registered_;
};

// --- Outputs ------------------------------------------------------------------------------------

/// Word i of the memory around an output: a NaN in every type, yet not the one of poison().
__device__ inline uint16_t guard_word(size_t i) {
    return uint16_t(0xFF81 + random_bits(0, i) % 126);
}
__global__ void fill_guard(uint16_t* words, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) words[i] = guard_word(i);
}
/// Counts the bytes that are not as fill_guard() left them.
__global__ void count_written(const uint16_t* words, size_t size, Verdict* verdict) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const unsigned int changed = i < size ? words[i] ^ guard_word(i) : 0;
    if (changed) atomicAdd(&verdict->written_outside, changed > 0xFF && changed & 0xFF ? 2ull : 1);
}

/// Device memory for a program's output. Nothing may write around it: a GPU's is checked with it,
/// and the simulator has guards of its own.
template <class T>
class Output {
  public:
    const std::vector<size_t> shape;

    Output(Session& session, const std::string& name, const std::vector<size_t>& shape)
        : shape(shape),
          size_(elements_of(shape)),
          memory_(saturating_sum(size_, 2 * kGuard)),
          data_(dry_run ? nullptr : memory_.data() + kGuard),
          registered_(session, described(name)) {
        if (dry_run || kGuard == 0) return;
        fill_guards();
    }
    operator T*() const { return data_; }

    T* data() const { return data_; }
    size_t bytes() const { return saturating_product(size_, sizeof(T)); }
    size_t rows() const { return shape[0]; }
    size_t columns() const { return shape[1]; }

    /// How to verify it: expect(i, row, column) says what an element of the i-th of `rows` is, and
    /// none is larger than `largest`; the rest as for check_of(). The output must not go before it.
    template <class Expect>
    Check check(
        const CheckedRows& rows, Expect expect, double largest = INFINITY,
        std::function<void()> renew = [] {}) const {
        Check check = check_of(data_, this->rows(), columns(), rows, expect, largest, renew);
        if (kGuard == 0) return check;
        check.verify = [this, verify = check.verify] {
            Verdict verdict = verify();
            verdict.written_outside = written_outside();
            return verdict;
        };
        return check;
    }

    /// The same of every row, where expect() needs nothing but the inputs.
    template <class Expect>
    Check check(Expect expect) const {
        const auto rows = std::make_shared<const CheckedRows>(this->rows(), this->rows(), 1);
        Check check = this->check(*rows, expect);
        check.renew = [rows] {};  // keeps them
        return check;
    }

  private:
    static constexpr size_t kGuard = kSimulator ? 0 : 64 << 10;  // elements, on both sides
    static constexpr size_t kGuardWords = kGuard * sizeof(T) / sizeof(uint16_t);

    std::array<uint16_t*, 2> guards() const {
        return {reinterpret_cast<uint16_t*>(memory_.data()),
                reinterpret_cast<uint16_t*>(data_ + size_)};
    }
    void fill_guards() const {
        for (uint16_t* guard : guards()) fill_guard<<<kGuardWords / 256, 256>>>(guard, kGuardWords);
        DEMO_CHECK(cudaGetLastError());
    }
    /// How many bytes of the guards have changed. Mends them: the next kernel did not do it.
    unsigned long long written_outside() const {
        const DeviceVerdict found;
        found.reset();
        for (const uint16_t* guard : guards())
            count_written<<<kGuardWords / 256, 256>>>(guard, kGuardWords, found.data());
        const unsigned long long written = found.get().written_outside;
        if (written > 0) fill_guards();
        return written;
    }
    Array described(const std::string& name) const {
        Array array = array_of(name, data_, shape);
        array.is_output = true;
        return array;
    }

    const size_t size_;
    const Buffer<T> memory_;
    T* const data_;
    const Registered registered_;
};

}  // namespace demo
