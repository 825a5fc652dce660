// Experiment: one matmul, timed in ten ways. Nine of them are wrong.
//
// The kernel is always cuBLAS's for C = A B in fp16. The first row is timed as everything here is
// (docs/measuring.md). Each other row makes one mistake, and shows what it would claim.
// `speed-up` is the mistake: 2x claims twice the speed that the kernel has. Below the table stands
// what it is on an H100 or H200: scripts/compare_gpus.sh fails where it is not. The page
// docs/experiments/pitfalls.md goes through the rows.
//
// ./bonus_pitfalls 4096   a kernel of 0.2 ms
// ./bonus_pitfalls 512    one of 6 us, where clocks and caches matter most
#include <cmath>
#include <thread>

#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/experiment.cuh"
#include "matmul/matmul.cuh"

namespace pitfalls {

using demo::Contender, demo::Stopwatch;

static void sleep_ms(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(demo::kSimulator ? 0 : ms));
}

/// C = A B, all [N, N] row-major, and the ways to time it.
struct Pitfalls {
    demo::Session& session;
    const size_t N = session.n();
    const demo::Cublas cublas{};
    const demo::EventTimer timer{};
    const demo::Input<half> A{session, "A", {N, N}}, B{session, "B", {N, N}};
    const demo::Output<half> C{session, "C", {N, N}};
    const demo::MatmulReference reference{session, A, B};
    const demo::Buffer<half> copied_A{N, N}, copied_B{N, N}, easy{N, N};
    demo::HostBuffer<half> host_A{N, N}, host_B{N, N}, host_C{N, N}, host_right{N, N};
    const demo::Buffer<char> flushed{demo::kSimulator ? 1 : session.gpu.flush_bytes()};
    std::vector<Contender> ways{};

    /// The first `columns` columns of it. (To cuBLAS they are rows: see 4_matmul_cublas.)
    void gemm(const half* A, const half* B, size_t columns) const {
        const int n = int(N);
        const float alpha = 1, beta = 0;
        DEMO_CHECK(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, int(columns), n, n, &alpha, B,
                                CUDA_R_16F, n, A, CUDA_R_16F, n, &beta, C, CUDA_R_16F, n,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    void product() const { gemm(A, B, N); }
    double timed_product() const {
        return timer.ms([this] { product(); });
    }

    /// A whole matrix, on either side.
    void copy(half* to, const half* from) const {
        DEMO_CHECK(cudaMemcpy(to, from, C.bytes(), cudaMemcpyDefault));
    }
    /// Empties the cache. The GPU is busy with it while the host enqueues what follows.
    void flush() const {
        if (!session.options.hot) DEMO_CHECK(cudaMemsetAsync(flushed.data(), 0, flushed.bytes()));
    }
    static void wait() { DEMO_CHECK(cudaDeviceSynchronize()); }

    /// A wrong way. `at_512`, `at_4096`: the speed-up that it claims on an H100 or H200.
    Contender& add(const std::string& name, const std::string& why, demo::SpeedUp at_512,
                   demo::SpeedUp at_4096) {
        Contender way{name, demo::Role::kMistake, [this] { product(); }};
        const bool known = N == 512 || N == 4096;
        const auto [least, most] = N == 512 ? at_512 : at_4096;
        std::string claim = least >= 1 ? "too much" : most <= 1 ? "too little" : "either";
        if (known) way.expected = {least, most};
        if (known && !demo::kSimulator)
            claim = demo::significant(least, 2) + "-" + demo::significant(most, 2) + "x";
        way.note = claim + ": " + why;
        return ways.emplace_back(way);  // valid until the next one
    }

    void add_wrong_clocks() {
        Contender& call = add("no_synchronization", "the call was timed: the GPU had yet to begin",
                              {0.25, 1.5}, {8, 80});
        call.sample = [this] {
            flush(), wait();
            const Stopwatch time;
            product();
            return time.ms();
        };
        Contender& host =
            add("host_clock", "the launch and the wait were timed, too", {0.15, 0.6}, {0.8, 1});
        host.sample = [this] {
            flush(), wait();
            const Stopwatch time;
            product(), wait();
            return time.ms();
        };
        Contender& copies = add("copies_included", "A, B and C cross the bus to the host",
                                {0.01, 0.1}, {0.005, 0.05});
        copies.setup = [](Contender& self) { self.renew(); };
        copies.renew = [this] { copy(host_A.data(), A), copy(host_B.data(), B); };
        copies.launch = [this] {
            copy(copied_A.data(), host_A.data()), copy(copied_B.data(), host_B.data());
            gemm(copied_A.data(), copied_B.data(), N);
            copy(host_C.data(), C);
        };
        Contender& mean = add("mean_with_outlier", "one of 20 launches came 5 ms late",
                              {0.015, 0.04}, {0.35, 0.5});
        mean.sample = [this] {
            double sum = 0;
            for (int i = 0; i < 20; ++i) {
                flush();
                sum += timer.ms([&] {
                    if (i == 7) sleep_ms(5);  // as if the system ran something else meanwhile
                    product();
                });
            }
            return sum / 20;
        };
    }

    void add_wrong_states() {
        // A process has one first launch: this, before all others. Each sample is that one.
        Contender& first =
            add("first_launch", "the kernel's code had to be loaded", {1e-5, 0.001}, {3e-4, 0.02});
        first.setup = [this](Contender& self) {
            const double ms = timed_product();
            self.sample = [this, ms] { return product(), ms; };
        };
        add("no_warm_up", "after a second of rest the host launches late", {0.02, 0.5}, {0.4, 0.95})
            .sample = [this] { return flush(), wait(), sleep_ms(1000), timed_product(); };
        add("warm_cache", "the launch before left A and B in the cache", {1, 1.5}, {0.9, 1.1})
            .sample = [this] { return flush(), product(), timed_product(); };

        Contender& data = add("easy_data", "fewer bits change: less power, a higher clock",
                              {0.9, 1.15}, {1.05, 1.45});
        const bool zeros = session.options.choice("--data") == "zeros";
        DEMO_CHECK(cudaMemset(easy.data(), zeros ? 0 : 0x2C, easy.bytes()));  // 0x2C2C: 0.065
        const auto right = std::make_shared<demo::MatmulReference>(easy.data(), easy.data(), N, N,
                                                                   N, session.options.seed);
        data.launch = [this, right] { gemm(easy.data(), easy.data(), N); };
        data.check = right->check(C);
    }

    /// The check that many write: the largest difference must be small. But nothing is less than
    /// NaN, so std::max(worst, NaN) is `worst`, and an element that nobody has written passes.
    bool passes_by_max() const {
        float worst = 0;
        for (size_t i = 0; i < host_C.size(); ++i)
            worst = std::max(worst, std::fabs(float(host_C[i]) - float(host_right[i])));
        return worst < 0.01f;
    }

    /// Half of the columns keep the NaN that was there. The row is "rejected" if the suite's check
    /// finds these and nothing else, while the one by max() finds nothing.
    void add_wrong_check() {
        Contender& left = add("half_left_out", "half is unwritten, which max() does not see",
                              {0.9, 1.4}, {1.8, 2.3});
        left.launch = [this] { gemm(A, B, N / 2); };
        left.check = reference.check(C);
        left.check.verify = [this, verify = left.check.verify] {
            demo::Verdict found = verify();
            copy(host_C.data(), C);
            product();
            copy(host_right.data(), C);
            const bool is_half = 2 * found.unwritten == N * N && 2 * found.wrong == found.checked;
            found.wrong = !is_half || !passes_by_max(), found.unwritten = 0;
            return found;
        };
        left.check.noted = [] { return demo::Verdict{}; };  // the other half keeps what was there
    }
};

static void run(demo::Session& session) {
    Pitfalls pitfalls{session};
    pitfalls.ways.push_back({"right", demo::Role::kLibrary, [&] { pitfalls.product(); }});
    pitfalls.add_wrong_clocks(), pitfalls.add_wrong_states(), pitfalls.add_wrong_check();
    const demo::Workload work = demo::matmul_workload<half>(session.n());
    for (const demo::Measured& each :
         demo::measure(session, work, pitfalls.reference.check(pitfalls.C), pitfalls.ways))
        demo::print_line(session, work, each,
                         each.contender.kernel == "half_left_out" ? "rejected" : "verified");
    session.note("What they claim on an H100 or H200, and why:");
    for (const Contender& way : pitfalls.ways)
        if (!way.note.empty() && session.wants(way.kernel))
            session.note(way.kernel + std::string(20 - way.kernel.size(), ' ') + way.note);
}

}  // namespace pitfalls

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_pitfalls",
                                .summary = "one matmul timed in ten ways, of which nine are wrong",
                                .types = {{"fp16", pitfalls::run}},
                                .options = {{"--data", "what easy_data has", {"zeros", "equal"}}},
                                .sizes = {512, 4096}};
    return demo::main_of(program, argc, argv);
}
