// What lesson 1 leaves out: verifying matrices that a program allocates by itself.
#pragma once

#include <optional>

#include "matmul/matmul.cuh"

namespace demo {

/// Lesson 1's own matrices: names them, makes some rows of A hard, and verifies C = A B.
template <class T>
class PlainMatmul {
  public:
    PlainMatmul(Session& session, const T* A, const T* B, T* C, size_t N)
        : A_(session, named("A", A, N, session.options.seed)),
          B_(session, named("B", B, N, session.options.seed + 1)),
          C_(session, named("C", C, N, {})),
          reference_((A_.harden(hard_operand()), A), B, N, N, N, session.options.seed),
          check_(reference_.check(C)) {}
    const Check& check() const { return check_; }

  private:
    /// An input that its seed filled, or the output.
    static Array named(const std::string& name, const T* data, size_t N,
                       std::optional<uint64_t> seed) {
        Array array = array_of(name, data, {N, N});
        array.fill.seed = seed.value_or(0), array.is_output = !seed;
        plan_on_device(array.bytes);
        return array;
    }

    Registered A_, B_, C_;
    MatmulReference reference_;
    Check check_;
};

}  // namespace demo
