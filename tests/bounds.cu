// The programs' bounds of one problem, for test_compare_frameworks.py to hold those of
// scripts/frameworks/verification.py against: bounds PROBLEM FILE ... . The files hold the inputs,
// [N, N] or attention's [1, 2, N, D], in fp32; stdout gets values and tolerances in fp64, first of
// what rounds its result alone, then of what rounds every operation's.
#include <fstream>
#include <numeric>

#include "attention/attention.cuh"
#include "demo.cuh"
#include "gating/gating.cuh"
#include "rows/expect_gelu.cuh"
#include "rows/softmax.cuh"

template <class T>
struct OnDevice : demo::Buffer<T> {
    explicit OnDevice(const std::vector<T>& from) : demo::Buffer<T>(from.size()) {
        DEMO_CHECK(cudaMemcpy(this->data(), from.data(), this->bytes(), cudaMemcpyHostToDevice));
    }
    std::vector<T> download() const {
        std::vector<T> found(this->size());
        DEMO_CHECK(cudaMemcpy(found.data(), this->data(), this->bytes(), cudaMemcpyDeviceToHost));
        return found;
    }
};

template <class T>
static std::vector<T> read(const char* path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<T> found;
    for (float value; file.read(reinterpret_cast<char*>(&value), sizeof value);)
        found.push_back(T(value));
    return found;
}

static std::vector<size_t> all(size_t count) {
    std::vector<size_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

/// Writes expected(rounded, row, column) of all elements.
template <class Of>
static void write(size_t rows, size_t columns, Of expected) {
    for (const bool rounded : {false, true})
        for (size_t i = 0; i < rows * columns; ++i) {
            const demo::Expected each = expected(rounded, i / columns, i % columns);
            std::fwrite(&each, sizeof each, 1, stdout);
        }
}

static demo::Product product(const std::vector<half>& x, const std::vector<half>& W, size_t N,
                             size_t row, size_t column) {
    demo::Product sum{0, 0};
    size_t terms = 0;
    for (size_t k = 0; k < N; ++k) {
        const double term = double(float(x[row * N + k])) * double(float(W[k * N + column]));
        sum.value += term, sum.magnitude += std::fabs(term), terms += term != 0;
    }
    return {sum.value, terms > 1 ? sum.magnitude : 0};
}

static void gating(char** files) {
    const auto x = read<half>(files[0]), W1 = read<half>(files[1]), W2 = read<half>(files[2]),
               b1 = read<half>(files[3]), b2 = read<half>(files[4]);
    const size_t N = b1.size();
    write(N, N, [&](bool r, size_t row, size_t column) {
        return demo::expect_gating(product(x, W1, N, row, column), float(b1[column]),
                                   product(x, W2, N, row, column), float(b2[column]), N, {r, r, r});
    });
}

static void gelu(char** files) {
    const auto x = read<float>(files[0]);
    const size_t N = size_t(std::sqrt(double(x.size())));
    write(N, N, [&](bool rounded, size_t row, size_t column) {
        return demo::ExpectGelu<float>{x.data(), N, rounded}(0, row, column);
    });
}

static void softmax(char** files) {
    const auto x = read<float>(files[0]);
    const size_t N = size_t(std::sqrt(double(x.size())));
    const OnDevice rows(all(N));
    const OnDevice found{std::vector<demo::Statistics>(N)};
    demo::reference_rows<<<N, demo::reference_threads(N)>>>(OnDevice(x).data(), rows.data(),
                                                            found.data(), N);
    const auto statistics = found.download();
    write(N, N, [&](bool rounded, size_t row, size_t column) {
        return demo::ExpectSoftmax<float>{x.data(), statistics.data(), N, rounded}(row, row,
                                                                                   column);
    });
}

static void attention(char** files, bool causal) {
    const OnDevice Q(read<half>(files[0])), K(read<half>(files[1])), V(read<half>(files[2]));
    const size_t D = 128, count = Q.size() / D, N = count / 2;
    const OnDevice rows(all(count));
    const demo::Buffer<double> scores(count * N);
    const OnDevice found{std::vector<demo::AttentionElement>(count * D)};
    const OnDevice of_rows{std::vector<demo::AttentionTolerance>(count)};
    demo::reference_scores<<<dim3((N + 127) / 128, count), 128>>>(Q.data(), K.data(), rows.data(),
                                                                  scores.data(), N, D, causal);
    demo::reference_weights<<<count, demo::reference_threads(N)>>>(
        Q.data(), rows.data(), scores.data(), of_rows.data(), N, D);
    demo::reference_sums<<<count, D>>>(scores.data(), V.data(), rows.data(), found.data(), N, D);
    const auto elements = found.download();
    const auto tolerances = of_rows.download();
    write(count, D, [&](bool rounded, size_t row, size_t column) {
        const auto rounds = rounded ? demo::Rounds::kEverything : demo::Rounds::kWeights;
        return demo::ExpectAttention{elements.data(), tolerances.data(), D, rounds}(row, row,
                                                                                    column);
    });
}

int main(int, char** argv) {
    const std::string problem = argv[1];
    char** const files = argv + 2;
    if (problem == "gating") gating(files);
    if (problem == "gelu") gelu(files);
    if (problem == "softmax") softmax(files);
    if (problem == "attention") attention(files, false);
    if (problem == "causal") attention(files, true);
}
