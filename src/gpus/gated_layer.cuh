// The problem of bonus_gating_gpus: out = (sigmoid(x W1 + b1) * (x W2 + b2)) W3, its data on each
// of several GPUs, its bound and its reference.
#pragma once

#include "gating/gating.cuh"
#include "gpus/gpus.cuh"

namespace demo {

/// What the programs take besides N and gpus_options().
inline Option hidden_option() {
    return {.name = "--hidden",
            .help = "H: columns of W1 and W2 (default 4 N)",
            .numbers = Numbers{.first = 128, .multiple = 32},
            .value = "H"};
}

/// x[N, N], W1[N, H], W2[N, H], W3[H, N], out[N, N], on `gpus` GPUs.
struct GatedShape {
    size_t N, H;
    int gpus;
    std::string name;  // what of it is not as usual: "h16384", "g2"

    /// The one that the command line asks for: N, --hidden, and --gpus, as it was given.
    static GatedShape of(const Options& options, int gpus) {
        const bool wide = options.flag("--hidden"), some = options.flag("--gpus");
        const size_t H = wide ? options.number("--hidden") : saturating_product(4, options.n);
        const std::string name =
            (wide ? "h" + std::to_string(H) : "") + (some ? "g" + std::to_string(gpus) : "");
        return {options.n, H, gpus, name.empty() ? "square" : name};
    }

    /// Three products of 2 N^2 H operations.
    Workload workload() const {
        const std::string h = std::to_string(H), g = std::to_string(gpus);
        const size_t elements =
            saturating_sum(saturating_product(2, N, N), saturating_product(3, N, H), 2 * H);
        return {.shape = name,
                .size = N,
                .dtype = "fp16",
                .flops = 6.0 * double(N) * double(N) * double(H),
                .least_bytes = saturating_product(sizeof(half), elements),
                .text = "N = " + std::to_string(N) + ", H = " + h + ", " + g +
                        (gpus > 1 ? " GPUs" : " GPU"),
                .arithmetic = "fp32 sums"};
    }
};

/// An element of sigmoid(x W1 + b1) * (x W2 + b2), and how far off a right kernel may be that
/// rounds to fp16 [0] once, [1] also before the sigmoid.
struct Gate {
    double value, error[2];
};

/// One thread per gate of the checked rows.
__global__ void reference_gates(ExpectGating expect, Gate* gates, size_t first, size_t samples) {
    const size_t i = size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= samples || j >= expect.H) return;
    Gate& gate = gates[(first + i) * expect.H + j];
    for (int sum = 0; sum < 2; ++sum) {
        expect.rounded.sum = sum;
        const Expected expected = expect(first + i, 0, j);
        gate.value = expected.value, gate.error[sum] = expected.tolerance;
    }
}

/// An element of gates W3.
struct GatedElement {
    Product product;
    double partials;    // the sum of |what each GPU has of it|
    double squares[2];  // of the errors that come with the gates, see Gate
};

/// One thread per element of the checked rows: out = gates W3, in fp64 and in the plainest way.
__global__ void reference_gated(const Gate* gates,       // [samples, H]
                                const half* W3,          // [H, N]
                                GatedElement* elements,  // [samples, N]
                                size_t samples, size_t H, size_t N, int gpus) {
    const size_t i = size_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const size_t j = size_t(blockIdx.y) * blockDim.x + threadIdx.x;
    if (i >= samples || j >= N) return;
    GatedElement sum{};
    for (int gpu = 0; gpu < gpus; ++gpu) {
        const Share share = Share::of(H, gpu, gpus, 8);
        double partial = 0;
        for (size_t k = share.first; k < share.first + share.count; ++k) {
            const Gate gate = gates[i * H + k];
            const double w = double(float(W3[k * N + j]));
            partial += gate.value * w;
            sum.product.magnitude += fabs(gate.value * w);
            for (int s = 0; s < 2; ++s) sum.squares[s] += gate.error[s] * gate.error[s] * w * w;
        }
        sum.product.value += partial;
        sum.partials += fabs(partial);
    }
    elements[i * N + j] = sum;
}

/// The element that the layer must produce. Errors of different gates are independent, so they add
/// up as the root of the sum of their squares. Each is a maximum, not an average, so four times the
/// root is some 7 standard deviations. Each GPU rounds its partial sum to fp16, and each addition
/// rounds: `gpus` roundings of no more than the sum of the |partial sums|.
struct ExpectGated {
    const GatedElement* elements;  // [checked rows, N] row-major
    size_t N, H;
    int gpus;  // whose partial sums were added up
    bool rounded_sums;
    DEMO_HOST_DEVICE Expected operator()(size_t i, size_t, size_t column) const {
        const GatedElement& e = elements[i * N + column];
        const double rounded = gpus == 1 ? fabs(e.product.value) : gpus * e.partials;
        return {e.product.value, 4 * sqrt(e.squares[rounded_sums]) +
                                     accumulation_error(e.product, H) + kFp16.roundoff * rounded +
                                     2 * gpus * kFp16.subnormal};
    }
};

/// The layer on one GPU: random inputs, an output, and the fp64 reference. The weights are scaled
/// so that the gates and out stay below 1 on average.
class GatedLayer {
  public:
    GatedLayer(Session& session, const GatedShape& shape)
        : shape(shape),
          x(session, "x", {N, N}, {.hard = hard_operand(1, kHardGating)}),
          W1(session, "W1", {N, H}, {.scale = scale(N)}),
          W2(session, "W2", {N, H}, {.scale = scale(N)}),
          b1(session, "b1", {H}),
          b2(session, "b2", {H}),
          W3(session, "W3", {H, N}, {.scale = scale(H)}),
          out(session, "out", {N, N}),
          rows_(CheckedRows::some(N, 2 * H + N, saturating_product(3, N, H), session.options.seed)),
          products1_(x.data(), W1.data(), rows_, N, H),
          products2_(x.data(), W2.data(), rows_, N, H),
          gates_(rows_.size(), H),
          elements_(rows_.size(), N) {
        compute(0, rows_.compared);
    }

    /// How to verify `out`. `gpus`: how many GPUs' sums are added up. `rounded_sums`: x W + b is
    /// rounded to fp16. Must not outlive the object.
    Check check(int gpus, bool rounded_sums) const {
        const ExpectGated expect{elements_.data(), N, H, gpus, rounded_sums};
        return out.check(rows_, expect, kHardGating * largest_product(H, scale(H)), [this] {
            products1_.renew(), products2_.renew();
            compute(rows_.compared, rows_.kSpots);
        });
    }

    const GatedShape shape;
    const size_t N = shape.N, H = shape.H;
    const Input<half> x, W1, W2, b1, b2, W3;
    const Output<half> out;

  private:
    static float scale(size_t terms) { return std::sqrt(3.0f / float(terms)); }

    void compute(size_t first, size_t samples) const {
        if (dry_run) return;
        const dim3 block(32, 8);
        auto grid = [&](size_t columns) {
            return dim3((samples + block.y - 1) / block.y, (columns + block.x - 1) / block.x);
        };
        const ExpectGating gating{products1_.data(), products2_.data(), b1, b2, N, H, {}};
        reference_gates<<<grid(H), block>>>(gating, gates_.data(), first, samples);
        reference_gated<<<grid(N), block>>>(
            gates_.data() + first * H, W3, elements_.data() + first * N, samples, H, N, shape.gpus);
        DEMO_CHECK(cudaGetLastError());
    }

    CheckedRows rows_;
    ProductReference products1_, products2_;
    Buffer<Gate> gates_;             // [rows, H]
    Buffer<GatedElement> elements_;  // [rows, N]
};

/// The layer on the current one of several GPUs. It has the same data there, since it numbers its
/// own arrays; `session` registers them, too, and so fills and compares them.
class GatedCopy : private Session {
  public:
    GatedCopy(Session& session, const GatedShape& shape, int device)
        : Session(session.program, session.options, session.gpu, nullptr), layer(*this, shape) {
        for (const Array& array : arrays) {
            Array there = array;
            there.refill = [=](const Fill& fill) {
                const OnGpu here(device);
                array.refill(fill);
            };
            there.compare = [=](const Fill& fill, Verdict* verdict) {
                const OnGpu here(device);
                const DeviceVerdict found;
                found.reset();
                array.compare(fill, found.data());
                const Verdict host = found.get();
                DEMO_CHECK(cudaMemcpy(verdict, &host, sizeof host, cudaMemcpyHostToDevice));
            };
            registered_.push_back(std::make_unique<Registered>(session, there));
        }
    }
    const GatedLayer layer;

  private:
    std::vector<std::unique_ptr<Registered>> registered_;
};

}  // namespace demo
