// What a warp requests of memory at once, and what that costs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "device.hpp"

namespace simulator {

constexpr unsigned int kWarp = 32, kMaxWarps = 1024 / kWarp, kBanks = 32;
constexpr unsigned int kMaxBlocks = kMaxClusterBlocks;
constexpr uintptr_t kSector = 32, kWord = 4;  // bytes

enum Kind : unsigned char {
    kGlobalLoad,
    kGlobalStore,
    kGlobalAtomic,
    kSharedLoad,
    kSharedStore,
    kSharedAtomic,
    kBoxLoad,
    kBoxStore,
    kTileLoad,
    kTileStore,
    kProduct,
    kBarrier,
    kMeeting,  // of a warp: is not counted
};
constexpr const char* kNames[] = {
    "global loads",   "global stores", "global atomics", "shared loads", "shared stores",
    "shared atomics", "bulk loads",    "bulk stores",    "tile loads",   "tile stores",
    "wgmma",          "barriers",      "meetings"};
constexpr Kind kShared = kSharedLoad;  // what lies between global and shared of one operation

/// Where in the program, and what.
struct Place {
    uintptr_t code;  // an address in the code; where there is a line, the name of the file
    int line;
    unsigned short part;  // of an access that is more than one instruction's
    Kind kind;

    bool operator==(const Place&) const = default;
    size_t hash() const { return (code * 31 + size_t(line)) * 31 + part * 8u + kind; }
};
struct Hash {
    size_t operator()(const Place& place) const { return place.hash(); }
};

struct Totals {
    uint64_t threads = 0;    // accesses, each by one thread
    uint64_t requests = 0;   // instructions of a warp
    uint64_t bytes = 0;      // distinct ones, of each request
    uint64_t sectors = 0;    // of 32 bytes, that a request touches: global memory
    uint64_t conflicts = 0;  // passes over the banks beyond what the width needs: shared memory
    uint64_t asked = 0;      // bytes, of all threads: a warp's lanes may want the same ones

    void operator+=(const Totals& other) {
        threads += other.threads;
        requests += other.requests;
        bytes += other.bytes;
        sectors += other.sectors;
        conflicts += other.conflicts;
        asked += other.asked;
    }
};

/// One instruction of a warp: what each of its lanes asks for.
struct Request {
    unsigned int lanes = 0;  // a mask
    unsigned int bytes = 0;  // of each lane
    uintptr_t address[kWarp];

    /// `block_of` says which block's shared memory has an address.
    template <class BlockOf>
    Totals totals(Kind kind, BlockOf block_of) const {
        uintptr_t sorted[kWarp];
        unsigned int threads = 0;
        for (unsigned int lane = 0; lane < kWarp; ++lane)
            if (lanes >> lane & 1) sorted[threads++] = address[lane];
        if (!std::is_sorted(sorted, sorted + threads)) std::sort(sorted, sorted + threads);

        // Sectors, each once for all lanes. Atomics on one address take place one after the other,
        // each with the sector; those on other addresses of the sector, beside them.
        uint64_t distinct = 0, sectors = 0, same = 0, most = 0;
        uintptr_t next_sector = 0;  // the first that is not counted yet
        for (unsigned int i = 0; i < threads; ++i) {
            const uintptr_t first = sorted[i] / kSector, last = (sorted[i] + bytes - 1) / kSector;
            same = i > 0 && sorted[i] == sorted[i - 1] ? same + 1 : 1;
            distinct += same == 1;
            if (last >= next_sector) {
                sectors += last - std::max(first, next_sector) + 1;
                next_sector = last + 1;
                most = 1;
            }
            if (kind == kGlobalAtomic && same > most) most = same, ++sectors;
        }
        const bool is_global = kind < kShared;
        return {threads,
                1,
                distinct * bytes,
                is_global ? sectors : 0,
                is_global ? 0 : conflicts(block_of),
                uint64_t(threads) * bytes};
    }

  private:
    /// A bank gives one word at a time, to all lanes that want it. 128 bytes are served together:
    /// the whole warp's 4 bytes each, half a warp's 8, a quarter's 16. Every block has its own
    /// banks.
    template <class BlockOf>
    uint64_t conflicts(BlockOf block_of) const {
        const unsigned int together = bytes <= 4 ? kWarp : bytes <= 8 ? kWarp / 2 : kWarp / 4;
        uint64_t conflicts = 0;
        for (unsigned int begin = 0; begin < kWarp; begin += together) {
            unsigned int passes = 1;
            unsigned int left = lanes & unsigned(((uint64_t(1) << together) - 1) << begin);
            while (left) {
                const unsigned int block = block_of(address[std::countr_zero(left)]);
                uintptr_t words[kBanks][kWarp];
                unsigned int count[kBanks] = {};
                for (unsigned int lane = begin; lane < begin + together; ++lane) {
                    if (!(left >> lane & 1) || block_of(address[lane]) != block) continue;
                    left &= ~(1u << lane);
                    const uintptr_t last = (address[lane] + bytes - 1) / kWord;
                    for (uintptr_t word = address[lane] / kWord; word <= last; ++word) {
                        const unsigned int bank = word % kBanks;
                        uintptr_t *const known = words[bank], *const end = known + count[bank];
                        if (std::find(known, end, word) != end) continue;
                        *end = word;
                        passes = std::max(passes, ++count[bank]);
                    }
                }
            }
            conflicts += passes - 1;
        }
        return conflicts;
    }
};

}  // namespace simulator
