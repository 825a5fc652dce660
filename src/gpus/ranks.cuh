// Ranks: what a process is told of the others, NCCL's calls, and a watchdog for silent ranks.
//
// One process drives all GPUs of a machine, and each GPU is a rank. Or many processes have a GPU
// each, on one machine or on several; their launcher (Slurm, Open MPI, torchrun) tells each its
// rank, and NCCL connects them: rank 0 waits at a meeting point, which the others are told.
#pragma once

#if __has_include(<nccl.h>)
#include <nccl.h>
#define DEMO_WITHOUT_NCCL ""
#else
#include "gpus/no_nccl.hpp"
#define DEMO_WITHOUT_NCCL "built without NCCL: install it, and build again"
#endif

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "demo/device.cuh"

namespace demo {

/// Exits with one line if a call of NCCL failed.
inline void check(ncclResult_t status, const std::string& call) {
    if (status != ncclSuccess)
        fail(kFailed, call + ": " + ncclGetErrorString(status) + "; NCCL_DEBUG=WARN says more");
}

/// The options of a program that runs on several GPUs.
inline std::vector<Option> gpus_options() {
    return {{.name = "--gpus",
             .help = "how many, from --device on (default: all)",
             .numbers = Numbers{.first = 1, .last = 16},
             .value = "G"},
            {.name = "--meet",
             .help = "where the ranks of several processes meet: the address of rank 0's machine, "
                     "and a free port (default: MASTER_ADDR:MASTER_PORT)",
             .value = "HOST:PORT",
             .any_text = true},
            {.name = "--patience",
             .help = "seconds to wait for other ranks",
             .numbers = Numbers{.first = 1, .last = 3600, .usual = 30},
             .value = "SECONDS"}};
}

/// This process among those of a run.
struct Processes {
    int rank = 0, size = 1;
    int device = 0;       // its GPU, where --device names no other
    std::string meeting;  // HOST:PORT, where rank 0 waits for the others

    /// As --meet and the launcher say; exits where a variable of the launcher makes no sense. Where
    /// nobody names a meeting point, a process is alone.
    static Processes of(int argc, char** argv) {
        struct Launcher {
            const char *size, *rank, *device;
        };
        static constexpr Launcher kLaunchers[] = {
            {"WORLD_SIZE", "RANK", "LOCAL_RANK"},  // the innermost first
            {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
            {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"}};
        Processes here;
        if (const char* const host = std::getenv("MASTER_ADDR")) {
            // On MASTER_PORT torchrun itself listens.
            const bool next = std::getenv("TORCHELASTIC_RUN_ID");
            const int port = number("MASTER_PORT", 29500, {.first = 1, .last = 65535u - next});
            if (!*host || std::strchr(host, ':'))
                fail(kUsage, "MASTER_ADDR takes a host, not '" + std::string(host) + "'");
            here.meeting = host + (":" + std::to_string(port + next));
        }
        for (int i = 1; i + 1 < argc; ++i)
            if (argv[i] == std::string("--meet")) here.meeting = argv[i + 1];
        const Launcher* const by = std::ranges::find_if(
            kLaunchers, [](const Launcher& launcher) { return std::getenv(launcher.size); });
        if (by == std::end(kLaunchers)) return {};
        here.size = number(by->size, 1, {.first = 1, .last = 4096});
        here.rank = number(by->rank, 0, {.last = uint64_t(here.size) - 1});
        here.device = number(by->device, here.rank, {.last = 4095});
        if (here.meeting.empty() || here.size < 2) return {};
        if (!std::getenv(by->rank))
            fail(kUsage, std::string(by->size) + " is set, and " + by->rank + " is not");
        int count = 0;  // that this process sees: perhaps its own alone
        if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) here.device %= count;
        return here;
    }

    /// Throws UsageError unless it is HOST:PORT.
    static void check_meeting(const std::string& meeting) {
        const size_t colon = meeting.rfind(':');
        if (colon == 0 || colon == std::string::npos)
            throw UsageError("--meet takes HOST:PORT, not '" + meeting + "'");
        parse_number(meeting.substr(colon + 1), "the port of --meet HOST:PORT",
                     {.first = 1, .last = 65535});
    }

  private:
    /// The value of a variable, as strict as the command line.
    static int number(const char* variable, int otherwise, const Numbers& numbers) try {
        const char* const text = std::getenv(variable);
        return text ? int(parse_number(text, variable, numbers)) : otherwise;
    } catch (const UsageError& error) {
        fail(kUsage, error.what());
    }
};

/// Of this program: set by its main().
inline Processes processes;

/// Ends the program when other ranks do not answer: a rank that never joins or that dies leaves the
/// others in a call, or in a kernel, that does not end by itself.
class Watchdog {
  public:
    explicit Watchdog(double patience_s) : patience_s_(patience_s) {}
    ~Watchdog() {
        if (thread_.joinable()) stop_ = true, thread_.join();
    }

    /// Before calls that other ranks must make, too. `what`: what does not happen without them.
    void begin(const std::string& what) {
        const std::lock_guard lock(mutex_);
        waiting_ = true, enqueued_ = false, what_ = what, time_.emplace();
    }
    /// The calls have returned. The work is over once `done` says so.
    void enqueued() {
        const std::lock_guard lock(mutex_);
        enqueued_ = true;
    }
    void end() {
        const std::lock_guard lock(mutex_);
        waiting_ = false;
    }

    /// Begins to watch. `error`: NCCL's, of this rank's connections; `done`: see enqueued().
    void start(int device, std::function<ncclResult_t()> error, std::function<bool()> done) {
        thread_ = std::thread([=, this] {
            DEMO_CHECK(cudaSetDevice(device));
            for (; !stop_; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
                const std::lock_guard lock(mutex_);
                if (!waiting_) continue;
                const ncclResult_t status = error();
                if (status != ncclSuccess && status != ncclInProgress)
                    leave(what_ + ": " + ncclGetErrorString(status));
                if (enqueued_ && done())
                    waiting_ = false;
                else if (time_->ms() > 1000 * patience_s_)
                    leave("no answer from other ranks within " + significant(patience_s_, 2) +
                          " s, in " + what_ + ": has one not started, or died?");
            }
        });
    }

  private:
    /// Without cleaning up, which would wait, too. A process that is gone frees its GPU.
    [[noreturn]] static void leave(const std::string& message) {
        complain(message);
        _exit(kFailed);
    }

    const double patience_s_;
    std::mutex mutex_;
    bool waiting_ = false, enqueued_ = false;
    std::string what_;
    std::optional<Stopwatch> time_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace demo
