#include "pages.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "errors.hpp"

namespace simulator {
namespace {

[[noreturn]] void fail_for(const char* call, size_t bytes) {
    fail(3, "too little memory: %s of %zu bytes: %s; ulimit -v and -d may limit it", call, bytes,
         std::strerror(errno));
}

}  // namespace

char* map_pages(size_t bytes, int protection) {
    void* const mapped =
        mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) fail_for("mmap", bytes);
    return static_cast<char*>(mapped);
}

void protect_pages(void* begin, size_t bytes, int protection) {
    if (mprotect(begin, bytes, protection) != 0) fail_for("mprotect", bytes);
}

}  // namespace simulator
