#include "wgmma.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <vector>

#include "count.hpp"
#include "cuda/cuda_bf16.h"
#include "cuda/cuda_fp16.h"
#include "errors.hpp"
#include "scheduler.hpp"
#include "shared_memory.hpp"
#include "tensor_map.hpp"

namespace simulator {
namespace {

constexpr int kRows = 16, kMostDepth = 16;  // of a warp's part of a product
constexpr int kChunk = 16;                  // bytes that lie together in shared memory

/// An operand's place in shared memory, from the 64 bits that wgmma gets: PTX ISA, "Matrix
/// Descriptor Format".
struct Descriptor {
    uint32_t address, leading_bytes, stride_bytes;
    unsigned int swizzle_bytes;

    Descriptor(uint64_t bits, const Site& site)
        : address(uint32_t(bits & 0x3FFF) << 4),
          leading_bytes(uint32_t(bits >> 16 & 0x3FFF) << 4),
          stride_bytes(uint32_t(bits >> 32 & 0x3FFF) << 4) {
        constexpr unsigned int kSwizzles[] = {0, 128, 64, 32};
        swizzle_bytes = kSwizzles[bits >> 62];
        if (bits >> 49 & 7)
            fail(3, "%s: a matrix descriptor with a base offset, which the simulator does not have",
                 text(site).c_str());
    }

    /// Of an operand whose rows run along k: where 16 bytes of a row are.
    uint32_t along_k(uint32_t row, uint32_t byte) const {
        if (swizzle_bytes == 0)  // 8 rows of 16 bytes lie together
            return address + row / 8 * stride_bytes + byte / 16 * leading_bytes + row % 8 * 16 +
                   byte % 16;
        return swizzled(address + row / 8 * stride_bytes + row % 8 * swizzle_bytes + byte,
                        swizzle_bytes);
    }

    /// Of an operand whose rows, one for each k, run across it.
    uint32_t across_k(uint32_t k, uint32_t byte) const {
        if (swizzle_bytes == 0)
            return address + byte / 16 * stride_bytes + k / 8 * leading_bytes + k % 8 * 16 +
                   byte % 16;
        return swizzled(address + byte / swizzle_bytes * leading_bytes + k / 8 * stride_bytes +
                            k % 8 * swizzle_bytes + byte % swizzle_bytes,
                        swizzle_bytes);
    }
};

/// A warp's part of a product: 16 rows.
struct Product {
    Operand type;
    uint64_t a, b;
    bool keep, b_along_k, a_across_k;
    int columns;
    unsigned int warp;  // of the warpgroup's four
    unsigned int rank;
    Site site;
    float* sums[32]{};            // of each lane
    const uint32_t* own_a[32]{};  // of each lane: A's registers; null where shared memory has it
    unsigned int group = 0;
};

/// 16 bytes' numbers: `stride` apart in `to`.
void convert(Operand type, const void* from, float* to, int stride = 1) {
    if (type == Operand::kTf32) {
        uint32_t bits[4];
        std::memcpy(bits, from, sizeof bits);
        for (int i = 0; i < 4; ++i) to[i * stride] = std::bit_cast<float>(bits[i] & ~0x1FFFu);
        return;
    }
    uint16_t bits[8];
    std::memcpy(bits, from, sizeof bits);
    for (int i = 0; i < 8; ++i)
        to[i * stride] =
            type == Operand::kHalf ? __half::to_float(bits[i]) : __nv_bfloat16::to_float(bits[i]);
}

/// A chunk's numbers, from where they lie in shared memory: `stride` apart in `to`.
void load(const Product& product, uint32_t address, float* to, int stride = 1) {
    const char* const from = read_async(address & (kSharedWindow - 1), product.rank, product.site);
    convert(product.type, from, to, stride);
}

/// A's rows, from the lanes' registers: lane l holds, of rows l / 4 and l / 4 + 8, 4 bytes in each
/// half of the row.
void load_own(const Product& product, float (*A)[kMostDepth]) {
    const int count = product.type == Operand::kTf32 ? 1 : 2;  // numbers in a register
    for (int lane = 0; lane < 32; ++lane) {
        float numbers[8];
        convert(product.type, product.own_a[lane], numbers);
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < count; ++i)
                A[lane / 4 + r % 2 * 8][(r / 2 * 4 + lane % 4) * count + i] =
                    numbers[r * count + i];
    }
}

/// What the tensor cores do. `sums` are each lane's.
void multiply(const Product& product, float* const* sums) {
    const Descriptor a(product.a, product.site), b(product.b, product.site);
    const int columns = product.columns, bytes = product.type == Operand::kTf32 ? 4 : 2;
    const int depth = 32 / bytes, chunk = kChunk / bytes;
    float A[kRows][kMostDepth], B[kMostDepth][256], C[kRows][256];
    if (product.own_a[0]) {
        load_own(product, A);
    } else if (product.a_across_k) {
        for (int k = 0; k < depth; ++k)
            for (int row = 0; row < kRows; row += chunk)
                load(product, a.across_k(k, (product.warp * kRows + row) * bytes), &A[row][k],
                     kMostDepth);
    } else {
        for (int row = 0; row < kRows; ++row)
            for (int k = 0; k < depth; k += chunk)
                load(product, a.along_k(product.warp * kRows + row, k * bytes), &A[row][k]);
    }
    if (product.b_along_k) {
        for (int column = 0; column < columns; ++column)
            for (int k = 0; k < depth; k += chunk)
                load(product, b.along_k(column, k * bytes), &B[k][column], 256);
    } else {
        for (int k = 0; k < depth; ++k)
            for (int column = 0; column < columns; column += chunk)
                load(product, b.across_k(k, column * bytes), &B[k][column]);
    }

    // Lane l holds rows l / 4 and l / 4 + 8, columns 8 j + 2 (l % 4) and the next.
    auto for_each_sum = [&](auto visit) {
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < columns / 2; ++i)
                visit(sums[lane][i], C[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2]);
    };
    for_each_sum([&](float sum, float& c) { c = product.keep ? sum : 0.0f; });
    for (int row = 0; row < kRows; ++row)
        for (int k = 0; k < depth; ++k) {
            const float factor = A[row][k];
            for (int column = 0; column < columns; ++column)
                C[row][column] += factor * B[k][column];
        }
    for_each_sum([](float& sum, float c) { sum = c; });
}

/// A warp's products that it has not waited for. Meanwhile the registers of their sums, and of A,
/// hold NaN, and the numbers are kept here.
class Products final : public ThreadState {
  public:
    struct Registers {
        float* of_lane[32];
        size_t count;  // of each lane
        std::vector<float> sums;
        int users;  // products
    };
    struct Fragment {  // of A
        uint32_t* of_lane[32];
        uint32_t numbers[32][4];
        int users;  // products
    };
    std::vector<Product> pending;
    std::vector<Registers> taken;
    std::list<Fragment> fragments;  // in registers: products point to their numbers
    unsigned int groups = 0;        // committed so far
    bool fenced = false;            // since the registers were last the threads' own
    Site uncommitted{}, unwaited{};

    void begin_block() override {
        pending.clear();
        taken.clear();
        fragments.clear();
        groups = 0;
        fenced = false;
        uncommitted = unwaited = {};
    }
    void leave_kernel() override {
        const Site& site = uncommitted.what ? uncommitted : unwaited;
        if (site.what)
            fail(3, "leaves the kernel, and %s may still run: %s", text(site).c_str(),
                 uncommitted.what ? "its group was not committed" : "nobody waited for it");
    }

    void issue(const Product& product) {
        if (!fenced)
            fail(3, "%s: no wgmma_fence() since the warp's threads owned the sums' registers",
                 text(product.site).c_str());
        uncommitted = product.site;
        if (pending.empty() && !as_late_as_allowed()) {
            multiply(product, product.sums);
            return;
        }
        take(product);
        pending.push_back(product);
        if (product.own_a[0]) take_fragment(pending.back());
    }

    /// Does what is pending of groups before this one.
    void finish(unsigned int group) {
        size_t done = 0;
        while (done < pending.size() && pending[done].group < group) give_back(pending[done++]);
        pending.erase(pending.begin(), pending.begin() + done);
    }

  private:
    Registers* registers_of(const Product& product) {
        for (Registers& each : taken)
            if (each.of_lane[0] == product.sums[0]) return &each;
        return nullptr;
    }

    void take(const Product& product) {
        const size_t count = size_t(product.columns) / 2;
        if (Registers* known = registers_of(product)) {
            ++known->users;
            return;
        }
        Registers fresh{{}, count, {}, 1};
        for (int lane = 0; lane < 32; ++lane) {
            float* const own = fresh.of_lane[lane] = product.sums[lane];
            fresh.sums.insert(fresh.sums.end(), own, own + count);
            std::fill_n(own, count, std::numeric_limits<float>::quiet_NaN());
        }
        taken.push_back(std::move(fresh));
    }

    void give_back(const Product& product) {
        Registers& own = *registers_of(product);
        float* sums[32];
        for (size_t lane = 0; lane < 32; ++lane) sums[lane] = &own.sums[lane * own.count];
        multiply(product, sums);
        if (product.own_a[0]) give_back_fragment(product);
        if (--own.users > 0) return;
        for (size_t lane = 0; lane < 32; ++lane)
            std::copy_n(sums[lane], own.count, own.of_lane[lane]);
        taken.erase(taken.begin() + (&own - taken.data()));
    }

    static constexpr uint32_t kTaken = 0x7FFF7FFF;  // NaN in each type

    /// Takes A's registers away, and lets the product point to what they held.
    void take_fragment(Product& product) {
        Fragment* fragment = nullptr;
        for (Fragment& each : fragments)
            if (each.of_lane[0] == product.own_a[0]) fragment = &each;
        if (!fragment) {
            fragment = &fragments.emplace_back();
            for (int lane = 0; lane < 32; ++lane) {
                uint32_t* const own = fragment->of_lane[lane] =
                    const_cast<uint32_t*>(product.own_a[lane]);
                std::copy_n(own, 4, fragment->numbers[lane]);
                std::fill_n(own, 4, kTaken);
            }
        }
        ++fragment->users;
        for (int lane = 0; lane < 32; ++lane) product.own_a[lane] = fragment->numbers[lane];
    }

    void give_back_fragment(const Product& product) {
        const auto fragment =
            std::find_if(fragments.begin(), fragments.end(),
                         [&](const Fragment& each) { return each.numbers[0] == product.own_a[0]; });
        if (--fragment->users > 0) return;
        for (int lane = 0; lane < 32; ++lane) {
            uint32_t* const own = fragment->of_lane[lane];
            if (std::count(own, own + 4, kTaken) != 4)
                fail(3, "%s: A's registers changed before it was waited for",
                     text(product.site).c_str());
            std::copy_n(fragment->numbers[lane], 4, own);
        }
        fragments.erase(fragment);
    }
};
Products& products() { return own<Products>(warp_state(StateOf::kProducts)); }

struct Record {  // what a lane brings
    Product product;
    float* sums;
    const uint32_t* own_a;
};

void require_warp(unsigned int mask, const Site& site) {
    if (mask != ~0u) fail(3, "%s needs a whole warp", text(site).c_str());
}

}  // namespace

void wgmma(Operand type, float* sums, int sums_of_a_thread, uint64_t a, const uint32_t* own_a,
           uint64_t b, bool keep, Site site, bool b_along_k, bool a_across_k) {
    Record own{{.type = type,
                .a = a,
                .b = b,
                .keep = keep,
                .b_along_k = b_along_k || type == Operand::kTf32,
                .a_across_k = a_across_k,
                .columns = 2 * sums_of_a_thread,
                .warp = thread_number() / 32 % 4,
                .rank = cluster_rank(),
                .site = site},
               sums,
               own_a};
    warp_meet(
        ~0u, &own,
        [](void* const* records, unsigned int mask) {
            Product product = static_cast<Record*>(records[0])->product;
            require_warp(mask, product.site);
            for (int lane = 0; lane < 32; ++lane) {
                const Record& each = *static_cast<Record*>(records[lane]);
                product.sums[lane] = each.sums;
                product.own_a[lane] = each.own_a;
                if (each.product.a != product.a || each.product.b != product.b ||
                    each.product.keep != product.keep)
                    fail(3, "%s: lane %d names other operands than lane 0",
                         text(product.site).c_str(), lane);
            }
            Products& queue = products();
            product.group = queue.groups;
            count_product(product.site);
            queue.issue(product);
        },
        site);
}

void wgmma_fence() { products().fenced = true; }

void wgmma_commit(Site site) {
    warp_meet(
        ~0u, nullptr,
        [](void* const*, unsigned int) {
            Products& queue = products();
            ++queue.groups;
            if (queue.uncommitted.what) queue.unwaited = queue.uncommitted;
            queue.uncommitted = {};
        },
        site);
}

void wgmma_wait(size_t groups_still_allowed, Site site) {
    size_t record = groups_still_allowed;
    warp_meet(
        ~0u, &record,
        [](void* const* records, unsigned int) {
            Products& queue = products();
            const size_t allowed = *static_cast<size_t*>(records[0]);
            queue.finish(queue.groups > allowed ? queue.groups - unsigned(allowed) : 0);
            if (allowed == 0) queue.unwaited = {};
            queue.fenced = false;
        },
        site);
}

}  // namespace simulator
