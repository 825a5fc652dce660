// The GPU, its memory, its clock, and what to say when a CUDA call fails.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>
#include <type_traits>
#include <vector>

#include "errors.hpp"
#include "numbers.hpp"
#include "program.hpp"
#include "workload.hpp"

namespace demo {

/// Exits with one line if a CUDA call failed: the call, the error's name, what to do about it.
void check(cudaError_t status, const std::string& call);

/// Makes and checks a CUDA call: DEMO_CHECK(cudaMalloc(&pointer, bytes)). A dry run leaves it out.
#define DEMO_CHECK(call) (demo::dry_run ? void() : demo::check((call), demo::name_of(#call)))

std::string name_of(const char* call);  // "cudaMalloc", of the whole call

struct Gpu {
    std::string name = "";        // "NVIDIA H200"
    std::string arch = "";        // "sm_90"; empty where no GPU was looked for
    int compute_capability = 0;   // 90
    int multiprocessors = 0;      // SMs
    double boost_ghz = 0;         // the highest clock
    double gb_per_s = 0;          // of its memory; 0 if unknown
    size_t l2_bytes = 0;          // size of the L2 cache
    size_t shared_per_block = 0;  // most shared memory that a block may ask for, bytes
    bool clusters = false;        // whether it launches them: not every GPU from 9.0 on must
    std::string machine = "";     // what it has of everything, for people

    Gpu() = default;  // none: for dry runs that need no GPU

    /// The one that --device chose. Exits with 77 and the reason where nothing here runs kernels.
    explicit Gpu(const Options& options);

    /// Bytes of the buffer that empties the cache between launches: its old lines must all go.
    size_t flush_bytes() const;

    /// Contender::why_not of one whose `setup` allocates so many bytes; empty in a dry run.
    std::string why_no_room(size_t bytes) const;

    double peak(const std::string& dtype) const;  // dense TFLOP/s, 0 if unknown
};

// --- Memory -------------------------------------------------------------------------------------

/// Device memory of NaN bytes, so that an element that was never written shows, and its end. A dry
/// run gets null, and adds up the bytes.
void* allocate(size_t bytes);
void release(void* memory, size_t bytes);
/// For a dry run: memory that is allocated elsewhere.
void plan_on_device(size_t bytes);
void plan_on_host(size_t bytes);

/// Device memory for `size` elements, freed at the end of its scope.
template <class T>
class Buffer {
  public:
    explicit Buffer(size_t size) : size_(size), data_(static_cast<T*>(allocate(bytes()))) {}
    /// rows x columns elements.
    Buffer(size_t rows, size_t columns) : Buffer(saturating_product(rows, columns)) {}
    ~Buffer() { release(data_, bytes()); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* data() const { return data_; }
    size_t size() const { return size_; }
    size_t bytes() const { return saturating_product(size_, sizeof(T)); }

  private:
    size_t size_;
    T* data_;
};

/// Host memory for rows x columns elements; in a dry run only its size.
template <class T>
class HostBuffer : public std::vector<T> {
  public:
    HostBuffer(size_t rows, size_t columns) : std::vector<T>(dry_run ? 0 : rows * columns) {
        plan_on_host(saturating_product(rows, columns, sizeof(T)));
    }
};

// --- Time ---------------------------------------------------------------------------------------

/// Times launches on the GPU's own clock: by an event before and one after.
class EventTimer {
  public:
    EventTimer();
    ~EventTimer();
    EventTimer(const EventTimer&) = delete;

    /// Runs launch(), waits for it, and returns its GPU time in ms. `who`: for an error message.
    template <class Launch>
    double ms(Launch launch, const std::string& who = "cudaEventSynchronize") const {
        DEMO_CHECK(cudaEventRecord(begin_));
        launch();
        DEMO_CHECK(cudaEventRecord(end_));
        return elapsed_ms(who);
    }

  private:
    double elapsed_ms(const std::string& who) const;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace demo
