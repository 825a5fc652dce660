#include "trace.hpp"

#include <cxxabi.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "count.hpp"
#include "cuda/device_launch_parameters.h"
#include "current_thread.hpp"
#include "errors.hpp"
#include "memory.hpp"
#include "shared_memory.hpp"

namespace simulator {
namespace {

constexpr size_t kMostBytes = 20 << 20;  // of the file

/// Leaked, since worker threads outlive main(); made at the first use, which is before main().
struct State {
    FILE* file = nullptr;
    size_t written = 0;
    int ranges = 0;                  // that the host's code is in
    std::vector<uintptr_t> kernels;  // of each launch
    std::unordered_map<Place, std::pair<unsigned int, const char*>, Hash> places;
    std::map<const char*, std::string> arguments;  // what launches call buffers, or parts of them
    std::set<std::string> lines;                   // of buffers and arrays, that were written
    std::recursive_mutex mutex;
};
State& all() {
    static State& state = *new State;
    return state;
}

void put(const std::string& text) {
    const std::lock_guard lock(all().mutex);
    all().written += text.size();
    if (all().written > kMostBytes) {
        running_launch = nullptr;  // it is no thread's fault
        fail(2, "the trace is over %zu MB: take a smaller size, as a rule N = 64",
             kMostBytes >> 20);
    }
    std::fwrite(text.data(), 1, text.size(), all().file);
}

[[gnu::format(printf, 1, 2)]] std::string format(const char* text, ...) {
    char line[512];
    va_list values;
    va_start(values, text);
    std::vsnprintf(line, sizeof line, text, values);
    va_end(values);
    return line;
}

unsigned int number_of(const Place& place, const char* what = "") {
    const std::lock_guard lock(all().mutex);
    return all().places.try_emplace(place, unsigned(all().places.size()), what).first->second.first;
}

}  // namespace

// --- A block ------------------------------------------------------------------------------------

void BlockTrace::begin(const char* shared, size_t bytes_of_a_block) {
    shared_ = shared;
    bytes_of_a_block_ = bytes_of_a_block;
}

void BlockTrace::end() {
    fetch();
    put(format("block %zu %u %u %u\n", all().kernels.size(), blockIdx.x, blockIdx.y, blockIdx.z) +
        text_);
    text_.clear();
}

void BlockTrace::fetch() {
    for (const auto& [warp, request, lane] : stored_) {
        Traced& traced = warps_[warp].requests[request];
        std::memcpy(traced.values[lane],
                    reinterpret_cast<const void*>(traced.request.address[lane]),
                    traced.request.bytes);
    }
    stored_.clear();
}

void BlockTrace::access(const Place& place, unsigned int warp_number, unsigned int lane,
                        unsigned int time, const Request& request) {
    fetch();
    Warp& warp = warps_[warp_number];
    const size_t key = size_t(number_of(place)) << 32 | time;
    const auto [found, is_new] = warp.known.try_emplace(key, unsigned(warp.requests.size()));
    if (is_new) warp.requests.push_back({place, {}, {}});
    warp.requests[found->second].request = request;
    warp.of_lane[lane].push_back(found->second);
    stored_.push_back({warp_number, found->second, lane});
    if (place.kind % kShared == kGlobalLoad) fetch();
}

/// A request comes when it is the next one of each of its lanes. Where lanes took ways so different
/// that none is, the first of the first lane that has one.
std::vector<unsigned int> BlockTrace::in_order(const Warp& warp) {
    std::vector<unsigned int> order;
    std::vector<bool> done(warp.requests.size());
    size_t at[kWarp] = {};
    auto next_of = [&](unsigned int lane) {
        const auto& own = warp.of_lane[lane];
        while (at[lane] < own.size() && done[own[at[lane]]]) ++at[lane];
        return at[lane] < own.size() ? int(own[at[lane]]) : -1;
    };
    while (order.size() < warp.requests.size()) {
        int chosen = -1;
        bool is_next_of_all = false;
        for (unsigned int lane = 0; lane < kWarp && !is_next_of_all; ++lane) {
            const int next = next_of(lane);
            if (next < 0) continue;
            is_next_of_all = true;
            for (unsigned int other = 0; other < kWarp; ++other)
                if (warp.requests[next].request.lanes >> other & 1)
                    is_next_of_all = is_next_of_all && next_of(other) == next;
            if (is_next_of_all || chosen < 0) chosen = next;
        }
        done[chosen] = true;
        order.push_back(unsigned(chosen));
    }
    return order;
}

void BlockTrace::settle(unsigned int warp) {
    fetch();
    for (const unsigned int i : in_order(warps_[warp])) write(warp, warps_[warp].requests[i]);
    warps_.erase(warp);
}

void BlockTrace::write(unsigned int warp, const Traced& traced) {
    const Request& request = traced.request;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(shared_);
    const Totals totals = request.totals(traced.place.kind, [&](uintptr_t address) {
        return unsigned((address - begin) / bytes_of_a_block_);
    });
    text_ += format("q %u %u %u %x %zu %zu", warp, number_of(traced.place), request.bytes,
                    request.lanes, size_t(totals.sectors), size_t(totals.conflicts));
    std::vector<unsigned int> lanes;
    for (unsigned int lane = 0; lane < kWarp; ++lane)
        if (request.lanes >> lane & 1) lanes.push_back(lane);
    for (size_t i = 0, end; i < lanes.size(); i = end) {  // runs of one step
        const uintptr_t first = request.address[lanes[i]];
        const long step = i + 1 < lanes.size() ? long(request.address[lanes[i + 1]] - first) : 0;
        for (end = i + 1; end < lanes.size(); ++end)
            if (request.address[lanes[end]] != first + uintptr_t(step) * (end - i)) break;
        text_ += format("%c%zx:%ld:%zu", i ? ',' : ' ',
                        size_t(traced.place.kind < kShared ? first : first - begin), step, end - i);
    }
    const bool same = std::all_of(lanes.begin(), lanes.end(), [&](unsigned int lane) {
        return std::memcmp(traced.values[lane], traced.values[lanes[0]], request.bytes) == 0;
    });
    for (size_t i = 0; i < (same ? 1 : lanes.size()); ++i) {
        text_ += i ? ',' : ' ';
        for (unsigned int byte = 0; byte < request.bytes; ++byte)
            text_ += format("%02x", static_cast<unsigned char>(traced.values[lanes[i]][byte]));
    }
    text_ += '\n';
}

void BlockTrace::meeting(const Site& site, Kind kind, unsigned int threads, unsigned int warps) {
    const Place place{reinterpret_cast<uintptr_t>(site.file), site.line, 0, kind};
    text_ += format("b %u %u %x\n", number_of(place, site.what), threads, warps);
}

void BlockTrace::engine(const Place& place) { text_ += format("e %u\n", number_of(place)); }

// --- The all().file
// -----------------------------------------------------------------------------------

void trace_to(const char* path) {
    all().file = std::fopen(path, "w");
    if (!all().file) fail(3, "%s: %s", path, std::strerror(errno));
    put("trace 1\n");
}

/// The device's buffers that are new, or have another name by now. Of one that the program does not
/// declare, a part that launches call by a name of its own is a buffer, too.
static void put_buffers() {
    std::vector<Buffer> buffers = device_buffers();
    std::sort(buffers.begin(), buffers.end(),
              [](const Buffer& a, const Buffer& b) { return a.number < b.number; });
    for (const Buffer& buffer : buffers) {
        const bool declared = !buffer.name.empty();
        const char *at = buffer.data, *const end = at + buffer.bytes;
        for (const char* next = at; at < end; at = next) {
            const auto own = all().arguments.find(at), after = all().arguments.upper_bound(at);
            next = declared || after == all().arguments.end() ? end : std::min(end, after->first);
            const std::string called = own == all().arguments.end() ? "" : own->second;
            const std::string line =
                format("buffer %zx %zu %s %zu %s\n", reinterpret_cast<size_t>(at),
                       size_t(next - at), declared ? buffer.type.c_str() : "-", buffer.columns,
                       (declared ? buffer.name : called).c_str());
            if (all().lines.insert(line).second) put(line);
        }
    }
}

bool trace_launch(const Launch& launch, const void* kernel) {
    if (all().ranges == 0) return false;
    const std::lock_guard lock(all().mutex);
    put_buffers();
    all().kernels.push_back(reinterpret_cast<uintptr_t>(kernel));
    put(format("launch %zu %u %u %u %u %u %u %d %s %s%s\n", all().kernels.size(), launch.grid.x,
               launch.grid.y, launch.grid.z, launch.block.x, launch.block.y, launch.block.z,
               launch.line, launch.file, launch.name().c_str(), launch.arguments));
    return true;
}

void trace_shared(const void* array, size_t bytes, const std::type_info& type, size_t rows,
                  size_t columns, const char* name) {
    const std::lock_guard lock(all().mutex);
    char* const spelled = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
    std::string kind = spelled ? spelled : type.name();
    std::free(spelled);
    std::erase(kind, ' ');
    const std::string line = format("shared %zu %x %zu %s %zu %zu %s\n", all().kernels.size(),
                                    shared_address(array, {"a __shared__ array", "", 0}), bytes,
                                    kind.c_str(), rows, columns, name);
    if (all().lines.insert(line).second) put(line);
}

/// The index-th, from 1, of "(A, f(B, 0), N)".
static std::string argument_of(const char* text, size_t index) {
    std::string argument;
    int depth = 0;
    for (; *text && index > 0; ++text) {
        depth += std::strchr("([{", *text) != nullptr;
        depth -= std::strchr(")]}", *text) != nullptr;
        if (depth == 0 || (depth == 1 && *text == ','))
            --index;
        else if (index == 1 && !(depth == 1 && (*text == '(' || *text == ' ')))
            argument += *text;
    }
    return argument;
}

void count_argument(const Launch& launch, size_t index, const void* pointer) {
    const Buffer* const buffer = all().file && pointer ? buffer_around(pointer) : nullptr;
    if (buffer && buffer->name.empty())
        all().arguments.try_emplace(static_cast<const char*>(pointer),
                                    argument_of(launch.arguments, index));
}

void count_library(const char* name, const std::vector<std::pair<const void*, size_t>>& matrices) {
    if (!all().file || all().ranges == 0) return;
    put_buffers();
    std::string text = std::string("library ") + name;
    for (const auto& [matrix, bytes] : matrices)
        text += format(" %zx %zu", reinterpret_cast<size_t>(matrix), bytes);
    put(text + "\n");
}

void found_wrong(const void* element) {
    if (all().file) put(format("wrong %zx\n", reinterpret_cast<size_t>(element)));
}

std::vector<uintptr_t> traced_code() {
    std::vector<uintptr_t> code = all().kernels;
    for (const auto& [place, number] : all().places)
        if (!place.line) code.push_back(place.code);
    return code;
}

void trace_end(const std::function<std::string(const Place&)>& line_and_file,
               const std::function<std::string(uintptr_t)>& name) {
    for (size_t i = 0; i < all().kernels.size(); ++i)
        if (all().kernels[i]) put(format("kernel %zu %s\n", i + 1, name(all().kernels[i]).c_str()));
    for (const auto& [place, known] : all().places) {
        std::string kind = kNames[place.kind];
        std::replace(kind.begin(), kind.end(), ' ', '-');
        put(format("place %u %s %s %s\n", known.first, kind.c_str(), line_and_file(place).c_str(),
                   known.second));
    }
    put("end\n");
    std::fclose(all().file);
}

}  // namespace simulator

// A range of the host's code. Before main() there is no trace yet.
int nvtxRangePushA(const char* name) {
    ++simulator::all().ranges;
    if (simulator::all().file) simulator::put(std::string("range ") + name + "\n");
    return 0;
}
int nvtxRangePop() {
    --simulator::all().ranges;
    if (simulator::all().file) simulator::put("leave -\n");
    return 0;
}
