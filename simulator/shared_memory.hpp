// Shared memory: of each block of the cluster that runs, as threads see it and as copy engines and
// tensor cores do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "call_site.hpp"
#include "cuda/vector_types.h"
#include "current_thread.hpp"

namespace simulator {

/// Addresses within a block's shared memory are those of a window of this size.
inline constexpr size_t kSharedWindow = 256 << 10;

/// The address within shared memory that a pointer into the block's, or another one of its
/// cluster's, has. And the pointer for an address in the block of this rank.
uint32_t shared_address(const void* pointer, const Site& site);
char* shared_pointer(uint32_t address, unsigned int rank);

/// The rank of the block that a pointer into shared memory belongs to.
unsigned int owner_of(const void* pointer, const Site& site);

/// In words: "byte 64 of dynamic shared memory".
std::string place_in_shared(const void* pointer);

/// The same memory as copy engines and tensor cores see it (the "async proxy"): what they wrote,
/// and what threads wrote before a publish_shared(), fence.proxy.async.
char* async_view(uint32_t address, unsigned int rank);
void publish_shared();

/// The 16 bytes there, for a copy engine or a tensor core. Fails where threads see others.
const char* read_async(uint32_t address, unsigned int rank, const Site& site);

/// The block's dynamic shared memory, as a pointer to whatever it is declared to hold, with the
/// alignment that it is declared to have.
struct DynamicShared {
    void* data;
    template <class T>
    operator T*() const {
        return static_cast<T*>(data);
    }
};
DynamicShared dynamic_shared(size_t alignment = 16);

/// Where a __shared__ variable lies in every block's shared memory during a launch.
struct StaticShared {
    uint64_t launch = 0;
    size_t offset = 0;
};
void* static_shared(StaticShared& variable, size_t bytes, size_t alignment);

/// The running block's variable of this type, of which there is one type for each.
template <class T>
T& static_shared() {
    static thread_local StaticShared variable;
    return *static_cast<T*>(static_shared(variable, sizeof(T), alignof(T)));
}

/// Tells the trace what a __shared__ array is called, or a pointer to dynamic shared memory.
void count_shared(const void* array, size_t bytes, const std::type_info& type, size_t rows,
                  size_t columns, const char* name);
template <class T>
void name_shared([[maybe_unused]] T& array, [[maybe_unused]] const char* name) {
#ifdef SIMULATOR_COUNT
    if constexpr (std::is_pointer_v<T>)
        count_shared(array, running_launch->shared_bytes, typeid(std::remove_pointer_t<T>), 0, 0,
                     name);
    else
        count_shared(&array, sizeof array, typeid(std::remove_all_extents_t<T>), std::extent_v<T>,
                     std::extent_v<T, 1>, name);
#endif
}

/// Of an address right after a block's dynamic shared memory: how far it is from the beginning.
/// Else nothing.
std::optional<size_t> bytes_into_dynamic_shared(const void* address);

/// Of an address in shared memory of a block that has left the kernel: which one it is. Else empty.
std::string block_that_left(const void* address);

/// What a worker has for the blocks of a cluster.
class SharedMemory {
  public:
    SharedMemory();

    /// All of it anew, for `blocks` blocks of launch number `launch`. From now on the functions
    /// above mean this one.
    void begin(uint64_t launch, unsigned int blocks, size_t dynamic_bytes);

    /// A block has left its cluster: nobody may reach its memory any more.
    void close(unsigned int rank, uint3 block);

    /// No block runs.
    static void end();

    const void* begin_of_all() const { return all_; }
    static size_t stride();  // from block to block

    unsigned int rank_of(const void* pointer, const Site& site) const;
    std::string place(const void* pointer) const;
    uint32_t address_of(const void* pointer) const;
    char* at(uint32_t address, unsigned int rank) { return window(rank) + address; }
    char* async_view(uint32_t address, unsigned int rank);
    void publish(unsigned int rank);
    char* dynamic_of(unsigned int rank, size_t alignment);
    void* variable_of(unsigned int rank, StaticShared& variable, size_t bytes, size_t alignment);
    std::optional<size_t> bytes_into_dynamic(const void* address) const;
    std::string block_that_left(const void* address) const;

  private:
    struct Block {
        bool guarded = false;         // the page after the window
        bool has_async_view = false;  // somebody asked for it
        std::optional<uint3> left{};  // which block it was
    };
    struct Variable {
        size_t begin, bytes;
    };
    char* window(unsigned int rank) const;
    std::optional<unsigned int> rank_of(const void* address) const;  // in the window or after it
    void place_dynamic();
    void spoil_dynamic(unsigned int rank);

    char* all_;  // of each block: the window, a guard page, the async proxy's view
    std::vector<Block> blocks_;
    unsigned int running_ = 0;         // blocks
    uint64_t launch_ = 0;              // which the rest describes
    std::vector<Variable> variables_;  // __shared__; what lies between may be poisoned
    size_t static_bytes_ = 0, dynamic_bytes_ = 0, dynamic_begin_ = kSharedWindow;
    size_t dynamic_alignment_ = 0;
};

}  // namespace simulator
