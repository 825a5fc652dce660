// Bonus: one layer on several GPUs: out = (sigmoid(x W1 + b1) * (x W2 + b2)) W3, as the MLPs of
// large language models are, in fp16, with x[N, N], W1[N, H], W2[N, H], W3[H, N].
//
// Each GPU g has x, its columns of W1 and W2, and the same rows of W3. With those it computes its
// columns of the gates, and from them a matrix as large as out, which lacks what the others have:
//
//              W1, W2          gates         W3
//            +---+---+       +---+---+     +-------+
//        x   | 0 | 1 |   =   | 0 | 1 |     |   0   |     out = gates0 W3_0   +   gates1 W3_1
//            +---+---+       +---+---+     +-------+               (GPU 0)         (GPU 1)
//                                          |   1   |
//                                          +-------+           the sum: an all-reduce
//
// The sum, on all GPUs, is the price of tensor parallelism: 2 (G - 1) / G of out's bytes out of
// each GPU, while it computes 6 N^2 H / G operations: docs/bonuses/gating_gpus.md.
//
// What limits it: the sum, as far as it is not hidden behind the product; and power.
//
//     ./bonus_gating_gpus 4096        ./bonus_gating_gpus 8192 --hidden 32768 --gpus 2
//     srun -n 2 --gpus-per-task 1 ./bonus_gating_gpus 4096 --meet node1:29500
#include <span>

#include "demo.cuh"
#include "demo/choose.cuh"
#include "demo/cublaslt.cuh"
#include "gating/gating_hopper.cuh"
#include "gating/unfused.cuh"
#include "gpus/gated_layer.cuh"
#include "gpus/product_exchanged.cuh"

namespace gating_gpus {

using demo::Share;
using exchange_hopper::kBlockM, exchange_hopper::fill_identity;

/// What a GPU has of the layer, and the memory between its kernels.
struct Rank {
    const demo::GatedCopy copy;
    const demo::GatedLayer& l = copy.layer;
    const size_t N = l.N, H = l.H;
    const Share columns, rows;            // of W1 and W2 (and rows of W3), of x
    const demo::Buffer<half> W1, W2, W_;  // [N, columns], and beside each other
    const demo::Buffer<half> b_, t_;      // of library_best: both biases, and [N, 2 columns]
    const demo::Buffer<half> gates;       // [N, columns], or some rows of [N, H]
    const demo::Buffer<half> partials;    // of overlapped: what each GPU has left here, [N, N] each
    const demo::Buffer<int> signals;      // and that it has, see exchange_hopper::Peers
    const demo::Buffer<half> identity;    // which adds them
    const demo::Cublas cublas;
    const demo::CublasLt lt;

    Rank(demo::Session& session, const demo::GatedShape& shape, const demo::Gpus& gpus, int i)
        : copy(session, shape, gpus.device(i)),
          columns(Share::of(H, gpus.first + i, gpus.size, 8)),
          rows(Share::of(N, gpus.first + i, gpus.size)),
          W1(N, columns.count),
          W2(N, columns.count),
          W_(N, 2 * columns.count),
          b_(2 * columns.count),
          t_(N, 2 * columns.count),
          gates(N, H),
          partials(gpus.size * N, N),
          signals(gpus.size, exchange_hopper::signals(N, N)),
          identity(kBlockM, kBlockM) {
        DEMO_CHECK(cudaMemset(signals.data(), 0, signals.bytes()));
        if (!demo::dry_run) fill_identity<<<kBlockM, kBlockM>>>(identity.data());
    }

    const half* W3() const { return &l.W3.data()[columns.first * N]; }
    half* out(Share rows) const { return &l.out.data()[rows.first * N]; }

    /// Cuts its columns out of the weights, as a layer would once, when it is loaded.
    void cut() const {
        const size_t width = columns.count * sizeof(half), first = columns.first;
        auto copy = [&](half* to, size_t pitch, const half* from, size_t rows) {
            DEMO_CHECK(cudaMemcpy2D(to, pitch, from + first, H * sizeof(half), width, rows,
                                    cudaMemcpyDeviceToDevice));
        };
        copy(W1.data(), width, l.W1, N), copy(W2.data(), width, l.W2, N);
        copy(W_.data(), 2 * width, l.W1, N), copy(&W_.data()[columns.count], 2 * width, l.W2, N);
        copy(b_.data(), width, l.b1, 1), copy(&b_.data()[columns.count], width, l.b2, 1);
    }

    /// What launches our kernel for the gates of its columns, for all rows of x.
    std::function<void()> gate_columns(const demo::Gpu& gpu) const {
        return gate(gpu, {l.x, W1.data(), &l.b1.data()[columns.first], W2.data(),
                          &l.b2.data()[columns.first], gates.data(), N, N, columns.count});
    }
    /// The same for `rows` of x and all columns.
    std::function<void()> gate_rows(const demo::Gpu& gpu, Share rows) const {
        return gate(gpu, {&l.x.data()[rows.first * N], l.W1, l.b1, l.W2, l.b2, gates.data(),
                          rows.count, N, H});
    }
    /// The same by the library, in two launches: one gemm for both weights, and the gates.
    std::function<void()> gate_columns_by_library() const {
        const size_t C = columns.count;
        const demo::LtProduct<half> product{l.x, W_.data(), t_.data(), N, N, 2 * C, b_.data()};
        const auto gemm = std::make_shared<demo::LtGemm<half>>(lt, product);
        using namespace gating_unfused;
        const dim3 block{kColumns / 8, kRows};
        const dim3 grid((N + kRows - 1) / kRows, (C + kColumns - 1) / kColumns);
        return [=, this] {
            (*gemm)();
            sigmoid_multiply<<<grid, block>>>(t_.data(), t_.data() + C, 2 * C, gates.data(), N, C);
        };
    }

    /// out[M, N] = gates[M, K] W[K, N], all row-major, by cuBLAS.
    void multiply(const half* gates, const half* W, half* out, size_t M, size_t K) const {
        const float one = 1, zero = 0;
        DEMO_CHECK(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, int(N), int(M), int(K), &one, W,
                                CUDA_R_16F, int(N), gates, CUDA_R_16F, int(K), &zero, out,
                                CUDA_R_16F, int(N), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }

  private:
    static std::function<void()> gate(const demo::Gpu& gpu, const demo::GatingOperands& operands) {
        return hopper::why_not(gpu).empty()
                   ? gating_hopper::prepare_fastest(operands, gpu, true).launch
                   : gating_mma::prepare_fused_mma(operands, gpu);
    }
};

class Layer {
  public:
    explicit Layer(demo::Session& session)
        : session_(session),
          gpus_(session),
          shape_(demo::GatedShape::of(session.options, gpus_.size)) {
        session.largest = [this](double value) { return gpus_.largest(value); };
        gpus_.each([&](int i) {
            ranks_.push_back(std::make_unique<Rank>(session, shape_, gpus_, i));
            if (!demo::dry_run) ranks_[i]->cut();
        });
    }

    void run() {
        const std::map<std::string, double> medians = session_.run(
            shape_.workload(), check(false),
            {one_gpu(), library_best(), fused(), chunked(), overlapped(), row_split()});
        const demo::Options& o = session_.options;
        const bool all = !o.once && !o.csv && o.kernels.empty();
        if (!demo::kSimulator && !demo::dry_run && all && gpus_.size > 1) explain(medians);
    }

    // --- one_gpu: what the others are compared with ---------------------------------------------
    // fused_hopper (or on other GPUs fused_mma) for the gates, and cuBLAS's product with W3.

    demo::Contender one_gpu() const {
        auto setup = [this](demo::Contender& self) { self.launch = on_one(); };
        return {.kernel = "one_gpu",
                .setup = setup,
                .check = with_gates(ranks_[0]->l.check(1, false)),
                .launches = 2,
                .why_not = DEMO_WITHOUT_NCCL};
    }

    // --- library_best: as frameworks do it ------------------------------------------------------
    // Each GPU's columns by one gemm of cuBLASLt and a kernel for the gates; then as in fused.

    demo::Contender library_best() const {
        auto setup = [this](demo::Contender& self) {
            self.launch = by_columns([](const Rank& r) { return r.gate_columns_by_library(); }, 1);
        };
        demo::Contender c = on_all("library_best", 3, setup, check(true));
        c.role = demo::Role::kLibrary, c.repeatable = false;
        return c;
    }

    // --- Rung 1: fused, one kernel for the gates ------------------------------------------------
    // Adds    to library_best: both products of the gates in one kernel, on each GPU's columns.
    // Costs   an all-reduce. Until it ends, the multiprocessors have little to do.
    // Limits  the all-reduce: 2 (G - 1) / G of out's bytes, at what NVLink gives.
    // Source  Shoeybi et al., "Megatron-LM", 2019, section 3; nccl-tests, PERFORMANCE.md, on what
    //         bus bandwidth is.

    demo::Contender fused() const {
        auto setup = [this](demo::Contender& self) { self.launch = by_columns(ours(), 1); };
        return on_all("fused", 2, setup, check(false));
    }

    // --- Rung 2: chunked, the all-reduce beside the product ------------------------------------
    // Adds    chunks of rows of out. While one is multiplied, NCCL adds up the one before.
    // Costs   NCCL's kernel takes multiprocessors from the product, whose last round of tiles is
    //         longer then; and each chunk ends with a round of its own that may not be full.
    // Limits  both. It pays where a chunk is many rounds of tiles.
    // Source  search for "communication computation overlap tensor parallel".

    demo::Contender chunked() const {
        auto setup = [this](demo::Contender& self) { self.launch = by_columns(ours(), kChunks); };
        return on_all("chunked", 1 + kChunks, setup, check(false));
    }

    // --- Rung 3: overlapped, tiles travel as they are finished (gpus/product_exchanged.cuh) -----
    // Adds    to the product's kernel: its stores. Each GPU owns a part of out's tiles. It first
    //         computes what the owners of the others lack, and stores it in their memory, by TMA.
    //         Then it computes its own tiles, for which the others' parts have come by now, adds
    //         those, as further steps of the product, and stores the sum in out of all GPUs.
    // Costs   memory for the parts; and the GPUs must reach each other's memory.
    // Limits  the last tiles, which leave when nothing is left to compute: 25 us; and power.
    // Source  search for "fused GEMM reduce-scatter"; CUDA Programming Guide, "Peer-to-peer memory
    //         access"; PTX ISA, "Memory consistency model", on scope .sys.

    demo::Contender overlapped() const {
        auto setup = [this](demo::Contender& self) { self.launch = by_tiles(); };
        demo::Contender c = on_all("overlapped", 2, setup, check(false));
        if (c.why_not.empty()) c.why_not = hopper::why_not(session_.gpu);
        if (c.why_not.empty()) c.why_not = gpus_.why_not_peers();
        return c;
    }

    // --- row_split: the other way to divide it --------------------------------------------------
    // Each GPU has all weights, and computes some rows of out. Nothing is exchanged.

    demo::Contender row_split() const {
        auto setup = [this](demo::Contender& self) {
            const auto gates =
                prepare([this](const Rank& r) { return r.gate_rows(session_.gpu, r.rows); });
            self.launch = [=, this] {
                gpus_.launch([&] {
                    gpus_.each([&](int i) {
                        const Rank& r = *ranks_[i];
                        gates[i]();
                        r.multiply(r.gates.data(), r.l.W3, r.out(r.rows), r.rows.count, r.H);
                    });
                });
            };
        };
        // To be verified, each GPU gets the rows of the others.
        demo::Check gathered = check(false);
        auto gather = [this] {
            gpus_.all_gather([this](int i) { return ranks_[i]->l.out.data(); }, N, N);
        };
        gathered.verify = [=, verify = gathered.verify] { return gather(), verify(); };
        gathered.note = [=, note = gathered.note](auto... launch) { gather(), note(launch...); };
        return on_all("row_split", 2, setup, gathered);
    }

  private:
    static constexpr int kChunks = demo::kSimulator ? 3 : 4;

    using Launch = std::function<void()>;
    using Prepare = std::function<Launch(const Rank&)>;

    /// A contender that runs on all GPUs: so many launches on each.
    demo::Contender on_all(const std::string& name, size_t launches,
                           std::function<void(demo::Contender&)> setup,
                           const demo::Check& check) const {
        return {.kernel = name,
                .setup = setup,
                .check = check,
                .launches = launches * gpus_.size,
                .why_not = DEMO_WITHOUT_NCCL,
                .gpus = gpus_.size,
                .prepare = [this] { gpus_.prepare(); },
                .renew = [this] { gpus_.each([&](int i) { ranks_[i]->cut(); }); }};
    }

    /// The gates of each GPU's columns; then the product with its rows of W3, in chunks of rows of
    /// out. A chunk's all-reduce runs beside the next chunk's product.
    Launch by_columns(const Prepare& gate, int chunks) const {
        const auto gates = prepare(gate);
        return [=, this] {
            auto multiply_chunk = [&](Share rows) {
                gpus_.each([&](int i) {
                    const Rank& r = *ranks_[i];
                    const half* const chunk = &r.gates.data()[rows.first * r.columns.count];
                    r.multiply(chunk, r.W3(), r.out(rows), rows.count, r.columns.count);
                });
            };
            gpus_.launch([&] {
                gpus_.each([&](int i) { gates[i](); });
                for (int c = 0; c < chunks; ++c) {
                    multiply_chunk(Share::of(N, c, chunks));
                    all_reduce(Share::of(N, c, chunks));
                }
            });
        };
    }
    /// The gates of each GPU's columns, and the product that exchanges its tiles.
    Launch by_tiles() const {
        const auto gates = prepare(ours());
        std::vector<std::function<void(int, int)>> products;
        gpus_.each([&](int i) {
            const Rank& r = *ranks_[i];
            products.push_back(exchange_hopper::prepare_exchanged(
                r.gates.data(), r.W3(), peers_of(i), N, r.columns.count, N));
        });
        // The simulator runs one kernel after the other, and none may wait for a later one.
        static constexpr int kBoth[] = {-1}, kOneByOne[] = {0, 1};
        const std::span<const int> phases =
            demo::kSimulator ? std::span<const int>(kOneByOne) : kBoth;
        return [=, this] {
            ++launches_;
            gpus_.launch([&] {
                gpus_.each([&](int i) { gates[i](); });
                for (const int phase : phases)
                    gpus_.each([&](int i) { products[i](phase, launches_); });
            });
        };
    }
    exchange_hopper::Peers peers_of(int i) const {
        exchange_hopper::Peers peers{};
        peers.rank = i, peers.gpus = gpus_.size;
        peers.identity = hopper::tensor_map(ranks_[i]->identity.data(), kBlockM, kBlockM, kBlockM);
        for (int other = 0; other < gpus_.size; ++other) {
            const Rank &here = *ranks_[i], &there = *ranks_[other];
            const size_t signals = exchange_hopper::signals(N, N);
            peers.out[other] = hopper::tensor_map(there.l.out.data(), N, N, 16);
            peers.partials[other] = hopper::tensor_map(&there.partials.data()[i * N * N], N, N, 16);
            peers.announced[other] = &there.signals.data()[i * signals];
            peers.received[other] = hopper::tensor_map(&here.partials.data()[other * N * N], N, N,
                                                       exchange_hopper::kBlockK);
            peers.arrived[other] = &here.signals.data()[other * signals];
        }
        return peers;
    }
    Prepare ours() const {
        return [this](const Rank& r) { return r.gate_columns(session_.gpu); };
    }
    Launch on_one() const {
        const Rank& r = *ranks_[0];
        const Launch gate = r.gate_rows(session_.gpu, {0, N});
        return [&r, gate] {
            gate();
            r.multiply(r.gates.data(), r.l.W3, r.l.out, r.N, r.H);
        };
    }
    std::vector<Launch> prepare(const Prepare& of) const {
        std::vector<Launch> launches;
        gpus_.each([&](int i) { launches.push_back(of(*ranks_[i])); });
        return launches;
    }

    void all_reduce(Share rows) const {
        gpus_.all_reduce([&](int i) { return ranks_[i]->out(rows); }, rows.count * N);
    }

    /// Says how busy the GPUs are, what the all-reduce costs, and how much of it is hidden.
    void explain(std::map<std::string, double> ms) const {
        const int G = gpus_.size;
        const std::string best = ms["overlapped"] > 0 ? "overlapped" : "chunked";
        if (ms["one_gpu"] == 0 || ms["fused"] == 0 || ms[best] == 0) return;  // one was wrong
        auto efficiency = [&](const std::string& kernel) {
            const double efficiency = ms["one_gpu"] / (G * ms[kernel]);
            return kernel + " " + std::to_string(int(100 * efficiency + 0.5)) + "%";
        };
        session_.note("one_gpu / (" + std::to_string(G) + " x time): " + efficiency("fused") +
                      ", " + efficiency(best));
        const double bytes = 2.0 * double(N) * double(N), sent = 2 * (G - 1) * bytes / G,
                     alone = demo::quick_time([this] {
                         gpus_.launch([this] { all_reduce({0, N}); });
                     });
        session_.note("all-reduce of " + demo::human_bytes(bytes) + ": " +
                      demo::significant(alone, 3) + " ms alone, " +
                      std::to_string(int(sent / alone / 1e6 + 0.5)) + " GB/s of bus bandwidth;");
        session_.note("of it " + best + " hides " +
                      demo::significant(std::max(0.0, ms["fused"] - ms[best]), 3) +
                      " ms: so much sooner than fused it ends");
    }

    /// A check of out on all GPUs.
    demo::Check check(bool rounded_sums) const {
        std::vector<demo::Check> checks;
        gpus_.each([&](int i) { checks.push_back(ranks_[i]->l.check(shape_.gpus, rounded_sums)); });
        return with_gates(gpus_.on_all(checks));
    }
    /// The same check, which also overwrites the gates, so that none is left from a launch before.
    demo::Check with_gates(demo::Check check) const {
        check.others = [this, others = check.others](int byte) {
            if (others) others(byte);
            gpus_.each([&](int i) {
                const demo::Buffer<half>& gates = ranks_[i]->gates;
                DEMO_CHECK(cudaMemsetAsync(gates.data(), byte, gates.bytes()));
            });
        };
        return check;
    }

    demo::Session& session_;
    const demo::Gpus gpus_;
    const demo::GatedShape shape_;
    const size_t N = shape_.N;
    std::vector<std::unique_ptr<Rank>> ranks_;
    mutable int launches_ = 0;  // of by_tiles()
};

static void run(demo::Session& session) { Layer(session).run(); }

}  // namespace gating_gpus

int main(int argc, char** argv) {
    demo::program_name = "bonus_gating_gpus";  // complains of the launcher's variables
    demo::processes = demo::Processes::of(argc, argv);
    if (demo::processes.rank > 0 && !std::freopen("/dev/null", "w", stdout))
        return demo::kFailed;  // rank 0 reports for all
    std::vector<demo::Option> options = demo::gpus_options();
    options.insert(options.begin(), demo::hidden_option());
    const demo::Program program{
        .name = "bonus_gating_gpus",
        .summary = "a gated layer on several GPUs: its weights split, the parts added up by NCCL",
        .types = {{"fp16", gating_gpus::run}},
        .n_means = "x and out are N x N",
        .default_n = demo::kSimulator ? 64 : 4096,
        .device = uint64_t(demo::processes.device),
        .options = options,
        .sizes = {4096},  // on all GPUs
        .variants = {"4096 --gpus 2", "8192 --gpus 2", "16384 --hidden 16384 --gpus 2",
                     "4096 --gpus 4", "8192 --gpus 4", "16384 --hidden 16384 --gpus 4"}};
    return demo::main_of(program, argc, argv);
}
