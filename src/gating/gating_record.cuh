// The suite's fastest fused gating, for programs that show it below their own kernels.
#pragma once

#include "gating/gating_hopper.cuh"
#include "gating/gating_mma.cuh"
#include "gating/gating_talk.cuh"

/// As Session::run() takes records: of each shape the fastest first.
inline std::vector<demo::Contender> gating_records(const demo::Gating& g, const demo::Gpu& gpu) {
    demo::Contender portable = gating_mma::contender(g, gpu);
    portable.only = "square";  // of the talk's shape fused_talk_mma is faster
    return {demo::record("bonus_gating_hopper", gating_hopper::contender(g, gpu)),
            demo::record("bonus_gating_talk", talk_hopper::contender(g, gpu)),
            demo::record("bonus_gating_mma", portable),
            demo::record("bonus_gating_talk", talk_mma::contender(g, gpu))};
}
