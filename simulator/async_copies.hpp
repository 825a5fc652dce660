// cp.async and its kin: small copies into shared memory that a thread starts and waits for itself.
#pragma once

#include <cstddef>

#include "call_site.hpp"

namespace simulator {

/// The copy takes place at its wait and not before, and until then `to` is NaN bytes, because a GPU
/// may do it at any moment in between.
void async_copy(void* to, const void* from, size_t bytes, size_t zero_bytes, Site site);
void async_commit();
void async_wait(size_t groups_still_allowed);

}  // namespace simulator
