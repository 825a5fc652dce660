#include "mbarrier.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/device_launch_parameters.h"
#include "errors.hpp"
#include "scheduler.hpp"
#include "shared_memory.hpp"

namespace simulator {
namespace {

constexpr uint32_t kMostArrivals = (1 << 20) - 1;
constexpr int32_t kMostBytes = (1 << 20) - 1;

/// The 64 bits, in a layout of our own: NVIDIA's is not documented.
struct Bits {
    uint64_t pending : 20;   // arrivals that the phase still lacks
    uint64_t expected : 20;  // arrivals of each phase
    int64_t bytes : 21;      // that the phase still lacks; below 0 where they came too early
    uint64_t parity : 1;     // of the phase that goes on
    uint64_t mark : 2;       // 1 once initialized; unset memory has 3
};
static_assert(sizeof(Bits) == sizeof(uint64_t));

Bits read(const uint64_t* at) {
    Bits bits;
    std::copy_n(reinterpret_cast<const char*>(at), sizeof bits, reinterpret_cast<char*>(&bits));
    return bits;
}
void write(uint64_t* at, const Bits& bits) {
    std::copy_n(reinterpret_cast<const char*>(&bits), sizeof bits, reinterpret_cast<char*>(at));
}

/// What is known of an mbarrier besides its bits, for people.
struct History {
    uint64_t phase = 0;
    std::vector<std::pair<uint3, uint3>> arrived;  // threads of which blocks, in this phase
    Site announced{};                              // where bytes were last
};
thread_local std::unordered_map<const uint64_t*, History> histories;

std::string place(const uint64_t* at) { return "the mbarrier at " + place_in_shared(at); }

/// Its bits, which must be an mbarrier's.
Bits require(const uint64_t* at, const Site& site) {
    require_present(owner_of(at, site), site);
    const Bits bits = read(at);
    if (reinterpret_cast<uintptr_t>(at) % 8 != 0 || bits.mark != 1)
        fail(3, "%s: %s is not initialized", text(site).c_str(), place(at).c_str());
    return bits;
}

/// Writes the bits. If nothing is missing any more the next phase begins.
void update(uint64_t* at, Bits bits) {
    const bool complete = bits.pending == 0 && bits.bytes == 0;
    if (complete) {
        bits.parity ^= 1;
        bits.pending = bits.expected;
        History& history = histories[at];
        ++history.phase;
        history.arrived.clear();
    }
    write(at, bits);
    if (complete) look_again();
}

void change_bytes(uint64_t* at, int64_t by, const Site& site) {
    Bits bits = require(at, site);
    const int64_t bytes = bits.bytes + by;
    if (bytes > kMostBytes || bytes < -kMostBytes)
        fail(3, "%s: %s counts up to %d bytes, not %lld", text(site).c_str(), place(at).c_str(),
             kMostBytes, static_cast<long long>(bytes));
    bits.bytes = bytes;
    update(at, bits);
}

class PhaseEnds final : public Condition {
  public:
    PhaseEnds(const uint64_t* at, uint32_t parity) : at_(at), parity_(parity) {}

    bool holds() const override { return read(at_).parity != parity_; }
    std::string missing() const override {
        const Bits bits = read(at_);
        const History& history = histories[at_];
        std::string text = "phase " + std::to_string(history.phase) + " (parity " +
                           std::to_string(parity_) + ") of " + place(at_) + " has " +
                           std::to_string(bits.expected - bits.pending) + " of " +
                           std::to_string(bits.expected) + " arrivals";
        if (bits.bytes > 0) text += " and lacks " + std::to_string(bits.bytes) + " bytes";
        if (bits.bytes < 0)
            text += " and " + std::to_string(-bits.bytes) + " bytes that nobody announced";
        const char* before = "; arrived: ";
        for (const auto& [thread, block] : history.arrived) {
            text += before + ("thread " + simulator::text(thread)) + " of block " +
                    simulator::text(block);
            before = ", ";
        }
        return text;
    }

  private:
    const uint64_t* at_;
    uint32_t parity_;
};

/// A block's mbarriers.
struct OfBlock final : ThreadState {
    std::vector<uint64_t*> all;

    void begin_block() override { all.clear(); }
    void leave_block() override {
        for (const uint64_t* at : all) {
            const Bits bits = read(at);
            const Site& site = histories[at].announced;
            if (bits.mark == 1 && bits.bytes < 0 && site.what)
                fail(3, "leaves the kernel, and %s has got %d bytes more than %s announced",
                     place(at).c_str(), -int(bits.bytes), text(site).c_str());
        }
    }
};

}  // namespace

void mbarrier_init(uint64_t* at, uint32_t arrivals, Site site) {
    if (arrivals == 0 || arrivals > kMostArrivals)
        fail(3, "%s: an mbarrier expects 1 to %u arrivals, not %u", text(site).c_str(),
             kMostArrivals, arrivals);
    owner_of(at, site);
    histories[at] = {};
    own<OfBlock>(block_state(StateOf::kBarriers)).all.push_back(at);
    write(at, {arrivals, arrivals, 0, 0, 1});
}

void mbarrier_arrive(uint64_t* at, Site site) {
    Bits bits = require(at, site);
    if (bits.pending == 0)
        fail(3, "%s: %s has all %u arrivals of its phase %llu already", text(site).c_str(),
             place(at).c_str(), unsigned(bits.expected),
             static_cast<unsigned long long>(histories[at].phase));
    --bits.pending;
    histories[at].arrived.emplace_back(threadIdx, blockIdx);
    update(at, bits);
}

void mbarrier_expect_bytes(uint64_t* at, uint32_t bytes, Site site) {
    histories[at].announced = site;
    change_bytes(at, bytes, site);
}

void mbarrier_complete_bytes(uint64_t* at, uint32_t bytes, Site site) {
    change_bytes(at, -int64_t(bytes), site);
}

void mbarrier_wait(const uint64_t* at, uint32_t parity, Site site) {
    require(at, site);
    wait_until(PhaseEnds(at, parity), site);
}

}  // namespace simulator
