// A program's inputs and outputs: arrays on the device that know their names, shapes and data.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "inputs.cuh"
#include "session.cuh"

namespace demo {

// --- Inputs -------------------------------------------------------------------------------------

/// Notes an array while it exists.
class Registered {
  public:
    Registered(Session& session, const Array& array);
    ~Registered() { session_.arrays.erase(place_); }
    Registered(const Registered&) = delete;

    /// Makes some rows of an input hard. The seed says with which kind they begin.
    void harden(HardRows hard) const;

  private:
    Session& session_;
    std::list<Array>::iterator place_;
};

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

/// Device memory between guards, whose bytes no kernel may touch. (The simulator has its own.)
class Guarded {
  public:
    explicit Guarded(size_t bytes);
    void* data() const;
    /// How many bytes of the guards have changed. Mends them for the next kernel.
    size_t written_outside() const;

  private:
    size_t bytes_;
    Buffer<char> buffer_;
};

/// Device memory for a program's output. Nothing may write around it: that is checked, too.
template <class T>
class Output {
  public:
    const std::vector<size_t> shape;

    Output(Session& session, const std::string& name, const std::vector<size_t>& shape)
        : shape(shape), buffer_(bytes()), registered_(session, described(name)) {}
    operator T*() const { return data(); }

    T* data() const { return static_cast<T*>(buffer_.data()); }
    size_t bytes() const { return saturating_product(elements_of(shape), sizeof(T)); }
    size_t rows() const { return elements_of({shape.begin(), shape.end() - 1}); }
    size_t columns() const { return shape.back(); }  // a row is along the last dimension

    /// How to verify it: expect(i, row, column) says what an element of the i-th of `rows` is, and
    /// none is larger than `largest`; the rest as for check_of(). The output must outlive it.
    template <class Expect>
    Check check(
        const CheckedRows& rows, Expect expect, double largest = INFINITY,
        std::function<void()> renew = [] {}) const {
        Check check = check_of(data(), this->rows(), columns(), rows, expect, largest, renew);
        check.verify = [this, verify = check.verify] {
            Verdict verdict = verify();
            verdict.written_outside = buffer_.written_outside();
            return verdict;
        };
        return check;
    }

    /// The same for every row, if expect() needs nothing but the inputs.
    template <class Expect>
    Check check(Expect expect) const {
        const auto rows = std::make_shared<const CheckedRows>(this->rows(), this->rows(), 1);
        Check check = this->check(*rows, expect);
        check.renew = [rows] {};  // keeps `rows`
        return check;
    }

  private:
    Array described(const std::string& name) const {
        Array array = array_of(name, data(), shape);
        array.is_output = true;
        return array;
    }

    const Guarded buffer_;
    const Registered registered_;
};

}  // namespace demo
