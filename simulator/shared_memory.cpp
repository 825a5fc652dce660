#include "shared_memory.hpp"

#include <sys/mman.h>

#include <cstring>

#include "current_thread.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "pages.hpp"

#ifdef SIMULATOR_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

namespace simulator {
namespace {

constexpr size_t kStride = 2 * (kSharedWindow + kPage);

constinit thread_local SharedMemory* current = nullptr;  // of the cluster that runs

SharedMemory& running(const char* what) {
    if (!current) fail(3, "%s was called outside of a kernel", what);
    return *current;
}

}  // namespace

SharedMemory::SharedMemory()
    : all_(map_pages(kMaxClusterBlocks * kStride, PROT_READ | PROT_WRITE)),
      blocks_(kMaxClusterBlocks) {}

size_t SharedMemory::stride() { return kStride; }

char* SharedMemory::window(unsigned int rank) const { return all_ + rank * kStride; }

void SharedMemory::begin(uint64_t launch, unsigned int blocks, size_t dynamic_bytes) {
    current = this;
    if (launch_ != launch) variables_.clear(), static_bytes_ = 0, dynamic_alignment_ = 128;
    launch_ = launch;
    running_ = blocks;
    dynamic_bytes_ = dynamic_bytes;
    place_dynamic();
    for (unsigned int rank = 0; rank < blocks; ++rank) {
        Block& block = blocks_[rank];
        if (!block.guarded) protect_pages(window(rank) + kSharedWindow, kPage, PROT_NONE);
        if (block.left) protect_pages(window(rank), kSharedWindow, PROT_READ | PROT_WRITE);
        block = {true, false, {}};
        for (const Variable& v : variables_) std::memset(window(rank) + v.begin, 0xFF, v.bytes);
        spoil_dynamic(rank);
    }
}

void SharedMemory::end() { current = nullptr; }

void SharedMemory::close(unsigned int rank, uint3 block) {
    protect_pages(window(rank), kSharedWindow, PROT_NONE);
    blocks_[rank].left = block;
}

/// As far back as alignment allows, so that its end is the guard page.
void SharedMemory::place_dynamic() {
    dynamic_begin_ = (kSharedWindow - dynamic_bytes_) / dynamic_alignment_ * dynamic_alignment_;
}

/// Nobody has written there yet: NaN bytes.
void SharedMemory::spoil_dynamic(unsigned int rank) {
    char* const own = window(rank);
#ifdef SIMULATOR_SANITIZE
    ASAN_UNPOISON_MEMORY_REGION(own + dynamic_begin_, kSharedWindow - dynamic_begin_);
    ASAN_POISON_MEMORY_REGION(own + static_bytes_, dynamic_begin_ - static_bytes_);
    ASAN_POISON_MEMORY_REGION(own + dynamic_begin_ + dynamic_bytes_,
                              kSharedWindow - dynamic_begin_ - dynamic_bytes_);
#endif
    std::memset(own + dynamic_begin_, 0xFF, dynamic_bytes_);
    if (blocks_[rank].has_async_view)
        std::memset(async_view(uint32_t(dynamic_begin_), rank), 0xFF, dynamic_bytes_);
}

char* SharedMemory::dynamic_of(unsigned int rank, size_t alignment) {
    if (alignment > dynamic_alignment_) {  // the launch's first thread that comes here
        dynamic_alignment_ = alignment;
        place_dynamic();
        for (unsigned int each = 0; each < running_; ++each)
            if (!blocks_[each].left) spoil_dynamic(each);
    }
    return window(rank) + dynamic_begin_;
}

void* SharedMemory::variable_of(unsigned int rank, StaticShared& variable, size_t bytes,
                                size_t alignment) {
    if (variable.launch != launch_) {
        const size_t begin = (static_bytes_ + alignment - 1) / alignment * alignment;
        if (begin + bytes > kSharedBytes || begin + bytes > dynamic_begin_)
            fail(3, "the kernel's __shared__ variables take more than there is: %zu bytes",
                 begin + bytes);
        variable = {launch_, begin};
        static_bytes_ = begin + bytes;
        variables_.push_back({begin, bytes});
        for (unsigned int each = 0; each < running_; ++each) {
            if (blocks_[each].left) continue;
#ifdef SIMULATOR_SANITIZE
            ASAN_UNPOISON_MEMORY_REGION(window(each) + begin, bytes);
#endif
            std::memset(window(each) + begin, 0xFF, bytes);
            if (blocks_[each].has_async_view)
                std::memset(async_view(uint32_t(begin), each), 0xFF, bytes);
        }
#ifdef SIMULATOR_SANITIZE
        static_bytes_ += 32;  // what lies between variables stays poisoned
#endif
    }
    return window(rank) + variable.offset;
}

char* SharedMemory::async_view(uint32_t address, unsigned int rank) {
    char* const view = window(rank) + kSharedWindow + kPage;
    if (!blocks_[rank].has_async_view) {
        std::memset(view + dynamic_begin_, 0xFF, kSharedWindow - dynamic_begin_);
        std::memset(view, 0xFF, static_bytes_);
        blocks_[rank].has_async_view = true;
    }
    return view + address;
}

void SharedMemory::publish(unsigned int rank) {
    char *const view = async_view(0, rank), *const own = window(rank);
    std::memcpy(view + dynamic_begin_, own + dynamic_begin_, dynamic_bytes_);
    for (const Variable& v : variables_) std::memcpy(view + v.begin, own + v.begin, v.bytes);
}

std::optional<unsigned int> SharedMemory::rank_of(const void* address) const {
    const size_t byte = static_cast<const char*>(address) - all_;
    if (byte >= running_ * kStride || byte % kStride >= kSharedWindow + kPage) return {};
    return unsigned(byte / kStride);
}

unsigned int SharedMemory::rank_of(const void* pointer, const Site& site) const {
    const auto rank = rank_of(pointer);
    if (!rank) fail(3, "%s: %p is not in shared memory", text(site).c_str(), pointer);
    return *rank;
}

uint32_t SharedMemory::address_of(const void* pointer) const {
    return uint32_t((static_cast<const char*>(pointer) - all_) % kStride);
}

std::string SharedMemory::place(const void* pointer) const {
    const uint32_t byte = address_of(pointer);
    if (byte < dynamic_begin_) return "byte " + std::to_string(byte) + " of shared memory";
    return "byte " + std::to_string(byte - dynamic_begin_) + " of dynamic shared memory";
}

std::optional<size_t> SharedMemory::bytes_into_dynamic(const void* address) const {
    if (!rank_of(address) || address_of(address) < kSharedWindow) return {};
    return address_of(address) - dynamic_begin_;
}

std::string SharedMemory::block_that_left(const void* address) const {
    const auto rank = rank_of(address);
    return rank && blocks_[*rank].left ? text(*blocks_[*rank].left) : "";
}

// --- Of the block that runs ---------------------------------------------------------------------

uint32_t shared_address(const void* pointer, const Site& site) {
    owner_of(pointer, site);
    return running(site.what).address_of(pointer);
}

char* shared_pointer(uint32_t address, unsigned int rank) {
    return running("a shared address").at(address, rank);
}

unsigned int owner_of(const void* pointer, const Site& site) {
    return running(site.what).rank_of(pointer, site);
}

std::string place_in_shared(const void* pointer) {
    return running("a shared address").place(pointer);
}

char* async_view(uint32_t address, unsigned int rank) {
    return running("a shared address").async_view(address, rank);
}

void publish_shared() { running("fence.proxy.async").publish(running_rank); }

const char* read_async(uint32_t address, unsigned int rank, const Site& site) {
    const char* const view = async_view(address, rank);
    const char* const seen_by_threads = shared_pointer(address, rank);
    if (std::memcmp(view, seen_by_threads, 16) != 0)
        fail(3, "%s: %s was written by a thread, without a fence_proxy_async()", text(site).c_str(),
             place_in_shared(seen_by_threads).c_str());
    return view;
}

DynamicShared dynamic_shared(size_t alignment) {
    return {running("extern __shared__").dynamic_of(running_rank, alignment)};
}

void* static_shared(StaticShared& variable, size_t bytes, size_t alignment) {
    return running("__shared__").variable_of(running_rank, variable, bytes, alignment);
}

std::optional<size_t> bytes_into_dynamic_shared(const void* address) {
    return current ? current->bytes_into_dynamic(address) : std::nullopt;
}

std::string block_that_left(const void* address) {
    return current ? current->block_that_left(address) : "";
}

}  // namespace simulator
