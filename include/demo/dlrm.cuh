// The DLRM demos' problem: a recommendation model, its data and its reference. (Naumov et al.: Deep
// Learning Recommendation Model for Personalization and Recommendation Systems, arXiv 1906.00091.)
#pragma once

#include "data.cuh"

namespace demo {

/// The model for N samples, with vectors of E numbers.
struct DlrmShape {
    static constexpr size_t kDense = 13, kTables = 26, kVectors = kTables + 1;  // numbers, ids
    static constexpr size_t kPairs = kVectors * (kVectors - 1) / 2;             // i > j
    static constexpr size_t kRows = kSimulator ? 1000 : 100000;                 // of a table
    static constexpr size_t kHidden = kSimulator ? 256 : 512;  // wide is the top MLP's first layer
    static constexpr size_t kUsualE = kSimulator ? 4 : 16;

    size_t N, E;
    bool dot;                     // features: the vectors' dot products; else the outer product
    size_t width = kVectors * E;  // of z, all vectors of a sample
    size_t features = dot ? E + kPairs : saturating_product(width, width);
    size_t pitch = (features + 7) / 8 * 8;  // where features' rows begin at multiples of 16 bytes

    std::string name() const {
        if (E == kUsualE) return dot ? "dot" : "square";
        return (dot ? "dot" : "outer") + std::string("e") + std::to_string(E);
    }

    /// The one that the command line asks for.
    static DlrmShape of(const Options& options) {
        return {options.n, options.number("--embedding"), options.flag("--dot")};
    }
};

/// What the programs take besides N.
inline std::vector<Option> dlrm_options() {
    const Numbers E{.first = 4, .last = 128, .multiple = 4, .usual = DlrmShape::kUsualE};
    return {
        {.name = "--embedding", .help = "numbers in a row of a table", .numbers = E, .value = "E"},
        {.name = "--dot", .help = "features: the vectors' dot products, as in the paper"},
        {.name = "--ids",
         .help = "how the rows of the tables are drawn; the tables have " +
                 std::to_string(DlrmShape::kRows) + " rows",
         .choices = {"uniform", "zipf"}}};
}

/// A layer of an MLP: activation(x W + b).
struct DlrmLayer {
    const size_t K, N;
    const Input<half> W, b;  // [K, N], [N]
    DlrmLayer(Session& session, const std::string& name, size_t K, size_t N)
        : K(K),
          N(N),
          W(session, name + "_W", {K, N}, {.scale = std::sqrt(3.0f / float(K))}),
          b(session, name + "_b", {N}) {}
};

// --- The reference ------------------------------------------------------------------------------

/// A number that every kernel stores as fp16, as the reference finds it, and how far from that a
/// right kernel's may lie: mostly 0, or one spacing where the number is nearly between two.
struct Stored {
    float value, error;
};
__host__ __device__ inline double as_fp16(double value) {
    return double(float(__double2half(value)));
}
/// `value`, which a right kernel knows within `error`, rounded. Rounding keeps order, so the
/// kernel's lies between the ends of the interval, rounded.
__host__ __device__ inline Stored stored(double value, double error) {
    const double rounded = as_fp16(value);
    return {float(rounded),
            float(fmax(as_fp16(value + error) - rounded, rounded - as_fp16(value - error)))};
}

/// x W + b in fp64, before the activation. A right kernel differs by two errors: what its fp32 sum
/// may lose, and what its inputs' errors contribute. Those are roundings, as good as independent:
/// with random weights they add in quadrature.
struct DlrmSum {
    double value, accumulation, carried;

    /// How far off it may be: a sum of independent errors within their bounds is larger than 8
    /// times the quadrature once in 10^13 (Hoeffding's inequality; see largest_product()).
    __host__ __device__ double error() const { return accumulation + 8 * carried; }
    /// What the next layer reads: max(0, this), rounded.
    __host__ __device__ Stored relu() const {
        const double d = accumulation + carried;
        const double low = fmax(value - d, 0.0), high = fmax(value + d, 0.0);
        const double rounded = as_fp16(fmax(value, 0.0));
        return {float(rounded), float(fmax(as_fp16(high) - rounded, rounded - as_fp16(low)))};
    }
};

/// The inputs of a layer, for row i of those that are checked: numbers of the samples ...
struct DlrmDense {
    const half* x;       // [N, kDense]
    const size_t* rows;  // [checked rows]
    __device__ Stored operator()(size_t i, size_t k) const {
        return {float(x[rows[i] * DlrmShape::kDense + k]), 0};
    }
};
/// ... or what a reference kernel has stored ...
struct DlrmStored {
    const Stored* data;
    size_t pitch;  // elements from row to row
    __device__ Stored operator()(size_t i, size_t k) const { return data[i * pitch + k]; }
};
/// ... or the outer product of z with itself. An error of z goes into it, and there the product
/// may round to a neighbor.
///
/// `folded`: a kernel multiplies z_i z_j by W_ij + W_ji, rounded to fp16: off by 2^-11 of the sum.
/// Such errors are independent, and so are the signs of W_ij and W_ji. So in quadrature it is as if
/// each of the two features were off by 2^-11. (Sums too small for 11 bits are exact: both terms
/// are multiples of 2^-24.)
struct DlrmOuter {
    const Stored* z;  // [checked rows, width]
    unsigned int width;
    bool folded = false;
    __device__ Stored operator()(size_t i, unsigned int k) const {
        const Stored a = z[i * width + k / width], b = z[i * width + k % width];
        const float product = float(__float2half(a.value * b.value));  // exact in fp32
        float error = 0;
        if (a.error > 0 || b.error > 0)
            error = fabsf(a.value) * b.error + (fabsf(b.value) + b.error) * a.error +
                    0x1p-10f * fabsf(product) + 0x1p-24f;
        if (folded) error += 0x1p-11f * fabsf(product);
        return {product, error};
    }
};

/// One thread per element: sums[i, j] = (in W)[i, j] + b[j], and what the next layer reads of it.
template <class In>
__global__ void reference_layer(In in, const half* W, const half* b, DlrmSum* sums, Stored* next,
                                size_t next_pitch, size_t first, size_t count, size_t K, size_t N) {
    const size_t i = first + size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= first + count || j >= N) return;
    Product sum{double(float(b[j])), fabs(double(float(b[j])))};
    float squares = 0;  // of the inputs' errors, as they arrive
    for (size_t k = 0; k < K; ++k) {
        const Stored x = in(i, k);
        const float w = float(W[k * N + j]);
        const double term = double(x.value) * double(w);
        sum.value += term;
        sum.magnitude += fabs(term);
        squares += x.error * w * (x.error * w);
    }
    const DlrmSum found{sum.value, accumulation_error(sum, K + 1), sqrt(double(squares))};
    if (sums) sums[i * N + j] = found;
    if (next) next[i * next_pitch + j] = found.relu();
}

/// One thread per number of z: the tables' rows behind what the bottom MLP left in z.
__global__ void reference_gather(const uint32_t* ids, const half* tables, const size_t* rows,
                                 Stored* z, size_t first, size_t count, size_t E) {
    const size_t width = DlrmShape::kVectors * E;
    const size_t e = first * width + size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t i = e / width, vector = e % width / E;
    if (i >= first + count || vector == 0) return;
    const size_t table = vector - 1, id = ids[rows[i] * DlrmShape::kTables + table];
    const size_t row = table * DlrmShape::kRows + (id + 1) % DlrmShape::kRows;
    z[e] = {float(tables[row * E + e % E]), 0};
}

/// One thread per feature: [the first vector of z | the dot products of vectors i > j].
__global__ void reference_dot(const Stored* z, Stored* features, size_t first, size_t count,
                              size_t E) {
    const size_t size = E + DlrmShape::kPairs;
    const size_t f = first * size + size_t(blockIdx.x) * blockDim.x + threadIdx.x, i = f / size;
    if (i >= first + count) return;
    const Stored* const own = z + i * DlrmShape::kVectors * E;
    if (f % size < E) {
        features[f] = own[f % size];
        return;
    }
    size_t b = f % size - E, a = 1;  // the pair's vectors: (1, 0), (2, 0), (2, 1), (3, 0), ...
    for (; b >= a; ++a) b -= a;
    Product sum{0, 0};
    double squares = 0;
    for (size_t e = 0; e < E; ++e) {
        const Stored x = own[a * E + e], y = own[b * E + e];
        const double term = double(x.value) * double(y.value);
        const double error = fabs(double(x.value)) * double(y.error) +
                             (fabs(double(y.value)) + double(y.error)) * double(x.error);
        sum.value += term;
        sum.magnitude += fabs(term);
        squares += error * error;
    }
    features[f] = stored(sum.value, accumulation_error(sum, E) + sqrt(squares));
}

/// The top MLP's first layer: relu(features W + b) as fp16.
struct ExpectDlrmHidden {
    const DlrmSum* sums;  // [checked rows, kHidden]
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        const DlrmSum sum = sums[i * DlrmShape::kHidden + column];
        return {fmax(sum.value, 0.0),
                sum.error() + kFp16.roundoff * fabs(sum.value) + kFp16.subnormal};
    }
};
/// The model's output: sigmoid(sum), where the sum is stored as fp16 before. The sigmoid's slope is
/// at most 1/4, and itself it is computed to 2^-20.
struct ExpectDlrm {
    const DlrmSum* sums;  // [checked rows]
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t) const {
        const double v = sums[i].value, value = 1 / (1 + exp(-v));
        const double error = sums[i].error() + kFp16.roundoff * fabs(v) + kFp16.subnormal;
        return {value, error / 4 + (0x1p-20 + kFp16.roundoff) * value + kFp16.subnormal};
    }
};

// --- The problem --------------------------------------------------------------------------------

/// Random inputs, the output, and the fp64 reference.
class Dlrm {
  public:
    explicit Dlrm(Session& session) : Dlrm(session, DlrmShape::of(session.options), false) {}
    /// `folds`: some kernels add up W_ij and W_ji. The reference then knows two bounds.
    Dlrm(Session& session, const DlrmShape& shape, bool folds)
        : shape(shape),
          x(session, "dense", {shape.N, DlrmShape::kDense}),
          ids(session, "ids", {shape.N, DlrmShape::kTables},
              {.then = session.options.choice("--ids") == "zipf" ? Then::kZipf : Then::kNothing}),
          tables(session, "tables", {DlrmShape::kTables, DlrmShape::kRows, shape.E}),
          bottom{DlrmLayer(session, "bottom1", DlrmShape::kDense, 512),
                 DlrmLayer(session, "bottom2", 512, 256), DlrmLayer(session, "bottom3", 256, 64),
                 DlrmLayer(session, "bottom4", 64, shape.E)},
          top{DlrmLayer(session, "top1", shape.features, DlrmShape::kHidden),
              DlrmLayer(session, "top2", DlrmShape::kHidden, 256),
              DlrmLayer(session, "top3", 256, 1)},
          out(session, "out", {shape.N, 1}),
          hidden(shape.N, DlrmShape::kHidden),
          rows_(CheckedRows::sampled(shape.N, session.options.seed)),
          a_(rows_.size(), 512),
          b_(rows_.size(), 256),
          z_(rows_.size(), shape.width),
          features_(shape.dot ? rows_.size() : 1, shape.dot ? shape.features : 1),
          exact_(rows_.size()),
          folded_(folds ? rows_.size() : 1),
          folds_(folds) {
        compute(0, rows_.compared);
    }

    /// How to verify `hidden` and `out`. Errors average out on their way from one to the other: of
    /// a wrong `hidden` the sigmoid may show nothing. `folded`: of a kernel that adds up W_ij and
    /// W_ji. Must not outlive the object.
    Check check(bool folded = false) const {
        const Sums& sums = folded ? folded_ : exact_;
        const Check first = check_of(hidden.data(), shape.N, DlrmShape::kHidden, rows_,
                                     ExpectDlrmHidden{sums.hidden.data()}, largest());
        return in_turn(first, "the top MLP's first layer",
                       out.check(rows_, ExpectDlrm{sums.out.data()}, 1,
                                 [this] { compute(rows_.compared, rows_.kSpots); }));
    }

    /// Two operations per weight and sample, and those of the interaction. Of the tables a sample
    /// needs 26 rows; other inputs are read whole.
    Workload workload(const Session& session) const {
        double weights = 0;
        for (const DlrmLayer& layer : bottom) weights += double(layer.K) * double(layer.N);
        for (const DlrmLayer& layer : top) weights += double(layer.K) * double(layer.N);
        const double interaction =
            shape.dot ? 2.0 * double(DlrmShape::kPairs * shape.E) : double(shape.features);
        const size_t gathered =
            saturating_product(shape.N, DlrmShape::kTables, shape.E, sizeof(half));
        const size_t bytes = session.least_bytes();
        const std::string N = std::to_string(shape.N), E = std::to_string(shape.E);
        return {.shape = shape.name(),
                .size = shape.N,
                .dtype = session.dtype(),
                .flops = double(shape.N) * (2 * weights + interaction),
                .least_bytes = bytes == SIZE_MAX
                                   ? bytes
                                   : bytes - tables.bytes() + std::min(gathered, tables.bytes()),
                .text = N + " samples, 27 vectors of " + E + ", " +
                        (shape.dot ? "dot products" : "outer product"),
                .arithmetic = "fp32 sums"};
    }

    /// What lookups read and write: ids of 4 bytes; a row of each table, and its copy.
    size_t lookup_bytes() const { return shape.N * DlrmShape::kTables * (4 + 2 * 2 * shape.E); }

    const DlrmShape shape;
    const Input<half> x;        // [N, kDense]
    const Input<uint32_t> ids;  // [N, kTables]
    const Input<half> tables;   // [kTables, kRows, E]
    const DlrmLayer bottom[4], top[3];
    const Output<half> out;  // [N, 1]
    const Buffer<half>
        hidden;  // [N, kHidden]: the top MLP's first layer, which every kernel stores

  private:
    struct Sums {  // of the layers that are verified, for the checked rows
        Buffer<DlrmSum> hidden, out;
        explicit Sums(size_t rows) : hidden(rows, DlrmShape::kHidden), out(rows) {}
    };

    /// No element of `hidden` is larger: |z| <= 1 but for the bottom MLP's E numbers, which may be
    /// a few times that.
    double largest() const { return 100 * largest_product(1, 1) * std::sqrt(double(shape.E)); }

    /// The reference for `count` of the checked rows.
    void compute(size_t first, size_t count) const {
        if (dry_run) return;
        const size_t width = shape.width;
        Stored *const a = a_.data(), *const b = b_.data(), *const z = z_.data();
        auto layer = [=](const DlrmLayer& layer, auto in, Stored* next, size_t pitch,
                         DlrmSum* sums) {
            const dim3 block(layer.N < 32 ? 4 : 32, 8);
            const dim3 grid((count + 7) / 8, (layer.N + block.x - 1) / block.x);
            reference_layer<<<grid, block>>>(in, layer.W.data(), layer.b.data(), sums, next, pitch,
                                             first, count, layer.K, layer.N);
        };
        auto top_layers = [=, this](auto features, const Sums& sums) {
            layer(top[0], features, a, 512, sums.hidden.data());
            layer(top[1], DlrmStored{a, 512}, b, 256, nullptr);
            layer(top[2], DlrmStored{b, 256}, nullptr, 0, sums.out.data());
        };
        layer(bottom[0], DlrmDense{x, rows_.data()}, a, 512, nullptr);
        layer(bottom[1], DlrmStored{a, 512}, b, 256, nullptr);
        layer(bottom[2], DlrmStored{b, 256}, a, 64, nullptr);
        layer(bottom[3], DlrmStored{a, 64}, z, width, nullptr);
        reference_gather<<<(count * width + 255) / 256, 256>>>(ids, tables, rows_.data(), z, first,
                                                               count, shape.E);
        if (shape.dot) {
            reference_dot<<<(count * shape.features + 255) / 256, 256>>>(z, features_.data(), first,
                                                                         count, shape.E);
            top_layers(DlrmStored{features_.data(), shape.features}, exact_);
        } else {
            top_layers(DlrmOuter{z, unsigned(width)}, exact_);
            if (folds_) top_layers(DlrmOuter{z, unsigned(width), true}, folded_);
        }
        DEMO_CHECK(cudaGetLastError());
    }

    CheckedRows rows_;
    // Of the checked rows: what the layers leave in turn, z, dot products.
    Buffer<Stored> a_, b_, z_, features_;
    Sums exact_, folded_;
    bool folds_;
};

}  // namespace demo
