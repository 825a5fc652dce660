// Bonus: the host does not wait for the GPU. A launch is only put into a queue, and so are copies
// from pinned memory. Who knows that can keep host, copies and kernels busy at the same time:
//
//     host      launch launch launch launch ...          host      launch        launch        ...
//     GPU              kernel kernel kernel ...          GPU              kernel        kernel
//               nobody waits                                       a value is read after each
//
// Two experiments:
//
//   launches   N kernels, each of which computes a row from the row before, and little else:
//                one_by_one       launched one after the other
//                graph            all of them recorded once, and launched as one
//                dependent        each starts while the one before ends, on Hopper
//                read_each        the host reads a value of each, as a printed loss or item() does
//                read_late        it reads the value of a step that ended long ago
//   copies     an N x N matrix of the host goes to the GPU, through a kernel, and back:
//                pageable         from memory as malloc gives it: the driver copies it once more
//                pinned           from memory that the GPU's copy engines can reach
//                overlapped       in chunks, on streams: one is copied in, one computed, and one
//                                 copied out at the same time
//
//     ./bonus_async        ./bonus_async --show copies        scripts/profile.sh bonus_async 512
//
// What limits it: the host's launches, some microseconds each; and the bus.
// docs/experiments/async.md explains.
#include "demo.cuh"
#include "demo/graph.cuh"
#include "demo/rows.cuh"
#include "hopper.cuh"

namespace async {

/// Memory of the host that the GPU's copy engines can reach: it stays where it is.
template <class T>
class Pinned {
  public:
    explicit Pinned(size_t size) {
        if (demo::dry_run) demo::dry_run->take_on_host(demo::saturating_product(size, sizeof(T)));
        DEMO_CHECK(cudaMallocHost(&data_, size * sizeof(T)));
    }
    ~Pinned() {
        if (data_) cudaFreeHost(data_);
    }
    Pinned(const Pinned&) = delete;
    T* data() const { return data_; }

  private:
    T* data_ = nullptr;
};

// --- Launches -----------------------------------------------------------------------------------

constexpr int kRow = 1024;  // numbers, and threads of a block

/// A row of out: the one before (of row 0: x), turned by one place and negated. It can be launched
/// early, with a stream's launch before still running.
__global__ void next_row(const float* x, float* out, size_t row) {  // x: [kRow], out: [N, kRow]
    hopper::griddepcontrol_launch_dependents();                     // the next one may start
    hopper::griddepcontrol_wait();  // the one before is done, and its row is written
    const float* const from = row == 0 ? x : &out[(row - 1) * kRow];
    out[row * kRow + threadIdx.x] = -from[(threadIdx.x + 1) % kRow];
}

struct ExpectRow {
    const float* x;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double value = x[(col + row + 1) % kRow];
        return {row % 2 == 0 ? -value : value, 0};
    }
};

/// Keeps the GPU busy, and computes nothing.
__global__ void busy(float* out, float one, int steps) {
    float count = 0;
    for (int i = 0; i < steps; ++i) count = count * one + 1.0f;
    *out = count;
}

static void launch_row(const float* x, float* out, size_t row, bool early, cudaStream_t stream) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1), config.blockDim = dim3(kRow), config.stream = stream;
    config.attrs = &attribute, config.numAttrs = early;
    DEMO_CHECK(cudaLaunchKernelEx(&config, next_row, x, out, row));
}

/// How many launches wait in the queue before the host has to wait, and what one takes of the
/// host's time until then.
static void fill_the_queue(const demo::Session& session, const float* x, float* out, size_t N) {
    if (demo::kSimulator || demo::dry_run || session.options.once) return;
    const demo::Buffer<float> count(1);
    busy<<<1, 1>>>(count.data(), 1.0f, 50'000'000);  // 0.1 s
    const demo::Stopwatch time;
    double before = 0, now = 0;
    size_t launches = 0;
    for (; launches < 100'000 && now - before < 5; ++launches) {
        before = now;
        launch_row(x, out, launches % N, false, nullptr);
        now = time.ms();
    }
    DEMO_CHECK(cudaDeviceSynchronize());
    session.note("the host is ahead by " + std::to_string(launches - 1) + " launches of " +
                 demo::significant(before / double(launches - 1) * 1000, 3) +
                 " us each; the next one waits");
}

static void launches(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<float> x(session, "x", {1, kRow});
    const demo::Output<float> out(session, "out", {N, kRow});
    const Pinned<float> values(N);
    auto all = [&](bool early) {
        for (size_t row = 0; row < N; ++row) launch_row(x, out, row, early, nullptr);
    };
    auto read = [&](size_t row) {  // element 0, as the loss of this step
        DEMO_CHECK(cudaMemcpyAsync(&values.data()[row], out + row * kRow, sizeof(float),
                                   cudaMemcpyDeviceToHost));
    };
    auto put_back = [&] {  // what the host has read, so that it is verified, too
        DEMO_CHECK(cudaMemcpy2DAsync(out, kRow * sizeof(float), values.data(), sizeof(float),
                                     sizeof(float), N, cudaMemcpyHostToDevice));
    };
    auto read_each = [&] {
        for (size_t row = 0; row < N; ++row) {
            launch_row(x, out, row, false, nullptr);
            read(row);
            DEMO_CHECK(cudaStreamSynchronize(nullptr));  // values[row] is there
        }
        put_back();
    };
    // An event says when a value has arrived. The host looks at it a few steps later.
    constexpr size_t kLate = 8;
    std::vector<cudaEvent_t> arrived(kLate);
    for (cudaEvent_t& event : arrived)
        DEMO_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    auto read_late = [&] {
        for (size_t row = 0; row < N + kLate; ++row) {
            const cudaEvent_t event = arrived[row % kLate];
            if (row >= kLate) DEMO_CHECK(cudaEventSynchronize(event));  // values[row - kLate] is
            if (row >= N) continue;
            launch_row(x, out, row, false, nullptr);
            read(row);
            DEMO_CHECK(cudaEventRecord(event));
        }
        put_back();
    };
    auto record = [&](demo::Contender& self) {
        const auto graph = std::make_shared<demo::Graph>([&](cudaStream_t stream) {
            for (size_t row = 0; row < N; ++row) launch_row(x, out, row, false, stream);
        });
        self.launch = [graph] { (*graph)(); };
    };
    const auto results =
        session.run({.shape = "square",
                     .size = N,
                     .dtype = "fp32",
                     .flops = double(N) * kRow,
                     .least_bytes = session.least_bytes(),
                     .text = std::to_string(N) + " launches"},
                    out.check(ExpectRow{x}),
                    {{.kernel = "one_by_one", .launch = [&] { all(false); }, .launches = N},
                     {.kernel = "graph", .setup = record, .launches = N},
                     {.kernel = "dependent",
                      .launch = [&] { all(true); },
                      .launches = N,
                      .why_not = hopper::why_not(session.gpu)},
                     {.kernel = "read_each", .launch = read_each, .launches = N},
                     {.kernel = "read_late", .launch = read_late, .launches = N}});
    std::string each;
    for (const demo::Result& result : results)
        each += " " + demo::significant(result.median_ms() / double(N) * 1000, 3);
    if (!demo::kSimulator && !session.options.once) session.note("us a launch:" + each);
    fill_the_queue(session, x, out, N);
    for (const cudaEvent_t event : arrived)
        if (event) cudaEventDestroy(event);
}

// --- Copies -------------------------------------------------------------------------------------

constexpr int kSteps = demo::kSimulator ? 16 : 2000;  // so that it takes as long as a copy
constexpr float kKept = 0.999f, kAdded = 0.001f;
constexpr size_t kChunks = 16, kStreams = 3;

__global__ void approach_one(float* v, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float value = v[i];
    for (int step = 0; step < kSteps; ++step) value = kKept * value + kAdded;
    v[i] = value;
}

struct ExpectNearOne {
    const float* x;
    size_t cols;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        const double kept = pow(double(kKept), kSteps),
                     limit = double(kAdded) / (1 - double(kKept));
        // Each step rounds by 2^-24 at most, and later steps keep less than all of it.
        return {kept * x[row * cols + col] + (1 - kept) * limit, kSteps * 0x1p-24};
    }
};

static void copies(demo::Session& session) {
    const size_t N = session.n(), size = demo::saturating_product(N, N);
    const demo::Input<float> x(session, "x", {N, N});
    const demo::Output<float> out(session, "out", {N, N});
    const demo::Buffer<float> on_gpu(size);
    demo::HostBuffer<float> pageable_from(N, N), pageable_to(N, N);
    const Pinned<float> pinned_from(size), pinned_to(size);
    std::vector<cudaStream_t> streams(kStreams);
    for (cudaStream_t& stream : streams) DEMO_CHECK(cudaStreamCreate(&stream));

    // Copies a chunk to the GPU, computes, and copies back: one after the other on a stream.
    auto pass = [&](const float* from, float* to, size_t begin, size_t end, cudaStream_t stream) {
        const size_t count = end - begin, bytes = count * sizeof(float);
        if (count == 0) return;
        float* const chunk = on_gpu.data() + begin;
        DEMO_CHECK(cudaMemcpyAsync(chunk, from + begin, bytes, cudaMemcpyHostToDevice, stream));
        approach_one<<<(count + 255) / 256, 256, 0, stream>>>(chunk, count);
        DEMO_CHECK(cudaMemcpyAsync(to + begin, chunk, bytes, cudaMemcpyDeviceToHost, stream));
    };
    auto in_chunks = [&] {
        for (size_t c = 0; c < kChunks; ++c)
            pass(pinned_from.data(), pinned_to.data(), c * size / kChunks, (c + 1) * size / kChunks,
                 streams[c % kStreams]);
    };
    // The host has x before a launch, and what comes back is taken to `out`. Neither is timed.
    const demo::EventTimer timer;
    auto contender = [&](const std::string& name, float* from, float* to, auto launch) {
        auto fill = [=, &x] {
            DEMO_CHECK(cudaMemcpy(from, x.data(), x.bytes(), cudaMemcpyDeviceToHost));
        };
        auto take = [=, &out] {
            DEMO_CHECK(cudaMemcpy(out, to, out.bytes(), cudaMemcpyHostToDevice));
        };
        return demo::Contender{.kernel = name,
                               .launch = [=] { launch(), take(); },
                               .prepare = fill,
                               .sample =
                                   [=, &timer] {
                                       const double ms = timer.ms(launch);
                                       take();
                                       return ms;
                                   }};
    };
    float *const from = pageable_from.data(), *const to = pageable_to.data();
    session.run({.shape = "square",
                 .size = N,
                 .dtype = "fp32",
                 .flops = 2.0 * kSteps * double(N) * double(N),
                 .least_bytes = session.least_bytes(),
                 .memory_bound = true,
                 .text = std::to_string(N) + " x " + std::to_string(N)},
                out.check(ExpectNearOne{x, N}),
                {contender("pageable", from, to, [=] { pass(from, to, 0, size, nullptr); }),
                 contender("pinned", pinned_from.data(), pinned_to.data(),
                           [&] { pass(pinned_from.data(), pinned_to.data(), 0, size, nullptr); }),
                 contender("overlapped", pinned_from.data(), pinned_to.data(), in_chunks)});
    for (const cudaStream_t stream : streams)
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
        .options = {{.name = "--show",
                     .help = "which experiment",
                     .choices = {"launches", "copies"}}},
        .sizes = {}};
    return demo::main_of(program, argc, argv);
}
