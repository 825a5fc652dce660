// The suite's fastest attention, for programs that show it below their own kernels.
#pragma once

#include "attention/attention_hopper.cuh"
#include "attention/attention_mma.cuh"

namespace attention {

template <int D>
std::vector<demo::Contender> records(const demo::Attention& a, const demo::Gpu& gpu) {
    return {demo::record("bonus_attention", attention_hopper::contender<D>(a, gpu)),
            demo::record("bonus_attention", attention_mma::contender<D>(a, gpu))};
}

/// As Session::run() takes records: the fastest first.
inline std::vector<demo::Contender> records(const demo::Attention& a, const demo::Gpu& gpu) {
    return a.shape.D == 64 ? records<64>(a, gpu) : records<128>(a, gpu);
}

}  // namespace attention
