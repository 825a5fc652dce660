// Number formats and matrix products as a GPU would compute them, on the CPU and slowly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "demo/error_bounds.hpp"

namespace emulate {

using Rounding = double (*)(double);

/// `value` with `bits` significant bits, ties to even, and in no finer steps than `finest`.
inline double round_to(double value, int bits, double finest) {
    int exponent = 0;
    std::frexp(value, &exponent);
    const double step = std::max(std::ldexp(1.0, exponent - bits), finest);
    return std::nearbyint(value / step) * step;
}
inline double fp64(double value) { return value; }
inline double fp32(double value) { return float(value); }
inline double tf32(double value) { return round_to(value, 11, 0); }
inline double fp16(double value) { return round_to(value, 11, 0x1p-24); }
inline double bf16(double value) { return round_to(value, 8, 0); }
inline double e4m3(double value) { return round_to(value, 4, 0x1p-9); }  // fp8
inline double e5m2(double value) { return round_to(value, 3, 0x1p-16); }

struct Matrix {
    size_t rows, columns;
    std::vector<double> elements;  // [rows, columns] row-major

    double operator()(size_t i, size_t j) const { return elements[i * columns + j]; }
    double& operator()(size_t i, size_t j) { return elements[i * columns + j]; }
};

/// The data set `seed`, uniform in [-scale, scale], as it lies in the format `round`.
inline Matrix uniform(size_t rows, size_t columns, uint64_t seed, Rounding round,
                      double scale = 1) {
    Matrix matrix{rows, columns, std::vector<double>(rows * columns)};
    for (size_t i = 0; i < matrix.elements.size(); ++i)
        matrix.elements[i] = round(float(scale) * demo::random_uniform(seed, i));
    return matrix;
}

/// A matrix with every element rounded.
inline Matrix rounded(Matrix matrix, Rounding round) {
    for (double& element : matrix.elements) element = round(element);
    return matrix;
}

/// One element of A B over the first K terms; each sum is rounded by `accumulate`.
inline double product(const Matrix& A, const Matrix& B, size_t i, size_t j, size_t K,
                      Rounding accumulate) {
    double sum = 0;
    for (size_t k = 0; k < K; ++k) sum = accumulate(std::fma(A(i, k), B(k, j), sum));
    return sum;
}

/// One element of A B as tensor cores add products of fp8: 32 of them and the sum so far at a time,
/// each cut off after the place of the largest one's `bits`-th bit.
inline double cut_off_product(const Matrix& A, const Matrix& B, size_t i, size_t j, int bits) {
    double sum = 0;
    for (size_t first = 0; first < A.columns; first += 32) {
        double largest = std::fabs(sum);
        for (size_t k = first; k < first + 32; ++k)
            largest = std::max(largest, std::fabs(A(i, k) * B(k, j)));
        int exponent = 0;
        std::frexp(largest, &exponent);
        const double step = std::ldexp(1.0, exponent - bits);
        sum = std::trunc(sum / step) * step;
        for (size_t k = first; k < first + 32; ++k)
            sum += std::trunc(A(i, k) * B(k, j) / step) * step;
    }
    return sum;
}

/// A B, accumulated in the format `accumulate` and stored as `out`.
inline Matrix matmul(const Matrix& A, const Matrix& B, Rounding accumulate, Rounding out) {
    Matrix C{A.rows, B.columns, std::vector<double>(A.rows * B.columns)};
    for (size_t i = 0; i < C.rows; ++i)
        for (size_t j = 0; j < C.columns; ++j)
            C(i, j) = out(product(A, B, i, j, A.columns, accumulate));
    return C;
}

/// What the verification compares with.
inline demo::Product reference(const Matrix& A, const Matrix& B, size_t i, size_t j) {
    demo::Product sum{0, 0};
    for (size_t k = 0; k < A.columns; ++k) {
        sum.value += A(i, k) * B(k, j);
        sum.magnitude += std::fabs(A(i, k) * B(k, j));
    }
    return sum;
}

}  // namespace emulate
