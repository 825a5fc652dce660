// A recommendation model: its data, its bound and its reference. (Naumov et al.: Deep Learning
// Recommendation Model for Personalization and Recommendation Systems, arXiv 1906.00091.)
//
// library.cuh    its two MLPs by the library, around whatever computes what is between them
// chain.cuh      between them line by line, a kernel each: what a framework launches
// grouped.cuh    between them a kernel or two, lesson 13's first step
// dlrm_mlps.cuh  MLPs within a block, for the records of bonus_dlrm
// dlrm_dot.cuh   its ladder with dot products; that with the outer product: bonus_dlrm.cu
#pragma once

#include "demo/data.cuh"

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
template <class T>
struct DlrmLayer {
    const size_t K, N;
    const Input<T> W, b;  // [K, N], [N]
    DlrmLayer(Session& session, const std::string& name, size_t K, size_t N)
        : K(K),
          N(N),
          W(session, name + "_W", {K, N}, {.scale = std::sqrt(3.0f / float(K))}),
          b(session, name + "_b", {N}) {}
};

// --- The reference ------------------------------------------------------------------------------

// The model's type T is half, or float: numbers that are multiplied as TF32.

/// A number that every kernel stores as T, as the reference finds it, and how far off a right
/// kernel may be: in fp16 mostly 0, or one spacing if the number is nearly halfway between two.
struct Stored {
    float value, error;
};
template <class T>
__host__ __device__ double rounded_to(double value) {
    if constexpr (std::is_same_v<T, half>) return double(float(__double2half(value)));
    return double(float(value));
}
/// A number between `low` and `high`, in the reference `value`. Rounding keeps order, so a right
/// kernel's number is between the rounded ends.
template <class T>
__host__ __device__ Stored stored(double value, double low, double high) {
    const double rounded = rounded_to<T>(value);
    return {float(rounded),
            float(fmax(rounded_to<T>(high) - rounded, rounded - rounded_to<T>(low)))};
}

/// What TF32 does to a term of a sum. Tensor cores read 10 bits after the point of each of its
/// factors. Libraries may round them before, by up to 2^-11 of them; else the rest is cut off, up
/// to 2^-10. So the term is multiplied by 1 - c + e, where c is 0, 2^-11 or 2^-10, as none, one or
/// both are cut off, and e is within 2^-10. A sum of such terms shrinks by c, too. The e are
/// independent, and each has the sign of a random weight (or of a number of a table): they add in
/// quadrature. Beside 2^-10 this counts the product of both errors, and fp32's rounding of a
/// feature or of a folded weight.
template <class T>
inline constexpr double kTf32 = std::is_same_v<T, float> ? 0x1.002p-10 : 0;

/// x W + b in fp64, before the activation. A right kernel differs by errors that are bounded
/// whatever the data, such as those of its fp32 sum; and by errors of its inputs and of reading
/// TF32. The latter are as good as independent: with random weights they add in quadrature.
struct DlrmSum {
    double value, certain, quadrature;

    /// How far off it may be: a sum of independent errors within their bounds is larger than 8
    /// times the quadrature once in 10^13 (Hoeffding's inequality; see largest_product()).
    __host__ __device__ double error() const { return certain + 8 * quadrature; }
    /// What the next layer reads: max(0, this), rounded.
    template <class T>
    __host__ __device__ Stored relu() const {
        const double d = certain + quadrature;
        return stored<T>(fmax(value, 0.0), fmax(value - d, 0.0), fmax(value + d, 0.0));
    }
};

/// A sum of terms in fp64 as it grows, and how far off a right kernel may be.
template <class T>
struct DlrmTerms {
    const double first;  // what it begins with, exact
    Product sum{first, fabs(first)};
    float squares = 0;  // of the terms' errors

    __device__ void add(double term, float error) {
        sum.value += term;
        sum.magnitude += fabs(term);
        squares += error * error;
        if constexpr (std::is_same_v<T, float>) {
            const float read = float(kTf32<T>) * float(term);
            squares += read * read;
        }
    }
    /// `count`: how many numbers the kernel adds up in fp32.
    __device__ DlrmSum end(size_t count) const {
        return {sum.value, accumulation_error(sum, count) + kTf32<T> * fabs(sum.value - first),
                sqrt(double(squares))};
    }
};

/// The inputs of a layer, for row i of those that are checked: numbers of the samples ...
template <class T>
struct DlrmDense {
    const T* x;          // [N, kDense]
    const size_t* rows;  // [checked rows]
    __device__ Stored operator()(size_t i, size_t k) const {
        return {float(x[rows[i] * DlrmShape::kDense + k]), 0};
    }
};
/// ... or what a reference kernel has stored.
struct DlrmStored {
    const Stored* data;
    size_t pitch;  // elements from row to row
    __device__ Stored operator()(size_t i, size_t k) const { return data[i * pitch + k]; }
};
/// One thread per element: sums[i, j] = (in W)[i, j] + b[j], and what the next layer reads of it.
template <class In, class T>
__global__ void reference_layer(In in, const T* W, const T* b, DlrmSum* sums, Stored* next,
                                size_t next_pitch, size_t first, size_t count, size_t K, size_t N) {
    const size_t i = first + size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= first + count || j >= N) return;
    DlrmTerms<T> terms{double(float(b[j]))};
    for (size_t k = 0; k < K; ++k) {
        const Stored x = in(i, k);
        const float w = float(W[k * N + j]);
        terms.add(double(x.value) * double(w), x.error * w);
    }
    const DlrmSum found = terms.end(K + 1);
    if (sums) sums[i * N + j] = found;
    if (next) next[i * next_pitch + j] = found.template relu<T>();
}

/// The same where the inputs are the outer product of z with itself, without `next`. An error of z
/// goes into a feature, and there the product may round to a neighbor.
///
/// `folded`, in fp16 alone: the same sums of a kernel that multiplies z_i z_j by W_ij + W_ji,
/// rounded to fp16: off by 2^-11 of the sum. Such errors are independent, and so are the signs of
/// W_ij and W_ji. So in quadrature it is as if each of the two features were off by 2^-11. (Sums
/// too small for 11 bits are exact: both terms are multiples of 2^-24.)
template <class T>
__global__ void reference_outer(const Stored* z, const T* W, const T* b, DlrmSum* sums,
                                DlrmSum* folded, size_t first, size_t count, size_t width,
                                size_t N) {
    constexpr Format format = kFormat<T>;
    constexpr float kRoundoff = float(format.roundoff), kSubnormal = float(format.subnormal);
    const size_t i = first + size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= first + count || j >= N) return;
    DlrmTerms<T> terms{double(float(b[j]))};
    float squares_folded = 0;
    for (const Stored *x = &z[i * width], *end = x + width; x < end; ++x)
        for (const Stored* y = &z[i * width]; y < end; ++y) {
            const float product = float(T(x->value * y->value));  // of halfs exact, then rounded
            float error = 0;
            if (x->error > 0 || y->error > 0)
                error = fabsf(x->value) * y->error + (fabsf(y->value) + y->error) * x->error +
                        2 * kRoundoff * fabsf(product) + 2 * kSubnormal;
            const float w = float(W[j]), more = (error + kRoundoff * fabsf(product)) * w;
            terms.add(double(product) * double(w), error * w);
            squares_folded += more * more;
            W += N;
        }
    sums[i * N + j] = terms.end(width * width + 1);
    terms.squares = squares_folded;
    if (folded) folded[i * N + j] = terms.end(width * width + 1);
}
/// One thread per element: what the next layer reads of such sums.
template <class T>
__global__ void reference_relu(const DlrmSum* sums, Stored* next, size_t first, size_t count) {
    const size_t e = first + size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (e < first + count) next[e] = sums[e].template relu<T>();
}

/// One thread per number of z: the tables' rows behind what the bottom MLP left in z.
template <class T>
__global__ void reference_gather(const uint32_t* ids, const T* tables, const size_t* rows,
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
template <class T>
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
    DlrmTerms<T> terms{0};
    for (size_t e = 0; e < E; ++e) {
        const Stored x = own[a * E + e], y = own[b * E + e];
        terms.add(double(x.value) * double(y.value),
                  fabsf(x.value) * y.error + (fabsf(y.value) + y.error) * x.error);
    }
    const DlrmSum found = terms.end(E);
    const double d = found.certain + found.quadrature;
    features[f] = stored<T>(found.value, found.value - d, found.value + d);
}

/// The top MLP's first layer: relu(features W + b), stored as T.
template <class T>
struct ExpectDlrmHidden {
    const DlrmSum* sums;  // [checked rows, kHidden]
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        const DlrmSum sum = sums[i * DlrmShape::kHidden + column];
        constexpr Format format = kFormat<T>;
        return {fmax(sum.value, 0.0),
                sum.error() + format.roundoff * fabs(sum.value) + format.subnormal};
    }
};
/// The model's output: sigmoid(sum), where the sum is stored as T before. The sigmoid's slope is at
/// most 1/4, and itself it is computed to 2^-20.
template <class T>
struct ExpectDlrm {
    const DlrmSum* sums;  // [checked rows]
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t) const {
        const double v = sums[i].value, value = 1 / (1 + exp(-v));
        constexpr Format format = kFormat<T>;
        const double error = sums[i].error() + format.roundoff * fabs(v) + format.subnormal;
        return {value, error / 4 + (0x1p-20 + format.roundoff) * value + format.subnormal};
    }
};

// --- The problem --------------------------------------------------------------------------------

/// Random inputs, the output, and the fp64 reference.
template <class T>
class Dlrm {
  public:
    explicit Dlrm(Session& session) : Dlrm(session, DlrmShape::of(session.options), false) {}
    /// `folds`: some kernels add up W_ij and W_ji. In fp16 the reference then knows two bounds.
    Dlrm(Session& session, const DlrmShape& shape, bool folds)
        : shape(shape),
          x(session, "dense", {shape.N, DlrmShape::kDense}, {.hard = hard_operand()}),
          ids(session, "ids", {shape.N, DlrmShape::kTables},
              {.then = session.options.choice("--ids") == "zipf" ? Then::kZipf : Then::kNothing}),
          tables(session, "tables", {DlrmShape::kTables, DlrmShape::kRows, shape.E}),
          bottom{Layer(session, "bottom1", DlrmShape::kDense, 512),
                 Layer(session, "bottom2", 512, 256), Layer(session, "bottom3", 256, 64),
                 Layer(session, "bottom4", 64, shape.E)},
          top{Layer(session, "top1", shape.features, DlrmShape::kHidden),
              Layer(session, "top2", DlrmShape::kHidden, 256), Layer(session, "top3", 256, 1)},
          out(session, "out", {shape.N, 1}),
          hidden(shape.N, DlrmShape::kHidden),
          rows_(CheckedRows::some(shape.N, SIZE_MAX, SIZE_MAX, session.options.seed)),
          a_(rows_.size(), 512),
          b_(rows_.size(), 256),
          z_(rows_.size(), shape.width),
          features_(shape.dot ? rows_.size() : 1, shape.dot ? shape.features : 1),
          exact_(rows_.size()),
          folded_(folds && kSumsRound ? rows_.size() : 1),
          folds_(folds && kSumsRound) {
        compute(0, rows_.compared);
    }

    /// How to verify `hidden` and `out`. Errors average out on the way from one to the other, so a
    /// wrong `hidden` may not show in `out`. `folded`: for a kernel that adds up W_ij and W_ji.
    /// Must not outlive the object.
    Check check(bool folded = false) const {
        const Sums& sums = folded && kSumsRound ? folded_ : exact_;
        const Check first = check_of(hidden.data(), shape.N, DlrmShape::kHidden, rows_,
                                     ExpectDlrmHidden<T>{sums.hidden.data()}, largest());
        return in_turn(first, "the top MLP's first layer",
                       out.check(rows_, ExpectDlrm<T>{sums.out.data()}, 1,
                                 [this] { compute(rows_.compared, rows_.kSpots); }));
    }

    /// Two operations per weight and sample, and the interaction's. A sample needs 26 rows of the
    /// tables; other inputs are read whole.
    Workload workload(const Session& session) const {
        double weights = 0;
        for (const Layer& layer : bottom) weights += double(layer.K) * double(layer.N);
        for (const Layer& layer : top) weights += double(layer.K) * double(layer.N);
        const double interaction =
            shape.dot ? 2.0 * double(DlrmShape::kPairs * shape.E) : double(shape.features);
        const size_t gathered = saturating_product(shape.N, DlrmShape::kTables, shape.E, sizeof(T));
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
    size_t lookup_bytes() const {
        return shape.N * DlrmShape::kTables * (sizeof(uint32_t) + 2 * sizeof(T) * shape.E);
    }

    /// What the top MLP's first layer reads and writes beside its features.
    size_t hidden_bytes() const { return top[0].W.bytes() + top[0].b.bytes() + hidden.bytes(); }

    using Layer = DlrmLayer<T>;
    const DlrmShape shape;
    const Input<T> x;           // [N, kDense]
    const Input<uint32_t> ids;  // [N, kTables]
    const Input<T> tables;      // [kTables, kRows, E]
    const Layer bottom[4], top[3];
    const Output<T> out;     // [N, 1]
    const Buffer<T> hidden;  // [N, kHidden]: the top MLP's first layer, which every kernel stores

  private:
    /// Whether W_ij + W_ji is rounded to more than TF32's error has room for.
    static constexpr bool kSumsRound = std::is_same_v<T, half>;
    struct Sums {  // of the layers that are verified, for the checked rows
        Buffer<DlrmSum> hidden, out;
        explicit Sums(size_t rows) : hidden(rows, DlrmShape::kHidden), out(rows) {}
    };

    /// No element of `hidden` is larger: |z| <= 1 but for the bottom MLP's E numbers, which may be
    /// a few times kHardScale.
    double largest() const {
        return 100 * kHardScale * kHardScale * largest_product(1, 1) * std::sqrt(double(shape.E));
    }

    /// The reference for `count` of the checked rows.
    void compute(size_t first, size_t count) const {
        if (dry_run) return;
        const size_t width = shape.width;
        Stored *const a = a_.data(), *const b = b_.data(), *const z = z_.data();
        auto layer = [=](const Layer& layer, auto in, Stored* next, size_t pitch, DlrmSum* sums) {
            const dim3 block(layer.N < 32 ? 4 : 32, 8);
            const dim3 grid((count + 7) / 8, (layer.N + block.x - 1) / block.x);
            reference_layer<<<grid, block>>>(in, layer.W.data(), layer.b.data(), sums, next, pitch,
                                             first, count, layer.K, layer.N);
        };
        auto rest = [=, this](const Sums& sums) {  // the top MLP's other layers
            const size_t columns = DlrmShape::kHidden, size = count * columns;
            reference_relu<T>
                <<<(size + 255) / 256, 256>>>(sums.hidden.data(), a, first * columns, size);
            layer(top[1], DlrmStored{a, columns}, b, 256, nullptr);
            layer(top[2], DlrmStored{b, 256}, nullptr, 0, sums.out.data());
        };
        layer(bottom[0], DlrmDense<T>{x.data(), rows_.data()}, a, 512, nullptr);
        layer(bottom[1], DlrmStored{a, 512}, b, 256, nullptr);
        layer(bottom[2], DlrmStored{b, 256}, a, 64, nullptr);
        layer(bottom[3], DlrmStored{a, 64}, z, width, nullptr);
        reference_gather<<<(count * width + 255) / 256, 256>>>(
            ids.data(), tables.data(), rows_.data(), z, first, count, shape.E);
        if (shape.dot) {
            reference_dot<T><<<(count * shape.features + 255) / 256, 256>>>(z, features_.data(),
                                                                            first, count, shape.E);
            layer(top[0], DlrmStored{features_.data(), shape.features}, nullptr, 0,
                  exact_.hidden.data());
        } else {
            const size_t columns = DlrmShape::kHidden;
            reference_outer<<<dim3((count + 7) / 8, columns / 32), dim3(32, 8)>>>(
                z, top[0].W.data(), top[0].b.data(), exact_.hidden.data(),
                folds_ ? folded_.hidden.data() : nullptr, first, count, width, columns);
        }
        rest(exact_);
        if (folds_) rest(folded_);
        DEMO_CHECK(cudaGetLastError());
    }

    CheckedRows rows_;
    // Of the checked rows: what the layers leave in turn, z, dot products.
    Buffer<Stored> a_, b_, z_, features_;
    Sums exact_, folded_;
    bool folds_;
};

}  // namespace demo
