// What device functions are made of: threads of a block that meet at barriers and at warp-wide
// operations, and copy.
#pragma once

#include <cstddef>
#include <optional>

#include "call_site.hpp"

namespace simulator {

/// The thread of the kernel that is running: its number in its warp.
unsigned int lane();

/// Waits for all threads of the block. Returns for how many of them `predicate` held.
int block_meet(bool predicate, Site site);

/// Waits for the lanes of `mask`. The last to come calls finish(records, mask) for all of them,
/// where records[lane] is what that lane passed: the arguments, and room for its result.
void warp_meet(unsigned int mask, void* record, void (*finish)(void* const*, unsigned int),
               Site site);

/// cp.async and its kin: the copy takes place at its wait and not before, and until then `to` is
/// NaN bytes, because a GPU may do it at any moment in between.
void async_copy(void* to, const void* from, size_t bytes, size_t zero_bytes, Site site);
void async_commit();
void async_wait(size_t groups_still_allowed);

/// The block's dynamic shared memory, as a pointer to whatever it is declared to hold.
struct DynamicShared {
    void* data;
    template <class T>
    operator T*() const {
        return static_cast<T*>(data);
    }
};
DynamicShared dynamic_shared();

/// Whether an address is where a thread of the running block gets that overflows its stack.
bool below_a_stack(const void* address);

/// Of an address right behind the running block's dynamic shared memory: how far it is from the
/// beginning. Else nothing.
std::optional<size_t> bytes_into_dynamic_shared(const void* address);

}  // namespace simulator
