// A place in a kernel: what its threads call there, for errors and counts.
#pragma once

#include <cstring>
#include <string>

#include "cuda/vector_types.h"

namespace simulator {

struct Site {
    const char* what;  // "__syncthreads()"
    const char* file;
    int line;

    bool operator==(const Site& other) const {
        return line == other.line && what == other.what &&
               (file == other.file || std::strcmp(file, other.file) == 0);
    }
};

/// "__syncthreads() in f.cu:3", and "(0,0,0)".
inline std::string text(const Site& site) {
    return std::string(site.what) + " in " + site.file + ":" + std::to_string(site.line);
}
inline std::string text(uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

/// A function's last parameters, which its callers leave out: where it is called.
#define SIMULATOR_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

}  // namespace simulator
