#include "host_threads.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "errors.hpp"
#include "pages.hpp"

namespace simulator {
namespace {

class Workers {
  public:
    Workers() {
        try {
            for (int i = 0; i < worker_count(); ++i)
                std::thread([this] { fail_without_memory([&] { work(); }); }).detach();
        } catch (const std::system_error& error) {
            fail(3, "no thread: %s; ulimit -u, -v and -d may limit them", error.what());
        }
    }

    void run(uint64_t count, const std::function<void(uint64_t)>& body) {
        std::lock_guard one_at_a_time(caller_);
        std::unique_lock lock(mutex_);
        body_ = &body;
        count_ = count;
        next_ = 0;
        busy_ = worker_count();
        ++round_;
        start_.notify_all();
        done_.wait(lock, [&] { return busy_ == 0; });
    }

  private:
    void work() {
        use_own_signal_stack();
        for (uint64_t seen = 0;;) {
            {
                std::unique_lock lock(mutex_);
                start_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
            }
            for (uint64_t i; (i = next_.fetch_add(1)) < count_;) (*body_)(i);
            std::lock_guard lock(mutex_);
            if (--busy_ == 0) done_.notify_one();
        }
    }

    std::mutex caller_, mutex_;
    std::condition_variable start_, done_;
    const std::function<void(uint64_t)>* body_ = nullptr;
    uint64_t count_ = 0, round_ = 0;
    std::atomic<uint64_t> next_ = 0;
    int busy_ = 0;
};

}  // namespace

int worker_count() {
#ifdef SIMULATOR_DEBUG
    return 1;  // blocks in order: who steps through one does not want another in between
#endif
    static const int count = [] {
        int cores = int(std::thread::hardware_concurrency());
        cpu_set_t allowed;
        if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
        return std::max(4, cores);  // so that there can be two clusters at once anywhere
    }();
    return count;
}

void parallel(uint64_t count, const std::function<void(uint64_t)>& body) {
    static Workers& workers = *new Workers;  // they outlive main()
    workers.run(count, body);
}

void Turns::begin(uint64_t i) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ == i; });
    ++begun_;
    changed_.notify_all();
    wait(lock);
}

void Turns::pass() {
    std::unique_lock lock(mutex_);
    ++current_;
    changed_.notify_all();
    wait(lock);
}

void Turns::end() {
    std::lock_guard lock(mutex_);
    ++current_;
    changed_.notify_all();
}

void Turns::wait(std::unique_lock<std::mutex>& lock) {
    const uint64_t mine = asked_++;
    changed_.wait(lock, [&] { return current_ == mine; });
}

void use_own_signal_stack() {
    constexpr size_t bytes = 128 << 10;
    stack_t stack{};
    stack.ss_sp = map_pages(bytes, PROT_READ | PROT_WRITE);
    stack.ss_size = bytes;
    sigaltstack(&stack, nullptr);
}

}  // namespace simulator
