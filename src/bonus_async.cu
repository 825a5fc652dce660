// Bonus: the host does not wait for the GPU. It puts launches into a queue, and copies to and from
// pinned memory, too. So the host, copies and kernels can all be busy at the same time:
//
//     host   launch launch launch ...            launch        launch        ...
//     GPU           kernel kernel kernel ...            kernel        kernel
//                   the host is ahead                   ... unless it reads a value of each
//
// --show launches: N kernels, each of which computes a row from the row before, and little else
//   one_by_one   launched one after the other. Of 1000 kernels, ms are us a launch
//   graph        recorded once, and launched as one
//   dependent    each starts while the one before ends (Hopper)
//   read_each    the host reads a value of each, as to print a loss, or as item() does
// --show copies: a matrix of the host's goes to the GPU, through a kernel, and back
//   pageable     in memory from malloc: the driver has to copy it once more
//   pinned       in memory that the GPU's copy engines read and write by themselves
//   overlapped   in chunks, on streams: one comes, one is computed, one goes, all at the same time
//
//     ./bonus_async        ./bonus_async 4096 --show copies      scripts/profile.sh bonus_async 100
//
// What limits it: the host, at some microseconds a launch; the bus. See docs/experiments/async.md.
#include "demo.cuh"
#include "demo/choose.cuh"
#include "demo/graph.cuh"
#include "demo/range.hpp"
#include "hopper.cuh"
#include "rows/rows.cuh"

namespace async {

/// Host memory that the GPU's copy engines reach by themselves: pinned, so that it stays in place.
template <class T>
class PinnedBuffer {
  public:
    explicit PinnedBuffer(size_t size) : size_(size) {
        demo::plan_on_host(bytes());
        DEMO_CHECK(cudaMallocHost(&data_, bytes()));
    }
    ~PinnedBuffer() {
        if (data_) cudaFreeHost(data_);
    }
    PinnedBuffer(const PinnedBuffer&) = delete;

    T* data() const { return data_; }
    size_t bytes() const { return demo::saturating_product(size_, sizeof(T)); }

  private:
    T* data_ = nullptr;
    size_t size_;
};

constexpr float kDecay = 0.999f, kGain = 0.001f;

/// Each step brings v nearer to 1, in four cycles: it waits for the one before.
__global__ void approach_one(float* v, size_t size, int steps) {  // [size]
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float value = v[i];
    for (int step = 0; step < steps; ++step) value = kDecay * value + kGain;
    v[i] = value;
}

// --- Launches -----------------------------------------------------------------------------------

constexpr int kRow = 1024;  // numbers; a thread for each

/// A row of out: the one before (x, if there is none), turned by one place and made smaller.
__global__ void next_row(const float* x,  // [kRow]
                         float* out,      // [N, kRow]
                         size_t row) {
    hopper::griddepcontrol_launch_dependents();  // the next launch may start
    hopper::griddepcontrol_wait();               // the one before is done, and has written its row
    const float* const from = row == 0 ? x : &out[(row - 1) * kRow];
    out[row * kRow + threadIdx.x] = kDecay * from[(threadIdx.x + 1) % kRow];
}

struct ExpectRow {
    const float* x;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double steps = double(row + 1), decay = pow(double(kDecay), steps);
        const double value = decay * x[(row + 1 + col) % kRow];
        return {value, 2 * steps * 0x1p-24 * fabs(value) + 0x1p-126};  // each step rounds
    }
};

static void launches(demo::Session& session) {
    const size_t N = session.n(), one = sizeof(float);
    const demo::Input<float> x(session, "x", {1, kRow});
    const demo::Output<float> out(session, "out", {N, kRow});
    const PinnedBuffer<float> values(N);
    float *const rows = out, *const read = values.data();
    auto launch = [&](size_t row, cudaStream_t stream = nullptr, bool early = false) {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(1), config.blockDim = dim3(kRow), config.stream = stream;
        config.attrs = &attribute, config.numAttrs = early;
        cudaLaunchKernelEx(&config, next_row, x.data(), rows, row);  // as <<<1, kRow, 0, stream>>>
    };
    auto launch_all = [&](cudaStream_t stream = nullptr, bool early = false) {
        for (size_t row = 0; row < N; ++row) launch(row, stream, early);
    };
    auto record = [&](demo::Contender& self) {
        const auto graph = std::make_shared<demo::Graph>([&](auto stream) { launch_all(stream); });
        self.launch = [graph] { (*graph)(); };
    };
    auto read_each = [&] {
        for (size_t row = 0; row < N; ++row) {
            launch(row);
            DEMO_CHECK(cudaMemcpyAsync(&read[row], &rows[row * kRow], one, cudaMemcpyDeviceToHost));
            DEMO_CHECK(cudaStreamSynchronize(nullptr));  // the value is there
        }
        // They go back to where they came from: so what the host has read is verified, too.
        DEMO_CHECK(cudaMemcpy2DAsync(rows, kRow * one, read, one, one, N, cudaMemcpyHostToDevice));
    };
    session.run(demo::MatrixShape{N, kRow, true}.workload(session, 1), out.check(ExpectRow{x}),
                {{.kernel = "one_by_one", .launch = [&] { launch_all(); }, .launches = N},
                 {.kernel = "graph", .setup = record, .launches = N},
                 {.kernel = "dependent",
                  .launch = [&] { launch_all(nullptr, true); },
                  .launches = N,
                  .why_not = hopper::why_not(session.gpu)},
                 {.kernel = "read_each", .launch = read_each, .launches = N}});
    if (!session.timed()) return;
    const demo::Buffer<float> v(1);
    approach_one<<<1, 1>>>(v.data(), 1, 50'000'000);  // 0.1 s, in which the queue fills
    const demo::Stopwatch time;
    double before = 0, now = 0;
    int ahead = -1;  // without the launch that has to wait
    for (; ahead < 100'000 && now - before < 5; ++ahead) before = now, launch(0), now = time.ms();
    DEMO_CHECK(cudaDeviceSynchronize());
    session.note("the host gets " + std::to_string(ahead) + " launches ahead, at " +
                 demo::significant(1000 * before / ahead, 3) + " us each, then it has to wait");
}

// --- Copies -------------------------------------------------------------------------------------

constexpr int kIterations = demo::kSimulator ? 16 : 2000;  // so that it takes as long as a copy
constexpr size_t kThreads = 256, kChunks = 16, kStreams = 3;

struct ExpectNearOne {
    const float* x;
    size_t cols;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double decay = pow(double(kDecay), kIterations), goal = kGain / (1.0 - kDecay);
        // Each step rounds by at most 2^-24, of which later steps keep less than all.
        return {decay * x[row * cols + col] + (1 - decay) * goal, kIterations * 0x1p-24};
    }
};

static void copies(demo::Session& session) {
    const size_t N = session.n(), size = demo::saturating_product(N, N);
    const demo::Input<float> x(session, "x", {N, N});
    const demo::Output<float> out(session, "out", {N, N});
    const demo::Buffer<float> v(size);
    demo::HostBuffer<float> pageable(2 * N, N);
    const PinnedBuffer<float> pinned(demo::saturating_product(2, size));
    cudaStream_t streams[kStreams] = {};
    for (cudaStream_t& stream : streams) DEMO_CHECK(cudaStreamCreate(&stream));

    // The matrix comes from `host`, is computed, and goes to the other half of `host`. Not timed:
    // how the host gets x, and NaN for a result; and how `out` gets what came, to be verified.
    const demo::EventTimer timer;
    auto contender = [&](const std::string& name, float* host, size_t chunks) {
        auto launch = [=, &v, &streams] {
            const demo::Range range("there and back");  // which scripts/profile.sh shows
            for (size_t c = 0; c < chunks; ++c) {
                const size_t begin = size * c / chunks, count = size * (c + 1) / chunks - begin;
                const size_t blocks = count / kThreads + 1, bytes = 4 * count;
                const cudaStream_t stream = streams[c % kStreams];
                float *const from = host + begin, *const to = from + size, *own = v.data() + begin;
                DEMO_CHECK(cudaMemcpyAsync(own, from, bytes, cudaMemcpyHostToDevice, stream));
                approach_one<<<blocks, kThreads, 0, stream>>>(own, count, kIterations);
                DEMO_CHECK(cudaMemcpyAsync(to, own, bytes, cudaMemcpyDeviceToHost, stream));
            }
        };
        auto timed = [=, &x, &out, &timer] {
            DEMO_CHECK(cudaMemcpy(host, x, x.bytes(), cudaMemcpyDeviceToHost));
            std::fill_n(host + size, size, NAN);
            const double ms = timer.ms(launch);
            DEMO_CHECK(cudaMemcpy(out, host + size, x.bytes(), cudaMemcpyHostToDevice));
            return ms;
        };
        return demo::Contender{.kernel = name, .launch = [=] { timed(); }, .sample = timed};
    };
    session.run(demo::MatrixShape::of(session.options).workload(session, 2 * kIterations),
                out.check(ExpectNearOne{x, N}),
                {contender("pageable", pageable.data(), 1), contender("pinned", pinned.data(), 1),
                 contender("overlapped", pinned.data(), kChunks)});
    auto rate = [&](float* to, const float* from) {
        const double ms = demo::quick_time(
            [&] { DEMO_CHECK(cudaMemcpyAsync(to, from, v.bytes(), cudaMemcpyDefault)); });
        return demo::significant(double(v.bytes()) / ms / 1e6, 3) + " GB/s";
    };
    for (float* const host : {pageable.data(), pinned.data()})
        if (session.timed())
            session.note(std::string(host == pinned.data() ? "pinned" : "pageable") +
                         ": to the GPU " + rate(v.data(), host) + ", back " + rate(host, v.data()));
    for (cudaStream_t stream : streams)
        if (stream) cudaStreamDestroy(stream);
}

static void run(demo::Session& session) {
    (session.options.choice("--show") == "launches" ? launches : copies)(session);
}

}  // namespace async

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_async",
        .summary = "the host runs ahead: launches in a queue, copies beside kernels",
        .types = {{"fp32", async::run}},
        .any_n = true,
        .n_means = "N launches, or a matrix of N x N",
        .default_n = demo::kSimulator ? 100 : 1000,
        .options = {{"--show", "which experiment", {"launches", "copies"}}},
        .sizes = {},
        .variants = {"1000 --show launches", "4096 --show copies"}};
    return demo::main_of(program, argc, argv);
}
