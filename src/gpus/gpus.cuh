// Several GPUs, each a rank: launches on all of them, and NCCL between them.
//
// ranks.cuh              what a process knows of the other ranks; NCCL's calls; a watchdog
// no_nccl.hpp            in NCCL's place, where it is not installed
// gated_layer.cuh        the problem of bonus_gating_gpus: data on each GPU, bound and reference
// product_exchanged.cuh  its record: a product that the GPUs add up while they compute it
#pragma once

#include <atomic>
#include <optional>

#include "demo/data.cuh"
#include "gpus/ranks.cuh"

namespace demo {

/// Makes a GPU the current one, up to the end of the scope.
class OnGpu {
  public:
    explicit OnGpu(int device) {
        DEMO_CHECK(cudaGetDevice(&before_));
        DEMO_CHECK(cudaSetDevice(device));
    }
    ~OnGpu() {
        if (!dry_run) cudaSetDevice(before_);
    }
    OnGpu(const OnGpu&) = delete;

  private:
    int before_ = 0;
};

/// Share `i` of `shares` of 0 ... size - 1, in whole blocks of `block`: as even as that allows.
struct Share {
    size_t first, count;
    static DEMO_HOST_DEVICE Share of(size_t size, size_t i, size_t shares, size_t block = 1) {
        const size_t blocks = (size + block - 1) / block;
        const size_t begin = blocks * i / shares * block, end = blocks * (i + 1) / shares * block;
        return {begin, (end < size ? end : size) - begin};
    }
};

/// The GPUs of a run. This process has ranks first ... first + count - 1 of `size`.
class Gpus {
  public:
    int first = 0, count = 1, size = 1;

    explicit Gpus(const Session& session)
        : device_(session.options.device), watchdog_(double(session.options.number("--patience"))) {
        const Options& options = session.options;
        const bool looked = !session.gpu.name.empty();  // else --help, or --describe
        int visible = looked && kSimulator ? 2 : 1;
        if (looked && !kSimulator) check(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
        if (processes.size > 1) {
            first = processes.rank, size = processes.size;
            if (options.flag("--gpus"))
                throw UsageError("--gpus is for one process: of several each has one GPU");
        } else {
            size = options.flag("--gpus") ? int(options.number("--gpus"))
                                          : std::max(1, visible - device_);
            if (looked && !kSimulator && device_ + size > visible)
                fail(kSkipped, "--gpus " + std::to_string(size) + ": there are " +
                                   std::to_string(visible - device_) + " here");
        }
        if (options.flag("--meet")) Processes::check_meeting(options.choice("--meet"));
        if (dry_run) return;  // counts the memory of one GPU
        if (first > 0) program_name += ", rank " + std::to_string(first);
        count = processes.size > 1 ? 1 : size;
        connect();
        reach_peers();
        flushes_ = !options.hot && !options.once && !kSimulator;
        each([&](int i) {
            ranks_[i].number.emplace(1);
            if (i > 0 && flushes_) ranks_[i].flushed.emplace(session.gpu.flush_bytes());
        });
    }
    ~Gpus() {
        watchdog_.end();
        for (const Rank& rank : ranks_) ncclCommDestroy(rank.comm);
    }
    Gpus(const Gpus&) = delete;

    /// Calls f(i) for each of this process's GPUs, while that is the current one.
    template <class F>
    void each(F f) const {
        for (int i = 0; i < count; ++i) {
            const OnGpu here(device(i));
            f(i);
        }
    }
    /// The simulator has one device, which plays all of them.
    int device(int i) const { return kSimulator ? 0 : device_ + i; }

    /// Why kernels cannot use the memory of the other GPUs; empty where they can.
    std::string why_not_peers() const {
        if (processes.size > 1) return "needs one process for all GPUs";
        return dry_run || peers_ ? "" : "needs GPUs that reach each other's memory";
    }

    // --- A launch on several GPUs ---------------------------------------------------------------
    // Each GPU computes on its default stream. The first one's is timed: there a launch begins for
    // all GPUs, and it ends there once all have ended.

    /// Before a launch: empties the caches of the others, and waits until all are ready.
    void prepare() const {
        watchdog_.begin("a launch");
        each([&](int i) {
            if (i == 0) return;
            if (flushes_)
                DEMO_CHECK(
                    cudaMemsetAsync(ranks_[i].flushed->data(), 0, ranks_[i].flushed->bytes()));
            DEMO_CHECK(cudaEventRecord(ranks_[i].done));
        });
        gather();
        if (count < size) {  // processes begin together
            reduce([&](int i) { return ranks_[i].number->data(); }, 1, ncclDouble, ncclMax);
            join();
        }
    }

    /// Enqueues what body() does, as one launch, its all-reduces included.
    template <class Body>
    void launch(Body body) const {
        watchdog_.begin("a launch");
        each([&](int i) {
            if (i == 0) DEMO_CHECK(cudaEventRecord(ranks_[0].done));
            if (i > 0) DEMO_CHECK(cudaStreamWaitEvent(nullptr, ranks_[0].done));
        });
        body();
        join();
        each([&](int i) { DEMO_CHECK(cudaEventRecord(ranks_[i].done)); });
        gather();
        watchdog_.enqueued();
    }

    /// out(i)[count] on each GPU becomes the sum over all GPUs, on a stream beside the default one:
    /// after the default stream's work so far, and beside its later work.
    template <class Out>
    void all_reduce(Out out, size_t count) const {
        reduce(out, count, ncclHalf, ncclSum);
    }

    /// Each GPU gets all rows of out(i)[rows, columns]: each rank sends the rows of its Share.
    template <class Out>
    void all_gather(Out out, size_t rows, size_t columns) const {
        launch([&] {
            beside();
            DEMO_CHECK(ncclGroupStart());
            for (int root = 0; root < size; ++root) {
                const Share share = Share::of(rows, root, size);
                each([&](int i) {
                    half* const own = out(i) + share.first * columns;
                    DEMO_CHECK(ncclBroadcast(own, own, share.count * columns, ncclHalf, root,
                                             ranks_[i].comm, ranks_[i].stream));
                });
            }
            DEMO_CHECK(ncclGroupEnd());
        });
    }

    /// The largest value of all processes, so that all decide the same.
    double largest(double value) const {
        if (count == size) return value;
        watchdog_.begin("a comparison of times");
        const Rank& rank = ranks_[0];
        DEMO_CHECK(cudaMemcpy(rank.number->data(), &value, sizeof value, cudaMemcpyHostToDevice));
        reduce([&](int) { return rank.number->data(); }, 1, ncclDouble, ncclMax);
        DEMO_CHECK(cudaStreamSynchronize(rank.stream));
        DEMO_CHECK(cudaMemcpy(&value, rank.number->data(), sizeof value, cudaMemcpyDeviceToHost));
        watchdog_.end();
        return value;
    }

    /// The checks of this process's GPUs as one.
    Check on_all(const std::vector<Check>& checks) const {
        Check all = checks[0];
        auto verdict_of = [=, this](std::function<Verdict()> Check::*verify) {
            Verdict sum;
            for (int i = 0; i < count && (i == 0 || sum.ok()); ++i) {
                const OnGpu here(device(i));
                Verdict found = (checks[i].*verify)();
                found.output = ranks_[i].name.c_str();
                found.checked += sum.checked;
                found.error_of_bound = std::max(found.error_of_bound, sum.error_of_bound);
                if (i > 0) found.output_hash = sum.output_hash;
                sum = found;
            }
            return sum;
        };
        all.verify = [=] { return verdict_of(&Check::verify); };
        all.noted = [=] { return verdict_of(&Check::noted); };
        all.note = [=, this](auto... launch) { each([&](int i) { checks[i].note(launch...); }); };
        all.renew = [=, this] { each([&](int i) { checks[i].renew(); }); };
        all.others = [=, this](int byte) {
            each([&](int i) {
                if (i > 0) checks[i].scribble(byte);
            });
        };
        return all;
    }

  private:
    struct Rank {
        std::string name = "";  // "GPU 1"
        ncclComm_t comm = nullptr;
        cudaStream_t stream = nullptr;  // of NCCL
        cudaEvent_t computed = nullptr, reduced = nullptr, done = nullptr;
        std::optional<Buffer<double>> number = {};
        std::optional<Buffer<char>> flushed = {};
    };

    /// Makes the communicators, and what the launches need.
    void connect() {
        setenv("NCCL_NVLS_ENABLE", "0", 0);  // sums are NCCL's, not the switch's
        if (processes.size > 1) setenv("NCCL_COMM_ID", processes.meeting.c_str(), 1);
        ranks_ = std::vector<Rank>(count);
        watchdog_.begin(processes.size > 1 ? "joining at " + processes.meeting
                                           : "connecting the GPUs");
        watchdog_.start(
            device(0), [this] { return error(); },
            [this] {
                for (const Rank& rank : ranks_)
                    if (cudaEventQuery(rank.done) == cudaErrorNotReady) return false;
                return true;
            });
        ncclUniqueId id;
        DEMO_CHECK(ncclGetUniqueId(&id));
        DEMO_CHECK(ncclGroupStart());
        each([&](int i) {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            DEMO_CHECK(ncclCommInitRankConfig(&ranks_[i].comm, size, id, first + i, &config));
        });
        DEMO_CHECK(ncclGroupEnd());
        watchdog_.end();
        connected_ = true;
        each([&](int i) {
            Rank& rank = ranks_[i];
            rank.name = "GPU " + std::to_string(device(i));
            // High priority: its few blocks go first where a product's many wait for room.
            DEMO_CHECK(cudaStreamCreateWithPriority(&rank.stream, cudaStreamNonBlocking, -5));
            for (cudaEvent_t* event : {&rank.computed, &rank.reduced, &rank.done})
                DEMO_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
        });
    }

    /// Allows kernels to use the memory of other GPUs, where that is possible. NCCL_P2P_DISABLE=1,
    /// which keeps NCCL from it, counts here, too.
    void reach_peers() {
        const char* const disabled = std::getenv("NCCL_P2P_DISABLE");
        peers_ = count <= kMostPeers && !(disabled && *disabled != '0');
        if (!peers_) return;
        each([&](int i) {
            for (int other = 0; other < count; ++other) {
                int can = 1;
                if (other == i) continue;
                DEMO_CHECK(cudaDeviceCanAccessPeer(&can, device(i), device(other)));
                peers_ = peers_ && can;
                // NCCL may have done it already.
                if (can && cudaDeviceEnablePeerAccess(device(other), 0)) cudaGetLastError();
            }
        });
    }

    ncclResult_t error() const {
        ncclResult_t status = ncclSuccess;
        for (const Rank& rank : ranks_)
            if (connected_ && status == ncclSuccess) ncclCommGetAsyncError(rank.comm, &status);
        return status;
    }

    /// NCCL's streams wait for the work that is on the default streams now.
    void beside() const {
        each([&](int i) {
            DEMO_CHECK(cudaEventRecord(ranks_[i].computed));
            DEMO_CHECK(cudaStreamWaitEvent(ranks_[i].stream, ranks_[i].computed));
        });
    }
    template <class Out>
    void reduce(Out out, size_t count, ncclDataType_t type, ncclRedOp_t op) const {
        beside();
        DEMO_CHECK(ncclGroupStart());
        each([&](int i) {
            DEMO_CHECK(
                ncclAllReduce(out(i), out(i), count, type, op, ranks_[i].comm, ranks_[i].stream));
        });
        DEMO_CHECK(ncclGroupEnd());
    }
    /// The default streams wait for NCCL's.
    void join() const {
        each([&](int i) {
            DEMO_CHECK(cudaEventRecord(ranks_[i].reduced, ranks_[i].stream));
            DEMO_CHECK(cudaStreamWaitEvent(nullptr, ranks_[i].reduced));
        });
    }
    /// The first GPU waits for what the others have recorded as `done`.
    void gather() const {
        const OnGpu here(device(0));
        for (int i = 1; i < count; ++i) DEMO_CHECK(cudaStreamWaitEvent(nullptr, ranks_[i].done));
    }

    static constexpr int kMostPeers = 8;  // that CUDA connects with each other

    const int device_;  // the first
    std::vector<Rank> ranks_;
    std::atomic<bool> connected_ = false;
    bool flushes_ = false, peers_ = true;
    mutable Watchdog watchdog_;
};

}  // namespace demo
