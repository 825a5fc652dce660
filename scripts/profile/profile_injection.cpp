// What profile.sh has loaded into the program that it profiles. Records by CUPTI, NVIDIA's
// profiling library, every kernel, copy and memset, every CUDA call of the host and every NVTX
// range.
//
// The program stays as it is: CUDA's driver loads the library that CUDA_INJECTION64_PATH names and
// calls InitializeInjection(); NVTX does so with NVTX_INJECTION64_PATH, InitializeInjectionNvtx2().
//
// One line per record goes to the file <process id>.txt in the folder $PROFILE_RECORDS, for
// profile_report.py. Fields are separated by tabs; times are in ns, of one clock for host and GPU;
// `call` is the number of the CUDA call that caused it.
//
//     kernel   start end device stream call  grid block registers shared-bytes name
//     copy     start end device stream call  bytes from to
//     memset   start end device stream call  bytes
//     call     start end thread call name
//     push     time thread number name       a range begins
//     pop      time thread number            and ends
//     dropped  count                         records that CUPTI had no room for
//     error    text                          why there are no records, or not all
#include <cupti.h>
#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {

// CUPTI fills buffers of ours and gives them back. More than `most_buffers` at a time would take
// the program's memory; records are dropped then, and counted. $PROFILE_BUFFERS changes it.
constexpr size_t kBufferBytes = 8 << 20, kBufferAlignment = 8;
int most_buffers = 64;
std::atomic<int> buffers_lent{0};

// Never closed: CUPTI may deliver records while the process ends. Its threads take turns.
FILE* file = nullptr;
std::mutex file_mutex;

/// Whether a call succeeded; notes it in the file where it did not.
bool succeeded(CUptiResult result, const char* call) {
    if (result == CUPTI_SUCCESS) return true;
    const char* reason = "unknown error";
    cuptiGetResultString(result, &reason);
    const std::lock_guard lock(file_mutex);
    std::fprintf(file, "error\t%s: %s\n", call, reason);
    std::fflush(file);
    return false;
}

/// A kernel's name as C++ spells it. Each is worked out once: there are many launches.
const char* demangled(const char* name) {
    static auto& known = *new std::unordered_map<std::string, std::string>;
    if (!name) return "unknown";
    const auto [entry, is_new] = known.try_emplace(name, name);
    if (is_new) {
        int status = 0;
        char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
        if (status == 0) entry->second = text;
        std::free(text);
    }
    return entry->second.c_str();
}

/// A name that fits into one field.
std::string one_line(const char* name) {
    std::string text = name ? name : "";
    for (char& c : text)
        if (c == '\t' || c == '\n' || c == '\r') c = ' ';
    return text;
}

const char* memory_kind(uint8_t kind) {
    static const auto& names = *new std::unordered_map<uint8_t, const char*>{
        {CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, "host"},
        {CUPTI_ACTIVITY_MEMORY_KIND_PINNED, "pinned host"},
        {CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, "device"},
        {CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC, "device"},
        {CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, "managed"},
        {CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC, "managed"},
        {CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, "array"}};
    const auto name = names.find(kind);
    return name == names.end() ? "unknown" : name->second;
}

/// The fields that all the GPU's records begin with.
template <class Record>
void write_gpu_fields(const char* what, const Record& record, unsigned device) {
    std::fprintf(file, "%s\t%llu\t%llu\t%u\t%u\t%u", what, (unsigned long long)record.start,
                 (unsigned long long)record.end, device, record.streamId, record.correlationId);
}

void write_call(const CUpti_ActivityAPI& record) {
    const auto domain = record.kind == CUPTI_ACTIVITY_KIND_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API
                                                                  : CUPTI_CB_DOMAIN_RUNTIME_API;
    const char* name = nullptr;
    if (cuptiGetCallbackName(domain, record.cbid, &name) != CUPTI_SUCCESS) name = "unknown";
    std::fprintf(file, "call\t%llu\t%llu\t%u\t%u\t%s\n", (unsigned long long)record.start,
                 (unsigned long long)record.end, record.threadId, record.correlationId, name);
}

void write_marker(const CUpti_ActivityMarker2& record) {
    const auto time = (unsigned long long)record.timestamp;
    const unsigned thread = record.objectId.pt.threadId;
    if (record.flags & CUPTI_ACTIVITY_FLAG_MARKER_START)
        std::fprintf(file, "push\t%llu\t%u\t%u\t%s\n", time, thread, record.id,
                     one_line(record.name).c_str());
    else if (record.flags & CUPTI_ACTIVITY_FLAG_MARKER_END)
        std::fprintf(file, "pop\t%llu\t%u\t%u\n", time, thread, record.id);
}

// Newer CUPTI appends to these structures, and replaces them by ones of a higher number: the lowest
// that have what is read here serve from CUDA 12.0 on.
void write(const CUpti_Activity* record) {
    switch (record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
            const auto& k = *reinterpret_cast<const CUpti_ActivityKernel8*>(record);
            write_gpu_fields("kernel", k, k.deviceId);
            std::fprintf(file, "\t%dx%dx%d\t%dx%dx%d\t%u\t%d\t%s\n", k.gridX, k.gridY, k.gridZ,
                         k.blockX, k.blockY, k.blockZ, k.registersPerThread,
                         k.staticSharedMemory + k.dynamicSharedMemory, demangled(k.name));
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
            const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
            write_gpu_fields("copy", copy, copy.deviceId);
            std::fprintf(file, "\t%llu\t%s\t%s\n", (unsigned long long)copy.bytes,
                         memory_kind(copy.srcKind), memory_kind(copy.dstKind));
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY2: {  // between two GPUs
            const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
            write_gpu_fields("copy", copy, copy.deviceId);
            std::fprintf(file, "\t%llu\tdevice %u\tdevice %u\n", (unsigned long long)copy.bytes,
                         copy.srcDeviceId, copy.dstDeviceId);
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET: {
            const auto& memset = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
            write_gpu_fields("memset", memset, memset.deviceId);
            std::fprintf(file, "\t%llu\n", (unsigned long long)memset.bytes);
            break;
        }
        case CUPTI_ACTIVITY_KIND_RUNTIME:
        case CUPTI_ACTIVITY_KIND_DRIVER:
            write_call(*reinterpret_cast<const CUpti_ActivityAPI*>(record));
            break;
        case CUPTI_ACTIVITY_KIND_MARKER:
            write_marker(*reinterpret_cast<const CUpti_ActivityMarker2*>(record));
            break;
        default:
            break;
    }
}

void CUPTIAPI lend_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
    *max_records = 0;  // as many as fit
    *buffer = nullptr;
    if (++buffers_lent <= most_buffers)
        *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
    *size = *buffer ? kBufferBytes : 0;
    if (!*buffer) --buffers_lent;
}

void CUPTIAPI take_back_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
    {
        const std::lock_guard lock(file_mutex);
        CUpti_Activity* record = nullptr;
        while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) write(record);
        std::fflush(file);
    }
    std::free(buffer);
    --buffers_lent;
}

/// Has CUPTI deliver what it holds, also of buffers that are not full, and say what it dropped.
void flush() {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    size_t dropped = 0;  // since the last time
    cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
    const std::lock_guard lock(file_mutex);
    if (dropped > 0) std::fprintf(file, "dropped\t%zu\n", dropped);
    std::fflush(file);
}

/// A device that is reset takes its records along, so they are fetched before.
void CUPTIAPI before_reset(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
    if (static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_ENTER) flush();
}

/// Starts recording, once, whoever comes first: CUDA or NVTX. Returns whether it does.
bool start() {
    static const bool started = [] {
        const char* const folder = std::getenv("PROFILE_RECORDS");
        if (!folder) return false;
        file = std::fopen((std::string(folder) + "/" + std::to_string(getpid()) + ".txt").c_str(),
                          "w");
        if (!file) return false;
        if (const char* const most = std::getenv("PROFILE_BUFFERS")) most_buffers = std::atoi(most);

        // One profiler at a time: where there is another, it is this call that says so.
        CUpti_SubscriberHandle subscriber;
        if (!succeeded(cuptiSubscribe(&subscriber, before_reset, nullptr), "cuptiSubscribe"))
            return false;
        cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API,
                            CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020);
        if (!succeeded(cuptiActivityRegisterCallbacks(lend_buffer, take_back_buffer),
                       "cuptiActivityRegisterCallbacks"))
            return false;
        for (const CUpti_ActivityKind kind :
             {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
              CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
              CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_MARKER})
            succeeded(cuptiActivityEnable(kind), "cuptiActivityEnable");
        std::atexit(flush);
        return true;
    }();
    return started;
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiNvtxInitialize2(void* get_export_table);  // in no header of CUPTI's

/// Called by CUDA's driver as it starts. Whatever comes of it, the program is to run: 1.
__attribute__((visibility("default"))) int InitializeInjection() {
    start();
    return 1;
}

/// Called by NVTX at the program's first range. 1 where the ranges are taken.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(void* get_export_table) {
    return start() && succeeded(cuptiNvtxInitialize2(get_export_table), "cuptiNvtxInitialize2");
}
}
