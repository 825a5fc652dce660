// DEMO_COUNT=trace:FILE cpu/NAME: what the threads of every launch did, for scripts/watch.sh.
//
// The file is text, an event a line, its fields apart by blanks. Numbers are decimal; masks,
// addresses and values hexadecimal. Events stand in the order in which each warp came to them; how
// warps and blocks lie beside each other in time, the trace does not know.
//
//   trace 1                                         the format's version
//   range NAME, leave -                             NVTX: a contender's launches lie in its range
//   buffer ADDRESS BYTES TYPE COLUMNS NAME          device memory; "-" and 0: not declared
//   launch NUMBER GX GY GZ BX BY BZ LINE FILE TEXT  its grid, its block, and how it is written
//   shared LAUNCH ADDRESS BYTES TYPE ROWS COLUMNS NAME    a __shared__ array; 0: fewer dimensions
//   block LAUNCH X Y Z                              what follows is this block's
//   q WARP PLACE BYTES MASK SECTORS CONFLICTS ADDRESSES VALUES      a request of a warp's lanes
//   b PLACE THREADS WARPS                           these warps, a mask, have met
//   e PLACE                                         a copy engine's or a tensor core's work
//   library NAME ADDRESS BYTES ...                  a call: matrices that it reads, one it writes
//   wrong ADDRESS                                   an element that the program then found wrong
//   kernel LAUNCH NAME, place NUMBER KIND LINE FILE WHAT, end     at the end: what numbers mean
//
// Of a request, BYTES are each lane's. ADDRESSES are runs, FIRST:STEP:LANES, by commas; in shared
// memory from its beginning. VALUES are the bytes there, the lowest first, that a load found or a
// store left: a number a lane, by commas, or one that is the same for all.
#pragma once

#include <functional>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "call_site.hpp"
#include "launch.hpp"
#include "requests.hpp"

namespace simulator {

/// What one worker's block did. Its lines are written at once, when it has left.
class BlockTrace {
  public:
    void begin(const char* shared, size_t bytes_of_a_block);
    void end();

    /// A lane's access, noted in `request`: the `time`-th at that place since the lanes met.
    void access(const Place& place, unsigned int warp, unsigned int lane, unsigned int time,
                const Request& request);

    /// The latest store has happened by now: keeps what it left.
    void fetch();

    /// All lanes of a warp have met: what they requested is complete.
    void settle(unsigned int warp);

    /// Who met: all warps of a barrier, or the lanes of one.
    void meeting(const Site& site, Kind kind, unsigned int threads, unsigned int warps);
    void engine(const Place& place);

  private:
    struct Traced {
        Place place;
        Request request;
        char values[kWarp][16];
    };
    struct Warp {
        std::vector<Traced> requests;
        std::unordered_map<size_t, unsigned int> known;  // by place and time
        std::vector<unsigned int> of_lane[kWarp];        // the lane's requests, in its own order
    };
    struct Store {
        unsigned int warp, request, lane;
    };
    static std::vector<unsigned int> in_order(const Warp& warp);
    void write(unsigned int warp, const Traced& traced);

    std::unordered_map<unsigned int, Warp> warps_;
    std::vector<Store> stored_;  // none, or the latest
    std::string text_;
    const char* shared_ = nullptr;
    size_t bytes_of_a_block_ = 0;
};

/// Opens the file. Then: a launch, and whether it is traced, since it lies in a range; a __shared__
/// array of the kernel that runs, with its rows and columns. At the end of the program, what the
/// debug information says: "LINE FILE" of a place, and a kernel's name.
void trace_to(const char* path);
bool trace_launch(const Launch& launch, const void* kernel);
void trace_shared(const void* array, size_t bytes, const std::type_info& type, size_t rows,
                  size_t columns, const char* name);
std::vector<uintptr_t> traced_code();
void trace_end(const std::function<std::string(const Place&)>& line_and_file,
               const std::function<std::string(uintptr_t)>& name);

}  // namespace simulator
