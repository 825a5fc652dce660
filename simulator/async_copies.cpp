#include "async_copies.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

#include "count.hpp"
#include "errors.hpp"
#include "scheduler.hpp"

namespace simulator {
namespace {

struct Copy {
    void* to;
    const void* from;
    size_t bytes, zero_bytes;
    unsigned int group;
};

/// A thread's copies that it has not waited for.
struct Copies final : ThreadState {
    std::vector<Copy> pending;
    unsigned int groups = 0;  // committed so far

    void begin_block() override {
        pending.clear();
        groups = 0;
    }
};
Copies& copies() { return own<Copies>(thread_state(StateOf::kCopies)); }

}  // namespace

void async_copy(void* to, const void* from, size_t bytes, size_t zero_bytes, Site site) {
    Copies& own = copies();
    const bool aligned = reinterpret_cast<uintptr_t>(to) % bytes == 0 &&
                         reinterpret_cast<uintptr_t>(from) % bytes == 0;
    if ((bytes != 4 && bytes != 8 && bytes != 16) || zero_bytes > bytes || !aligned)
        fail(3, "%s: %zu bytes from %p to %p: it copies 4, 8 or 16 bytes between multiples of that",
             text(site).c_str(), bytes, from, to);
    if (bytes > zero_bytes) count_access(from, bytes - zero_bytes, false, site);
    count_access(to, bytes, true, site);
    std::memset(to, 0xFF, bytes);
    own.pending.push_back({to, from, bytes, zero_bytes, own.groups});
}

void async_commit() { ++copies().groups; }

void async_wait(size_t groups_still_allowed) {
    Copies& own = copies();
    std::erase_if(own.pending, [&](const Copy& copy) {
        if (copy.group + groups_still_allowed >= own.groups) return false;
        const size_t taken = copy.bytes - copy.zero_bytes;
        std::memcpy(copy.to, copy.from, taken);
        std::memset(static_cast<char*>(copy.to) + taken, 0, copy.zero_bytes);
        return true;
    });
}

}  // namespace simulator
