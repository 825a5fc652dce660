#include "bulk_copies.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "count.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "mbarrier.hpp"
#include "scheduler.hpp"
#include "shared_memory.hpp"
#include "tensor_map.hpp"

namespace simulator {
namespace {

void require_aligned(const void* pointer, size_t to, const char* what, const Site& site) {
    if (reinterpret_cast<uintptr_t>(pointer) % to != 0)
        fail(3, "%s: %s %p is no multiple of %zu", text(site).c_str(), what, pointer, to);
}

/// An mbarrier at the same address in another block.
uint64_t* barrier_of(uint32_t address, uint32_t rank) {
    return reinterpret_cast<uint64_t*>(shared_pointer(address, rank));
}

/// Writes into shared memory, as everybody sees it.
void write_shared(uint32_t address, uint32_t rank, const void* from, size_t bytes) {
    std::memcpy(shared_pointer(address, rank), from, bytes);
    std::memcpy(async_view(address, rank), from, bytes);
}

/// What a copy will write is anything until it has: NaN bytes.
void spoil_shared(uint32_t address, uint32_t rank, size_t bytes) {
    std::memset(shared_pointer(address, rank), 0xFF, bytes);
    std::memset(async_view(address, rank), 0xFF, bytes);
}

size_t sectors_of(const void* address, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    return (begin + bytes + 31) / 32 - begin / 32;
}

/// Where a box lies, and how to go over it row by row.
struct Box {
    TensorMap map;
    std::array<int64_t, 5> at{};

    Box(const CUtensorMap& encoded, std::initializer_list<int> coordinates, const Site& site)
        : map(decode(encoded, site)) {
        if (coordinates.size() != map.rank)
            fail(3, "%s: %zu coordinates for a map of %u dimensions", text(site).c_str(),
                 coordinates.size(), map.rank);
        std::copy(coordinates.begin(), coordinates.end(), at.begin());
        if (at[0] * map.element_bytes % 16 != 0)  // an illegal instruction, where there is a GPU
            fail(3, "%s: column %d is %d bytes into a row, no multiple of 16", text(site).c_str(),
                 int(at[0]), int(at[0] * map.element_bytes));
    }

    size_t row_bytes() const { return size_t(map.box[0]) * map.element_bytes; }

    /// Calls visit(offset in the box, address in global memory, bytes within the matrix), of each
    /// of the box's rows: the bytes begin `before` bytes into the row.
    template <class Visit>
    void for_each_row(Visit visit) const {
        std::array<int64_t, 5> i{};
        const int64_t first = std::max<int64_t>(0, -at[0]);
        const int64_t last = std::min(map.box[0], map.size[0] - at[0]);
        for (size_t offset = 0;; offset += row_bytes()) {
            bool inside = first < last;
            char* address = map.data + (at[0] + first) * map.element_bytes;
            for (unsigned int d = 1; d < map.rank; ++d) {
                const int64_t place = at[d] + i[d];
                inside = inside && place >= 0 && place < map.size[d];
                address += place * map.pitch[d];
            }
            visit(offset, address, size_t(first) * map.element_bytes,
                  inside ? size_t(last - first) * map.element_bytes : 0);
            unsigned int d = 1;
            while (d < map.rank && ++i[d] == map.box[d]) i[d++] = 0;
            if (d >= map.rank) return;
        }
    }

    /// Counts what it touches of global memory: what lies outside the matrix is neither read nor
    /// written.
    void count(bool store, const Site& site) const {
        size_t bytes = 0, sectors = 0;
        for_each_row([&](size_t, const char* address, size_t, size_t inside) {
            bytes += inside;
            if (inside) sectors += sectors_of(address, inside);
        });
        count_box(store, bytes, sectors, site);
    }
};

/// A thread's copies from shared memory that it has not waited for.
class Stores final : public ThreadState {
  public:
    struct Store {
        std::function<void()> work;  // empty once it is done
        unsigned int group;
        Site site;
    };
    std::vector<Store> pending;
    unsigned int groups = 0;  // committed so far

    void begin_block() override {
        pending.clear();
        groups = 0;
    }
    void leave_kernel() override {
        if (pending.empty()) return;
        const Store& store = pending.front();
        fail(3, "leaves the kernel, and %s may still read its shared memory: %s",
             text(store.site).c_str(),
             store.group == groups ? "its group was not committed" : "nobody waited for it");
    }
};
Stores& stores() { return own<Stores>(thread_state(StateOf::kStores)); }

}  // namespace

void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site site) {
    if (bytes == 0 || bytes % 16 != 0)
        fail(3, "%s: %u bytes are no multiple of 16", text(site).c_str(), bytes);
    require_aligned(to, 16, "the address in shared memory", site);
    require_aligned(from, 16, "the address in global memory", site);
    const uint32_t address = shared_address(to, site), rank = owner_of(to, site);
    count_box(false, bytes, sectors_of(from, bytes), site);
    spoil_shared(address, rank, bytes);
    start_work([=] {
        write_shared(address, rank, from, bytes);
        mbarrier_complete_bytes(barrier, bytes, site);
    });
}

void tensor_load(void* to, const CUtensorMap& map, std::initializer_list<int> at, uint64_t* barrier,
                 uint32_t ranks, Site site) {
    const Box box(map, at, site);
    require_aligned(to, 128, "the address in shared memory", site);
    const uint32_t address = shared_address(to, site), signal = shared_address(barrier, site);
    box.count(false, site);  // once, however many blocks get it
    for (uint32_t rank = 0; rank < kMaxClusterBlocks; ++rank) {
        if (!(ranks >> rank & 1)) continue;
        require_present(rank, site);
        spoil_shared(address, rank, box.map.box_bytes());
    }
    start_work([=] {
        for (uint32_t rank = 0; rank < kMaxClusterBlocks; ++rank) {
            if (!(ranks >> rank & 1)) continue;
            require_present(rank, site);
            box.for_each_row([&](size_t offset, const char* from, size_t before, size_t bytes) {
                char row[2048] = {};  // what lies outside is 0
                if (bytes) std::memcpy(row + before, from, bytes);
                for (size_t chunk = 0; chunk < box.row_bytes(); chunk += 16)
                    write_shared(
                        swizzled(uint32_t(address + offset + chunk), box.map.swizzle_bytes), rank,
                        row + chunk, 16);
            });
            mbarrier_complete_bytes(barrier_of(signal, rank), uint32_t(box.map.box_bytes()), site);
        }
    });
}

void tensor_store(const CUtensorMap& map, std::initializer_list<int> at, const void* from,
                  Site site) {
    const Box box(map, at, site);
    if (std::min(at) < 0)  // an illegal instruction, too
        fail(3, "%s: stores cannot begin in front of the matrix, at %d", text(site).c_str(),
             std::min(at));
    require_aligned(from, 128, "the address in shared memory", site);
    const uint32_t address = shared_address(from, site), rank = owner_of(from, site);
    box.count(true, site);
    auto work = [=] {
        box.for_each_row([&](size_t offset, char* to, size_t before, size_t bytes) {
            char row[2048];
            for (size_t chunk = 0; chunk < box.row_bytes(); chunk += 16)
                std::memcpy(
                    row + chunk,
                    read_async(swizzled(uint32_t(address + offset + chunk), box.map.swizzle_bytes),
                               rank, site),
                    16);
            if (bytes) std::memcpy(to, row + before, bytes);
        });
    };
    Stores& own = stores();
    if (as_late_as_allowed()) {
        own.pending.push_back({work, own.groups, site});
    } else {
        work();
        own.pending.push_back({nullptr, own.groups, site});
    }
}

void commit_stores() { ++stores().groups; }

void wait_for_stores(size_t groups_still_allowed) {
    Stores& own = stores();
    std::erase_if(own.pending, [&](const Stores::Store& store) {
        if (store.group + groups_still_allowed >= own.groups) return false;
        if (store.work) store.work();
        return true;
    });
}

void remote_store(void* to, uint64_t value, uint64_t* barrier, uint32_t rank, Site site) {
    require_aligned(to, 8, "the address in shared memory", site);
    const uint32_t address = shared_address(to, site), signal = shared_address(barrier, site);
    require_present(rank, site);
    start_work([=] {
        require_present(rank, site);
        write_shared(address, rank, &value, sizeof value);
        mbarrier_complete_bytes(barrier_of(signal, rank), sizeof value, site);
    });
}

}  // namespace simulator
