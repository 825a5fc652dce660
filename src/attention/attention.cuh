// O = softmax(Q K^T / sqrt(D)) V of B x heads heads: the data, the reference in fp64 and the bound.
//
// unfused.cuh            chain, line by line, and library_best; both write the scores, N x N a head
// attention_hopper.cuh   the rungs of bonus_attention for Hopper; the last one is the record
// attention_mma.cuh      those for other GPUs
// attention_record.cuh   the record, as 10_attention runs it
#pragma once

#include "demo/data.cuh"
#include "rows/rows.cuh"

namespace demo {

inline constexpr size_t kUsualHeads = kSimulator ? 2 : 16;  // of each of the batch

/// What the programs take besides N.
inline std::vector<Option> attention_options() {
    const Numbers dims{.first = 64, .last = 128, .multiple = 64, .usual = 128};
    const Numbers heads{.first = 1, .last = 1024, .usual = kUsualHeads};
    return {
        {.name = "--dim", .help = "columns of Q, K, V and O", .numbers = dims, .value = "D"},
        {.name = "--heads", .help = "heads, of each of the batch", .numbers = heads, .value = "H"},
        {.name = "--causal", .help = "row i of Q attends to rows 0 to i of K and V alone"}};
}

/// Q, K, V and O are [B, H, N, D]: every one of the B x H heads is a problem of its own.
struct AttentionShape {
    size_t B, H, N, D;
    bool causal;

    /// The one that the command line asks for. B N is some 16384 rows, where N is no larger.
    static AttentionShape of(const Options& options) {
        const size_t N = options.n, B = kSimulator ? 1 : std::max<size_t>(1, 16384 / N);
        return {B, options.number("--heads"), N, options.number("--dim"), options.flag("--causal")};
    }

    size_t heads() const { return saturating_product(B, H); }  // of the whole batch
    size_t rows() const { return saturating_product(heads(), N); }
    float scale() const { return 1 / std::sqrt(float(D)); }
    /// As Input and Output take it.
    operator std::vector<size_t>() const { return {B, H, N, D}; }

    /// Two products of 2 N^2 D operations a head; causal, half of each is needed.
    Workload workload(const Session& session) const {
        auto text = [](size_t number) { return std::to_string(number); };
        const bool usual = D == 128 && H == kUsualHeads && !causal;
        return {
            .shape = usual ? "square" : "d" + text(D) + "h" + text(H) + (causal ? "causal" : ""),
            .size = N,
            .dtype = session.dtype(),
            .flops = (causal ? 2.0 : 4.0) * double(rows()) * double(N) * double(D),
            .least_bytes = session.least_bytes(),
            .text = "N = " + text(N) + ", D = " + text(D) + ", " + text(B) + " x " + text(H) +
                    " heads" + (causal ? ", causal" : ""),
            .arithmetic = "fp32 sums"};
    }
};

/// What a kernel takes: all [heads, N, D].
struct AttentionOperands {
    const half *Q, *K, *V;
    half* O;
    size_t N;     // a multiple of 32
    float scale;  // 1 / sqrt(D)
    bool causal;
};

/// What a way to compute it rounds to fp16 between the first product and the last sum.
enum class Rounds {
    kWeights,  // e^(s - max), before the second product: what tensor cores cannot do without
    kScoresAndWeights,  // also the scores, which are written to memory
    kEverything,        // every operation's result
};

/// How far rounding may move the elements of a row before they are stored, for each of Rounds, but
/// for what an AttentionElement says.
struct AttentionTolerance {
    float of[3];
};

/// An element of the reference, and how far the rounding of weights may move it.
struct AttentionElement {
    double value;
    float of_weights;
};

/// A score of the reference each: q k / sqrt(D), -infinity where it is masked.
__global__ void reference_scores(const half* Q, const half* K, const size_t* rows, double* scores,
                                 size_t N, size_t D, bool causal) {
    const size_t key = size_t(blockIdx.x) * blockDim.x + threadIdx.x, i = blockIdx.y;
    if (key >= N) return;
    const size_t row = rows[i], first = row / N * N;  // of the row's head
    const half *const q = Q + row * D, *const k = K + (first + key) * D;
    double sum = 0;
    for (size_t d = 0; d < D; ++d) sum += double(float(q[d])) * double(float(k[d]));
    scores[i * N + key] = causal && first + key > row ? -INFINITY : sum / sqrt(double(D));
}

/// Turns a row of scores s into weights w = e^(s - max) / sum, and says how far rounding may move
/// the sum of w v of all keys, where |v| <= 1. A block of reference_threads() per row.
///
/// Where weights or scores are rounded to fp16, the errors of different keys are independent, so
/// they add up as the root of the sum of their squares. Each is a maximum, not an average, so four
/// times that is some 7 standard deviations. An error of a score moves O by w (v - O) times itself,
/// where |v - O| <= 2.
__global__ void reference_weights(const half* Q, const size_t* rows, double* scores,
                                  AttentionTolerance* tolerances, size_t N, size_t D) {
    __shared__ double shared[256];
    double* const row = scores + blockIdx.x * N;
    auto reduce = [&](size_t size, double own, auto of, auto combine) {
        for (size_t i = threadIdx.x; i < size; i += blockDim.x) own = combine(own, of(i));
        shared[threadIdx.x] = own;
        for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half)
                shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
        }
        __syncthreads();
        const double whole = shared[0];
        __syncthreads();
        return whole;
    };
    auto sum_of = [&](auto of, size_t size) {
        return reduce(size, 0, of, [](double a, double b) { return a + b; });
    };
    const double max = reduce(
        N, -INFINITY, [&](size_t j) { return row[j]; },
        [](double a, double b) { return fmax(a, b); });
    const double total = sum_of([&](size_t j) { return exp(row[j] - max); }, N);
    auto over_keys = [&](auto of) {  // the sum of of(weight, score, score - max)
        return sum_of(
            [&](size_t j) {
                const double s = row[j], t = s - max;
                return s == -INFINITY ? 0 : of(exp(t) / total, s, t);
            },
            N);
    };
    auto square = [](double v) { return v * v; };
    // The steps of kEverything: gemm, scale, s - max, e^t.
    const double distance = over_keys([](double w, double, double t) { return w * fabs(t); });
    const double weights = over_keys([=](double w, double, double) { return square(w); });
    const double scored = over_keys([=](double w, double s, double) { return square(w * s); });
    const double stepped = over_keys(
        [=](double w, double s, double t) { return square(w * (2 * fabs(s) + fabs(t) + 1)); });
    const double q =
        sum_of([&](size_t d) { return fabs(double(float(Q[rows[blockIdx.x] * D + d]))); }, D);
    for (size_t j = threadIdx.x; j < N; j += blockDim.x) row[j] = exp(row[j] - max) / total;
    if (threadIdx.x > 0) return;

    // In fp32: the second product's sums; the first one's (|k| <= 1, and sqrt(D) cancels) and the
    // scale; e^t, as exp_error() has it. `small`: where fp16 has no normal numbers any more, once
    // before weights are divided by the sum, and after.
    const double of_scores = 0x1p-22 * q * fmin(1.0, 4 * sqrt(weights));
    const double in_fp32 = sqrt(double(N)) * 0x1p-24 + of_scores + 0x1p-20 * (1 + distance);
    const double small = kFp16.subnormal * 4 * sqrt(double(N)), u = 8 * kFp16.roundoff;
    tolerances[blockIdx.x] = {{float(in_fp32 + small / total),
                               float(in_fp32 + small + u * sqrt(scored)),
                               float(in_fp32 + 2 * small + u * sqrt(stepped))}};
}

/// The reference: the sum of weight times v. A thread for each element.
__global__ void reference_sums(const double* weights, const half* V, const size_t* rows,
                               AttentionElement* elements, size_t N, size_t D) {
    const size_t i = blockIdx.x, d = threadIdx.x;
    const half* const v = V + rows[i] / N * N * D;
    double sum = 0, magnitude = 0, squares = 0;
    for (size_t j = 0; j < N; ++j) {
        const double term = weights[i * N + j] * double(float(v[j * D + d]));
        sum += term, magnitude += fabs(term), squares += term * term;
    }
    elements[i * D + d] = {sum, float(kFp16.roundoff * fmin(magnitude, 4 * sqrt(squares)))};
}

/// The element that attention must produce, for verify_output().
struct ExpectAttention {
    const AttentionElement* elements;      // [checked rows, D]
    const AttentionTolerance* tolerances;  // [checked rows]
    size_t D;
    Rounds rounds;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        const auto [value, of_weights] = elements[i * D + column];
        return expect_stored(value, of_weights + double(tolerances[i].of[int(rounds)]), kFp16);
    }
};

/// Rows of Q whose scores are hard: equal, all below -10, tiny, of one number, spread so that a few
/// keys count, and so large that e^s would overflow. K is in [0, 1], so scores have Q's sign.
inline constexpr HardRows kHardQueries{.kinds = {{.offset = 0.75f},
                                                 {.scale = 4, .offset = -4},
                                                 {.scale = 0x1p-15f},
                                                 {.peak = 1},
                                                 {.scale = 32},
                                                 {.scale = 1, .offset = 30}},
                                       .count = 6};

/// Random inputs, an output, and the fp64 reference.
class Attention {
  public:
    explicit Attention(Session& session)
        : shape(AttentionShape::of(session.options)),
          Q(session, "Q", shape, {.hard = kHardQueries}),
          K(session, "K", shape, {.scale = 0.5f, .offset = 0.5f}),
          V(session, "V", shape),
          O(session, "O", shape),
          rows_(CheckedRows::some(shape.rows(), shape.D, saturating_product(2, shape.N, shape.D),
                                  session.options.seed)),
          elements_(rows_.size(), shape.D),
          tolerances_(rows_.size()),
          scores_(std::min(kAtOnce, rows_.size()), shape.N) {
        session.parameters.push_back({"causal", float(shape.causal)});
        compute(0, rows_.compared);
    }

    operator AttentionOperands() const {
        return {Q, K, V, O, shape.N, shape.scale(), shape.causal};
    }

    /// How to verify O. Must not outlive the object.
    Check check(Rounds rounds) const {
        const ExpectAttention expect{elements_.data(), tolerances_.data(), shape.D, rounds};
        return O.check(rows_, expect, 1.01, [this] { compute(rows_.compared, rows_.kSpots); });
    }

    const AttentionShape shape;
    const Input<half> Q, K, V;
    const Output<half> O;

  private:
    static constexpr size_t kAtOnce = 256;  // rows whose scores are in memory together

    /// The reference of `count` of the checked rows, from `first` on.
    void compute(size_t first, size_t count) const {
        if (dry_run) return;
        const size_t N = shape.N, D = shape.D;
        for (const size_t last = first + count; first < last; first += count) {
            count = std::min(kAtOnce, last - first);
            const size_t* const rows = rows_.data() + first;
            reference_scores<<<dim3((N + 127) / 128, count), 128>>>(Q, K, rows, scores_.data(), N,
                                                                    D, shape.causal);
            reference_weights<<<count, reference_threads(N)>>>(Q, rows, scores_.data(),
                                                               tolerances_.data() + first, N, D);
            reference_sums<<<count, D>>>(scores_.data(), V, rows, elements_.data() + first * D, N,
                                         D);
        }
        DEMO_CHECK(cudaGetLastError());
    }

    CheckedRows rows_;
    Buffer<AttentionElement> elements_;  // [rows, D]
    Buffer<AttentionTolerance> tolerances_;
    Buffer<double> scores_;  // [kAtOnce, N]
};

}  // namespace demo
