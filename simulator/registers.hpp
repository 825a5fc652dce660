// setmaxnreg: warps that hand registers to other warps of their block.
#pragma once

#include "call_site.hpp"

namespace simulator {

/// The running thread's warp keeps `registers` a thread, and the block has the rest.
void release_registers(int registers, Site site);

/// Waits until the block has enough for this warp to have `registers` a thread.
void ask_for_registers(int registers, Site site);

}  // namespace simulator
