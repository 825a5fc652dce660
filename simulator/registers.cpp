#include "registers.hpp"

#include <algorithm>
#include <string>

#include "cuda/device_launch_parameters.h"
#include "errors.hpp"
#include "scheduler.hpp"

namespace simulator {
namespace {

constexpr int kOfABlock = 65536, kMost = 255;

/// What a block's warps have, a thread: at first as many as fit, which the compiler gives to a
/// kernel of which one block fills a multiprocessor.
struct Registers final : ThreadState {
    int of_warp[32], free;  // free: summed over warps

    Registers() { begin_block(); }
    void begin_block() override {
        const int threads = int(blockDim.x * blockDim.y * blockDim.z), warps = (threads + 31) / 32;
        std::fill_n(of_warp, 32, std::min(kOfABlock / (warps * 32) / 8 * 8, kMost));
        free = 0;
    }
};

struct Enough final : Condition {
    const Registers& block;
    unsigned int warp;
    int wanted;

    Enough(const Registers& block, unsigned int warp, int wanted)
        : block(block), warp(warp), wanted(wanted) {}
    int lacking() const { return wanted - block.of_warp[warp] - block.free; }
    bool holds() const override { return lacking() <= 0; }
    std::string missing() const override {
        return "a warp that has " + std::to_string(block.of_warp[warp]) +
               " registers a thread wants " + std::to_string(wanted) + ", and the block has " +
               std::to_string(block.free) + " to give";
    }
};

Registers& registers() { return own<Registers>(block_state(StateOf::kRegisters)); }

void require(bool right, int wanted, const Site& site) {
    if (!right || wanted % 8 != 0 || wanted < 24 || wanted > 256)
        fail(3, "%s: %d is no multiple of 8 from 24 to 256, or no change that way",
             text(site).c_str(), wanted);
}

}  // namespace

// All lanes of a warp call these; the first one's call does it.

void release_registers(int wanted, Site site) {
    Registers& block = registers();
    int& own = block.of_warp[thread_number() / 32];
    require(own >= wanted, wanted, site);
    block.free += own - wanted;
    own = wanted;
    look_again();
}

void ask_for_registers(int wanted, Site site) {
    Registers& block = registers();
    const unsigned int warp = thread_number() / 32;
    int& own = block.of_warp[warp];
    require(own <= wanted, wanted, site);
    wait_until(Enough(block, warp, wanted), site);
    block.free -= wanted - own;
    own = wanted;
}

}  // namespace simulator
