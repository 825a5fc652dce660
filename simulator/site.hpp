// A place in a kernel: what its threads call there, for errors and counts.
#pragma once

#include <cstring>

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

/// A function's last parameters, which its callers leave out: where it is called.
#define SIMULATOR_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

}  // namespace simulator
