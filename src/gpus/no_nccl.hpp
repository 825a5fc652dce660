// In NCCL's place where its header is not there, so that programs build: calls of it fail.
#pragma once

#include <cuda_runtime.h>

enum ncclResult_t { ncclSuccess, ncclUnavailable, ncclInProgress = 7 };
enum ncclDataType_t { ncclHalf, ncclDouble };
enum ncclRedOp_t { ncclSum, ncclMax };
using ncclComm_t = void*;
struct ncclUniqueId {};
struct ncclConfig_t {};
#define NCCL_CONFIG_INITIALIZER \
    {}

inline const char* ncclGetErrorString(ncclResult_t) { return "built without NCCL"; }
inline ncclResult_t ncclGroupStart() { return ncclUnavailable; }
inline ncclResult_t ncclGroupEnd() { return ncclUnavailable; }
inline ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclUnavailable; }
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*) {
    return ncclUnavailable;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclUnavailable; }
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*) { return ncclUnavailable; }
inline ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                  ncclComm_t, cudaStream_t) {
    return ncclUnavailable;
}
inline ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                  cudaStream_t) {
    return ncclUnavailable;
}
