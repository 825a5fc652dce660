// Pages of memory from the system. Where it has no more, the program ends.
#pragma once

#include <cstddef>

namespace simulator {

inline constexpr size_t kPage = 4096;

/// New pages, which take up memory once they are touched. `protection` is mmap()'s.
char* map_pages(size_t bytes, int protection);

void protect_pages(void* begin, size_t bytes, int protection);

}  // namespace simulator
