// Where an address lies, for people.
#pragma once

#include <string>

namespace simulator {

/// "address 0x7f0c, 12 bytes into buffer 2 (132 bytes, allocated in f.cu:3)".
std::string describe(const void* address);

}  // namespace simulator
