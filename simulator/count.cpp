// DEMO_COUNT=1 cpu/NAME: what the program's kernels touch, counted in one launch of each.
//
// There are two builds of every program. cpu/NAME, the fast one, has no more of this file than its
// first part: where DEMO_COUNT asks for it, it becomes cpu/count/NAME. That one is compiled with
// -fsanitize=thread, which makes the compiler call a function at every load and store. Those
// functions are here, in place of the sanitizer's own.
//
// A block's threads run one after the other here, a warp's at once on a GPU. What a warp requests
// is put together again afterwards: the lanes that are at the same instruction for the k-th time
// since they last met belong to one request.
#include "count.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access_errors.hpp"
#include "cuda/device_launch_parameters.h"
#include "current_thread.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "memory.hpp"
#include "requests.hpp"
#include "trace.hpp"

namespace simulator {
namespace {

enum class Output { kNone, kTables, kCsv, kTrace };
constexpr std::string_view kTraceTo = "trace:";  // a file's name follows

Output asked_for() {
    const char* const value = std::getenv("DEMO_COUNT");
    const std::string text = value ? value : "0";
    if (text == "0") return Output::kNone;
    if (text == "1") return Output::kTables;
    if (text == "csv") return Output::kCsv;
    if (text.starts_with(kTraceTo)) return Output::kTrace;
    fail(2, "DEMO_COUNT takes 1, csv, trace:FILE or 0, not '%s'", text.c_str());
}

/// This program's file. And the folder that a file is in.
std::string own_path() {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    return {path, size_t(std::max<ssize_t>(length, 0))};
}
std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace
}  // namespace simulator

#ifndef SIMULATOR_COUNT

namespace simulator {
namespace {

/// Before main(): becomes the build that counts. --once, since times would mean nothing.
__attribute__((constructor)) void count_if_asked(int argc, char** argv, char**) {
    if (asked_for() == Output::kNone) return;
#if defined SIMULATOR_DEBUG || defined SIMULATOR_SANITIZE
    fail(2, "DEMO_COUNT=1 is for cpu/NAME alone, not for what debug=1 and sanitize=1 build");
#endif
    auto given = [&](std::string option) {
        return std::find(argv, argv + argc, option) != argv + argc;
    };
    if (given("--csv")) fail(2, "DEMO_COUNT prints counts: without --csv");
    const std::string own = own_path();
    const std::string name = own.substr(own.rfind('/') + 1);
    const std::string other = folder_of(own) + "/count/" + name;
    std::vector<char*> arguments(argv, argv + std::min(argc, 1));
    std::string once = "--once";
    if (!given(once)) arguments.push_back(once.data());
    arguments.insert(arguments.end(), argv + std::min(argc, 1), argv + argc + 1);
    execv(other.c_str(), arguments.data());
    fail(77, "DEMO_COUNT=1 needs %s: %s (scripts/count.sh %s builds it, with g++)", other.c_str(),
         std::strerror(errno), name.c_str());
}

}  // namespace
}  // namespace simulator

#else

#include <fcntl.h>
#include <link.h>
#include <sys/ioctl.h>

#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

namespace simulator {
namespace {

/// What a warp's lanes did at one place since they met.
struct Pending {
    std::array<unsigned int, kWarp> times{};  // that each lane was there
    std::vector<Request> requests;            // the k-th holds what the lanes did the k-th time
};

struct Region {
    const char *begin, *end;
    bool holds(const void* p) const { return p >= begin && p < end; }
};

/// A buffer in device memory.
struct DeviceRegion {
    Region buffer, pages;
};

std::vector<DeviceRegion> device_memory;  // while a launch is counted
bool traces = false;                      // DEMO_COUNT=trace:FILE

/// What one worker counts.
class Counter {
  public:
    void begin_block(const void* shared, size_t bytes_of_a_block, unsigned int blocks) {
        const char* const begin = static_cast<const char*>(shared);
        shared_ = {begin, begin + bytes_of_a_block * blocks};
        bytes_of_a_block_ = bytes_of_a_block;
        if (traces) trace_.begin(begin, bytes_of_a_block);
    }

    void access(const void* address, size_t bytes, Kind kind, uintptr_t code, int line) {
        if (shared_.holds(address))
            kind = Kind(kind + kShared);
        else if (!is_global(address, bytes, kind))
            return;
        const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
        size_t step = bytes;  // of one instruction
        if (bytes > 16 || !std::has_single_bit(bytes)) {
            const uintptr_t both = begin | bytes;
            step = std::min<size_t>(both & -both, 16);  // what both are multiples of
        }
        unsigned short part = 0;
        for (size_t done = 0; done < bytes; done += step, ++part)
            add({code, line, part, kind}, begin + done, step);
    }

    void barrier(const Site& site, unsigned int threads, unsigned int warps) {
        for (unsigned int warp = 0; warp < kMaxWarps; ++warp)
            if (warps >> warp & 1) settle(warp);
        add_totals(kBarrier, {threads, uint64_t(std::popcount(warps))}, site);
        if (traces) trace_.meeting(site, kBarrier, threads, warps);
    }

    void meeting(unsigned int warp, const Site& site) {
        settle(warp);
        if (traces) trace_.meeting(site, kMeeting, kWarp, 1u << warp);
    }

    void end_block() {
        if (traces) trace_.end();
    }

    /// What counts by itself, whoever does it.
    void add_totals(Kind kind, const Totals& totals, const Site& site) {
        const Place place{reinterpret_cast<uintptr_t>(site.file), site.line, 0, kind};
        totals_[index_of(place)] += totals;
        if (traces && kind != kBarrier) trace_.engine(place);
    }

    void exit() {
        const unsigned int threads = blockDim.x * blockDim.y * blockDim.z;
        const unsigned int in_block = thread() / kWarp, warp = running_rank * kMaxWarps + in_block;
        if (traces) trace_.fetch();
        if (++exits_[warp] < std::min(kWarp, threads - in_block * kWarp)) return;
        settle(in_block);
        exits_[warp] = 0;
    }

    /// Counts the warp's requests, which are complete.
    void settle(unsigned int warp_in_block) {
        const unsigned int warp = running_rank * kMaxWarps + warp_in_block;
        if (traces) trace_.settle(warp);
        for (size_t place = 0; place < pending_[warp].size(); ++place) {
            Pending& pending = pending_[warp][place];
            if (pending.requests.empty()) continue;
            for (const Request& request : pending.requests)
                totals_[place] += request.totals(places_[place].kind, [&](uintptr_t address) {
                    const size_t offset = address - reinterpret_cast<uintptr_t>(shared_.begin);
                    return unsigned(offset / bytes_of_a_block_);
                });
            pending.requests.clear();
            pending.times.fill(0);
        }
    }

    /// Adds what was counted to `sums`, and forgets it.
    void move_to(std::unordered_map<Place, Totals, Hash>& sums) {
        for (size_t place = 0; place < places_.size(); ++place) {
            if (totals_[place].threads) sums[places_[place]] += totals_[place];
            totals_[place] = {};
        }
    }

  private:
    /// The running one's number in its block.
    static unsigned int thread() {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }

    /// Fails if the access reaches out of its buffer, even where guard pages would not notice.
    bool is_global(const void* address, size_t bytes, Kind kind) {
        if (!last_.pages.holds(address)) {
            const auto found =
                std::find_if(device_memory.begin(), device_memory.end(),
                             [&](const DeviceRegion& r) { return r.pages.holds(address); });
            if (found == device_memory.end()) return false;
            last_ = *found;  // device memory never moves, and freed addresses are not used again
        }
        const char* const p = static_cast<const char*>(address);
        const auto [begin, end] = last_.buffer;
        if (p < begin || p + bytes > end)
            fail(3, "%s %s", kind == kGlobalLoad ? "read of" : "write to",
                 describe(p < begin ? p : std::max(p, end)).c_str());
        return true;
    }

    void add(const Place& place, uintptr_t address, size_t bytes) {
        const unsigned int lane = thread() % kWarp;
        const unsigned int warp = running_rank * kMaxWarps + thread() / kWarp;
        const size_t index = index_of(place);
        if (index >= pending_[warp].size()) pending_[warp].resize(index + 1);
        Pending& pending = pending_[warp][index];
        const unsigned int times = pending.times[lane]++;
        if (times == pending.requests.size()) pending.requests.emplace_back();
        Request& request = pending.requests[times];
        request.lanes |= 1u << lane;
        request.bytes = unsigned(bytes);
        request.address[lane] = address;
        if (traces) [[unlikely]]
            trace_.access(place, warp, lane, times, request);
    }

    size_t index_of(const Place& place) {
        auto& [known, index] = recent_[place.hash() * 0x9E3779B97F4A7C15u >> 54];
        if (known == place) return index;
        const auto [found, is_new] = indices_.try_emplace(place, places_.size());
        if (is_new) {
            places_.push_back(place);
            totals_.emplace_back();
        }
        known = place;
        return index = found->second;
    }

    Region shared_{};
    DeviceRegion last_{};          // that was touched
    size_t bytes_of_a_block_ = 0;  // shared memory
    std::unordered_map<Place, size_t, Hash> indices_;
    std::array<std::pair<Place, size_t>, 1024> recent_{};  // some of indices_
    std::vector<Place> places_;
    std::vector<Totals> totals_;  // of each
    BlockTrace trace_;
    std::vector<Pending> pending_[kMaxBlocks * kMaxWarps];  // by warp, then by place
    unsigned int exits_[kMaxBlocks * kMaxWarps] =
        {};  // threads of a warp that have left the kernel
};

/// A launch that was counted.
struct Counted {
    const void* kernel;  // null where the launch does not tell
    std::string text;    // the kernel as the launch spells it
    std::string file;
    dim3 grid, block;
    std::unordered_map<Place, Totals, Hash> sums;
};

// Leaked, since worker threads outlive main().
std::mutex& mutex = *new std::mutex;
std::vector<Counter*>& counters = *new std::vector<Counter*>;
std::vector<Counted>& launches = *new std::vector<Counted>;
bool counting = false;  // the launch that runs now
bool launched = false;  // any kernel, counted or not

constinit thread_local Counter* counter = nullptr;  // null where nothing counts
constinit thread_local Counter* paused = nullptr;

// --- Where in the source ------------------------------------------------------------------------

struct Line {
    std::string file;
    int line = 0;
    auto operator<=>(const Line&) const = default;
};

/// What the debug information says of addresses: through addr2line, which comes with the compiler.
class Symbols {
  public:
    explicit Symbols(const std::set<uintptr_t>& code) {
        if (code.empty()) return;
        uintptr_t base = 0;
        dl_iterate_phdr(
            [](dl_phdr_info* info, size_t, void* result) {
                *static_cast<uintptr_t*>(result) = info->dlpi_addr;
                return 1;
            },
            &base);
        std::string command = "addr2line -a -i -f -C -e /proc/" + std::to_string(getpid()) + "/exe";
        for (const uintptr_t address : code) {
            char text[32];
            std::snprintf(text, sizeof text, " %#zx", size_t(address - base));
            command += text;
        }
        FILE* const answers = popen((command + " 2>/dev/null").c_str(), "r");
        if (!answers) return;
        // For each address: itself, then pairs of lines, a function and a place, innermost first.
        std::vector<Frame>* frames = nullptr;
        for (std::string text; read_line(answers, text);) {
            if (text.starts_with("0x")) {
                frames = &frames_[std::strtoull(text.c_str(), nullptr, 16) + base];
                continue;
            }
            std::string place;
            if (!frames || !read_line(answers, place)) break;
            if (place.starts_with("./")) place.erase(0, 2);
            const size_t colon = place.rfind(':');
            frames->push_back(
                {text, {place.substr(0, colon), std::atoi(place.c_str() + colon + 1)}});
        }
        pclose(answers);
    }

    bool empty() const { return frames_.empty(); }

    /// The program's line: the innermost that is in no header.
    Line line(uintptr_t code) const {
        const auto found = frames_.find(code);
        if (found == frames_.end() || found->second.empty()) return {};
        for (const auto& [function, line] : found->second)
            if (!line.file.starts_with("include/") && !line.file.starts_with("simulator/") &&
                !line.file.starts_with("/"))
                return line;
        return found->second.front().line;
    }

    /// "kernel<float>", of "void space::kernel<float>(float const*)".
    std::string function(uintptr_t code) const {
        const auto found = frames_.find(code);
        if (found == frames_.end() || found->second.empty()) return "";
        std::string name = found->second.back().function;
        for (size_t end; (end = name.find("::")) != std::string::npos;) {
            const std::string anonymous = "(anonymous namespace)";
            size_t begin = end;
            while (begin > 0 && (std::isalnum(name[begin - 1]) || name[begin - 1] == '_')) --begin;
            if (name.substr(0, end).ends_with(anonymous)) begin = end - anonymous.size();
            name.erase(begin, end + 2 - begin);
        }
        if (name.starts_with("void ")) name.erase(0, 5);
        int depth = 0;  // of the brackets, from the end
        for (size_t i = name.size(); i-- > 0;) {
            depth += name[i] == ')';
            depth -= name[i] == '(';
            if (name[i] == '(' && depth == 0) return name.substr(0, i);
        }
        return name;
    }

  private:
    struct Frame {
        std::string function;
        Line line;
    };

    static bool read_line(FILE* file, std::string& text) {
        text.clear();
        for (int c; (c = std::fgetc(file)) != EOF; text += char(c))
            if (c == '\n') return true;
        return false;
    }

    std::map<uintptr_t, std::vector<Frame>> frames_;
};

/// The line's text, trimmed; empty where the source is not here.
std::string source_text(const Line& line) {
    for (std::string folder = own_path(); !folder.empty();) {
        folder = folder_of(folder);
        std::ifstream file(folder + "/" + line.file);
        if (!file) continue;
        std::string text;
        for (int i = 0; i < line.line && std::getline(file, text);) ++i;
        const size_t begin = text.find_first_not_of(" \t");
        return begin == std::string::npos ? "" : text.substr(begin);
    }
    return "";
}

// --- The table ----------------------------------------------------------------------------------

/// 1,234,567.
std::string with_commas(uint64_t value) {
    std::string text = std::to_string(value);
    for (int i = int(text.size()) - 3; i > 0; i -= 3) text.insert(size_t(i), ",");
    return text;
}

constexpr size_t kWide = 100;  // columns of the whole table

/// The columns of a line: 79, without bytes, where COLUMNS or the terminal has fewer than `kWide`.
size_t columns() {
    static const size_t found = [] {
        winsize size{};
        const char* const wanted = std::getenv("COLUMNS");
        const int terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC);
        if (terminal >= 0) ioctl(terminal, TIOCGWINSZ, &size), close(terminal);
        const size_t here = wanted ? std::strtoul(wanted, nullptr, 10) : size.ws_col;
        return here == 0 || here >= kWide ? kWide : size_t(79);
    }();
    return found;
}

/// A line of the table, from `name`'s column on.
void print_cells(const std::string& name, const std::string& threads, const std::string& requests,
                 const std::string& bytes, const std::string& sectors,
                 const std::string& per_request, const std::string& conflicts) {
    const bool wide = columns() == kWide;
    char row[200];
    std::snprintf(row, sizeof row,
                  wide ? "%-20s%15s%14s%17s%14s%9s%11s" : "%-20s%14s%12s%s%13s%9s%11s",
                  name.c_str(), threads.c_str(), requests.c_str(), wide ? bytes.c_str() : "",
                  sectors.c_str(), per_request.c_str(), conflicts.c_str());
    const std::string text = row;
    std::printf("%s\n", text.substr(0, text.find_last_not_of(' ') + 1).c_str());
}

void print_row(Kind kind, const Totals& totals) {
    std::string bytes, sectors, per_request, conflicts;
    if (kind < kProduct) bytes = with_commas(totals.bytes);
    if (kind < kShared || (kind >= kBoxLoad && kind <= kTileStore)) {
        sectors = with_commas(totals.sectors);
        char text[32];
        std::snprintf(text, sizeof text, "%.2f", double(totals.sectors) / double(totals.requests));
        per_request = text;
    } else if (kind < kProduct) {
        conflicts = with_commas(totals.conflicts);
    }
    print_cells(std::string("    ") + kNames[kind], with_commas(totals.threads),
                with_commas(totals.requests), bytes, sectors, per_request, conflicts);
}

std::string text(const dim3& v) {
    std::string text = "(" + std::to_string(v.x) + " x " + std::to_string(v.y);
    return text + (v.z == 1 ? ")" : " x " + std::to_string(v.z) + ")");
}

std::string name_of(const Counted& launch, const Symbols& symbols) {
    const std::string name = symbols.function(reinterpret_cast<uintptr_t>(launch.kernel));
    return name.empty() ? launch.text : name;
}

/// For scripts.
void print_csv(const Counted& launch, const Symbols& symbols) {
    std::map<Kind, Totals> whole;
    for (const auto& [place, totals] : launch.sums) whole[place.kind] += totals;
    for (const auto& [kind, sum] : whole)
        std::printf("\"%s\",%s,%zu,%zu,%zu,%zu,%zu,%zu\n", name_of(launch, symbols).c_str(),
                    kNames[kind], size_t(sum.threads), size_t(sum.requests), size_t(sum.asked),
                    size_t(sum.bytes), size_t(sum.sectors), size_t(sum.conflicts));
}

void print(const Counted& launch, const Symbols& symbols) {
    std::map<Kind, Totals> whole;
    std::map<Line, std::map<Kind, Totals>> lines;
    for (const auto& [place, totals] : launch.sums) {
        whole[place.kind] += totals;
        const Line line = place.line ? Line{reinterpret_cast<const char*>(place.code), place.line}
                                     : symbols.line(place.code);
        lines[line][place.kind] += totals;
    }
    std::string title = name_of(launch, symbols) + ": ";
    const std::string shape =
        text(launch.grid) + " blocks of " + text(launch.block) + " threads, one launch";
    if (title.size() + shape.size() > columns()) title += "\n  ";
    std::printf("\n%s%s\n", title.c_str(), shape.c_str());
    print_cells("", "threads", "requests", "bytes", "sectors", "/request", "conflicts");
    for (const auto& [kind, totals] : whole) print_row(kind, totals);
    if (symbols.empty()) {
        std::printf("  (which lines is not known: addr2line, of binutils, is missing)\n");
        return;
    }
    for (const auto& [line, kinds] : lines) {
        std::string text = line.file != launch.file ? line.file + ":"
                           : columns() == kWide     ? "line "
                                                    : "";
        if (line.line == 0) text = "an unknown line";
        if (line.line > 0) text += std::to_string(line.line) + ": " + source_text(line);
        if (text.size() > columns() - 2) text = text.substr(0, columns() - 6) + " ...";
        std::printf("  %s\n", text.c_str());
        for (const auto& [kind, totals] : kinds) print_row(kind, totals);
    }
}

void end_trace() {
    const std::vector<uintptr_t> code = traced_code();
    const Symbols symbols({code.begin(), code.end()});
    trace_end(
        [&](const Place& place) {
            const Line line = place.line
                                  ? Line{reinterpret_cast<const char*>(place.code), place.line}
                                  : symbols.line(place.code);
            return std::to_string(line.line) + " " + (line.file.empty() ? "-" : line.file);
        },
        [&](uintptr_t kernel) { return symbols.function(kernel); });
}

void print_all() {
    if (traces) return end_trace();
    std::set<uintptr_t> code;
    for (const Counted& launch : launches) {
        if (launch.kernel) code.insert(reinterpret_cast<uintptr_t>(launch.kernel));
        for (const auto& [place, totals] : launch.sums)
            if (!place.line) code.insert(place.code);
    }
    const Symbols symbols(code);
    if (asked_for() == Output::kCsv) {
        std::printf("kernel,what,threads,requests,asked_bytes,bytes,sectors,conflicts\n");
        for (const Counted& launch : launches) print_csv(launch, symbols);
        return;
    }
    for (const Counted& launch : launches) print(launch, symbols);
    if (launched && launches.empty())
        std::printf("\nnothing to count: no kernel of the program's own ran\n");
}

const bool wanted = [] {
    const bool asked = asked_for() != Output::kNone;
    traces = asked_for() == Output::kTrace;
    if (traces) trace_to(std::getenv("DEMO_COUNT") + kTraceTo.size());
    if (asked) std::atexit(print_all);
    return asked;
}();

}  // namespace

void count_launch(const Launch& launch, const void* kernel, void (*call)(const void*)) {
    static std::set<const void*> known;
    launched = true;
    const std::string file = launch.file;
    const bool harness = file.starts_with("include/") || file.starts_with("src/demo/");
    if (!wanted || harness || launch.name().starts_with("reference_")) return;
    counting = traces ? trace_launch(launch, kernel)
                      : known.insert(kernel ? kernel : reinterpret_cast<const void*>(call)).second;
    if (!counting) return;
    device_memory.clear();
    for (const Buffer& buffer : device_buffers())
        device_memory.push_back({{buffer.data, buffer.data + buffer.bytes},
                                 {buffer.pages, buffer.pages + buffer.pages_bytes}});
    launches.push_back({kernel, launch.name(), launch.file, launch.grid, launch.block, {}});
}

void count_launch_end() {
    if (!counting) return;
    counting = false;
    const std::lock_guard lock(mutex);
    for (Counter* each : counters) each->move_to(launches.back().sums);
}

void count_block(const void* shared, size_t bytes_of_a_block, unsigned int blocks) {
    static thread_local Counter* own = nullptr;
    if (!counting) return;
    if (!own) {
        own = new Counter;
        const std::lock_guard lock(mutex);
        counters.push_back(own);
    }
    counter = own;
    counter->begin_block(shared, bytes_of_a_block, blocks);
}

void count_block_end() {
    if (counter) counter->end_block();
    counter = nullptr;
}

void count_exit() {
    if (counter) counter->exit();
}

void count_barrier(const Site& site, unsigned int threads, unsigned int warps) {
    if (counter) counter->barrier(site, threads, warps);
}

void count_warp_met(unsigned int warp, const Site& site) {
    if (counter) counter->meeting(warp, site);
}

void count_pause(bool pause) {
    if (pause)
        paused = std::exchange(counter, nullptr);
    else
        counter = std::exchange(paused, nullptr);
}

void count_shared(const void* array, size_t bytes, const std::type_info& type, size_t rows,
                  size_t columns, const char* name) {
    if (counter && traces) trace_shared(array, bytes, type, rows, columns, name);
}

void count_access(const void* address, size_t bytes, bool store, const Site& site) {
    if (counter)
        counter->access(address, bytes, store ? kGlobalStore : kGlobalLoad,
                        reinterpret_cast<uintptr_t>(site.file), site.line);
}

void count_box(bool store, size_t bytes, size_t sectors, const Site& site) {
    if (Counter* const own = counter ? counter : paused)
        own->add_totals(store ? kBoxStore : kBoxLoad, {1, 1, bytes, sectors, 0, bytes}, site);
}

void count_tile(bool store, size_t bytes, size_t sectors, const Site& site) {
    if (counter)
        counter->add_totals(store ? kTileStore : kTileLoad, {1, 1, bytes, sectors, 0, bytes}, site);
}

void count_product(const Site& site) {
    if (Counter* const own = counter ? counter : paused) own->add_totals(kProduct, {32, 1}, site);
}

}  // namespace simulator

// --- What -fsanitize=thread calls ---------------------------------------------------------------

using simulator::counter;

// The call's own address, rather than that of what follows it.
#define SIMULATOR_HERE (reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1)
#define SIMULATOR_COUNT_ACCESS(kind, bytes) \
    if (counter) counter->access(address, bytes, simulator::kind, SIMULATOR_HERE, 0)

#define SIMULATOR_ACCESSES(bytes)                                                            \
    void __tsan_read##bytes(void* address) { SIMULATOR_COUNT_ACCESS(kGlobalLoad, bytes); }   \
    void __tsan_write##bytes(void* address) { SIMULATOR_COUNT_ACCESS(kGlobalStore, bytes); } \
    void __tsan_unaligned_read##bytes(void* address) {                                       \
        SIMULATOR_COUNT_ACCESS(kGlobalLoad, bytes);                                          \
    }                                                                                        \
    void __tsan_unaligned_write##bytes(void* address) {                                      \
        SIMULATOR_COUNT_ACCESS(kGlobalStore, bytes);                                         \
    }

/// A plain load or store of an atomic variable, as memory_order is no matter here, and changes: the
/// old value. A change by compare and exchange counts when it takes place.
#define SIMULATOR_CHANGE(bits, T, name)                           \
    T __tsan_atomic##bits##_##name(volatile T* p, T value, int) { \
        void* const address = const_cast<T*>(p);                  \
        SIMULATOR_COUNT_ACCESS(kGlobalAtomic, sizeof(T));         \
        return __atomic_##name(p, value, __ATOMIC_SEQ_CST);       \
    }
#define SIMULATOR_EXCHANGE(bits, T, kind)                                                          \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile T* p, T* expected, T value, int,    \
                                                      int) {                                       \
        void* const address = const_cast<T*>(p);                                                   \
        const bool done = __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, \
                                                      __ATOMIC_SEQ_CST);                           \
        if (done) SIMULATOR_COUNT_ACCESS(kGlobalAtomic, sizeof(T));                                \
        return done;                                                                               \
    }
#define SIMULATOR_ATOMICS(bits, T)                                  \
    T __tsan_atomic##bits##_load(const volatile T* p, int) {        \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                \
    }                                                               \
    void __tsan_atomic##bits##_store(volatile T* p, T value, int) { \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);               \
    }                                                               \
    T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) { \
        void* const address = const_cast<T*>(p);                    \
        SIMULATOR_COUNT_ACCESS(kGlobalAtomic, sizeof(T));           \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);     \
    }                                                               \
    SIMULATOR_CHANGE(bits, T, fetch_add)                            \
    SIMULATOR_CHANGE(bits, T, fetch_sub)                            \
    SIMULATOR_CHANGE(bits, T, fetch_and)                            \
    SIMULATOR_CHANGE(bits, T, fetch_or)                             \
    SIMULATOR_CHANGE(bits, T, fetch_xor)                            \
    SIMULATOR_EXCHANGE(bits, T, strong)                             \
    SIMULATOR_EXCHANGE(bits, T, weak)

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* address, size_t bytes) { SIMULATOR_COUNT_ACCESS(kGlobalLoad, bytes); }
void __tsan_write_range(void* address, size_t bytes) {
    SIMULATOR_COUNT_ACCESS(kGlobalStore, bytes);
}
SIMULATOR_ACCESSES(1)
SIMULATOR_ACCESSES(2)
SIMULATOR_ACCESSES(4)
SIMULATOR_ACCESSES(8)
SIMULATOR_ACCESSES(16)
SIMULATOR_ATOMICS(8, unsigned char)
SIMULATOR_ATOMICS(16, unsigned short)
SIMULATOR_ATOMICS(32, unsigned int)
SIMULATOR_ATOMICS(64, unsigned long)
}

#endif
