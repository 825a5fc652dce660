// Names for what profilers show.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace demo {

/// A named range of the program, from here to the end of the scope, for profilers: it groups what
/// scripts/profile.sh and Nsight Systems show. Without a profiler it costs a few nanoseconds.
struct Range {
    explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
    ~Range() { nvtxRangePop(); }
    Range(const Range&) = delete;
};

}  // namespace demo
