// wgmma: products of tiles in shared memory, by the four warps of a warpgroup.
#pragma once

#include <cstdint>

#include "call_site.hpp"

namespace simulator {

enum class Operand { kHalf, kBfloat16, kTf32 };

/// Starts sums[64, N] (+)= A[64, 16] B[16, N], where each thread has N / 2 sums. A's rows run along
/// k, or with `a_across_k`, of [16, 64], along m; B's along n, or with `b_along_k`, of [N, 16],
/// along k as well. In TF32 they always do, and A is [64, 8]. A is in shared memory, or, where
/// `own_a` is not null, in four registers of each thread. All lanes of a warp call it together.
void wgmma(Operand type, float* sums, int sums_of_a_thread, uint64_t a, const uint32_t* own_a,
           uint64_t b, bool keep, Site site, bool b_along_k = false, bool a_across_k = false);

void wgmma_fence();
void wgmma_commit(Site site);
void wgmma_wait(size_t groups_still_allowed, Site site);

}  // namespace simulator
