// What the memory-bound demos share: the shape of their matrices, and how exact they must be.
#pragma once

#include <bit>

#include "data.cuh"

namespace demo {

/// A matrix of any size from 1 x 1: N x N, or what --rows and --cols say.
struct MatrixShape {
    size_t rows, cols;
    bool square;

    /// The one that the command line asks for.
    static MatrixShape of(const Options& options) {
        const bool square = options.rows == 0;
        return {square ? options.n : options.rows, square ? options.n : options.cols, square};
    }

    /// Elements; saturates.
    size_t size() const { return saturating_product(rows, cols); }
    /// As Input and Output take it.
    operator std::vector<size_t>() const { return {rows, cols}; }

    /// `operations` on each element, and the traffic of the session's inputs and outputs, which is
    /// the limit.
    Workload workload(const Session& session, double operations) const {
        const std::string R = std::to_string(rows), C = std::to_string(cols);
        return {.shape = square ? "square" : R + "x" + C,
                .size = rows,
                .dtype = session.dtype(),
                .flops = operations * double(rows) * double(cols),
                .least_bytes = session.least_bytes(),
                .memory_bound = true,
                .text = R + " x " + C};
    }
};

/// Threads for the reference of a row: a power of two, no more than there is work for.
inline unsigned int reference_threads(size_t cols) {
    return unsigned(std::bit_ceil(std::min<size_t>(cols, 256)));
}

/// How far from `value` a result may lie: `terms` is the sum of the formula's terms, each taken
/// as positive, and `out` the format that it is stored in. Measured on an H200, right kernels stay
/// within a third of what is allowed beside the last rounding.
DEMO_HOST_DEVICE inline Expected expect_elementwise(double value, double terms, Format out) {
    return {value, 0x1p-19 * fabs(value) + 0x1p-23 * terms + out.roundoff * fabs(value) +
                       out.subnormal + 0x1p-149};
}

}  // namespace demo
