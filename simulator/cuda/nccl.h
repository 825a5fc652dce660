// NCCL, as far as the demos call it: communicators whose ranks are all in this process. A group's
// calls are carried out when it ends; then each rank must have made the same ones. Where NCCL waits
// for ranks that never come, so does this.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "cuda_fp16.h"
#include "cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_UNIQUE_ID_BYTES 128

enum ncclResult_t {
    ncclSuccess = 0,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclInProgress = 7,
};
enum ncclDataType_t { ncclHalf = 6, ncclDouble = 8 };
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclConfig_t {
    int maxCTAs;
};
#define NCCL_CONFIG_INITIALIZER \
    { 0 }
using ncclComm_t = struct ncclComm*;

namespace simulator {

/// A rank's call: what all ranks together do, and what of it must be the same for all.
struct NcclCall {
    const void* from;
    void* to;
    size_t bytes;
    std::vector<int> same;
    std::function<void(const std::vector<NcclCall>&)> run;  // of all ranks' calls, by rank
};

}  // namespace simulator

struct ncclComm {
    int world, size, rank;
    std::vector<simulator::NcclCall> calls;  // of the group that has not ended
};

namespace simulator {

inline std::map<int, std::vector<ncclComm_t>> nccl_worlds;
inline int nccl_depth = 0, nccl_ids = 0;

inline ncclResult_t end_nccl_group() {
    for (const auto& world : nccl_worlds) {
        const std::vector<ncclComm_t>& ranks = world.second;
        if (ranks.empty()) continue;
        while (int(ranks.size()) < ranks[0]->size) sleep(1);
        for (size_t i = 0; i < ranks[0]->calls.size(); ++i) {
            std::vector<NcclCall> calls;
            for (const ncclComm_t rank : ranks) {
                const auto same = [&](const NcclCall& call) {
                    return call.bytes == ranks[0]->calls[i].bytes &&
                           call.same == ranks[0]->calls[i].same;
                };
                if (i >= rank->calls.size() || !same(rank->calls[i])) return ncclInvalidUsage;
                calls.push_back(rank->calls[i]);
            }
            calls[0].run(calls);
        }
        for (const ncclComm_t rank : ranks) rank->calls.clear();
    }
    return ncclSuccess;
}

/// Notes a call, or where there is no group carries it out.
inline ncclResult_t nccl_call(ncclComm_t comm, const NcclCall& call) {
    if (!comm) return ncclInvalidArgument;
    comm->calls.push_back(call);
    return nccl_depth > 0 ? ncclSuccess : end_nccl_group();
}

template <class T>
void all_reduce(const std::vector<NcclCall>& calls, ncclRedOp_t op) {
    const size_t bytes = calls[0].bytes;
    std::vector<T> result(bytes / sizeof(T)), next(result);
    cudaMemcpy(result.data(), calls[0].from, bytes, cudaMemcpyDeviceToHost);
    for (size_t rank = 1; rank < calls.size(); ++rank) {
        cudaMemcpy(next.data(), calls[rank].from, bytes, cudaMemcpyDeviceToHost);
        for (size_t i = 0; i < result.size(); ++i)
            result[i] = op == ncclMax ? T(std::max(double(result[i]), double(next[i])))
                                      : T(double(result[i]) + double(next[i]));
    }
    for (const NcclCall& call : calls)
        cudaMemcpy(call.to, result.data(), bytes, cudaMemcpyHostToDevice);
}

}  // namespace simulator

inline const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess        ? "no error"
           : result == ncclInvalidUsage ? "invalid usage: the ranks' calls differ"
                                        : "invalid argument";
}
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    *id = {};
    std::memcpy(id->internal, &++simulator::nccl_ids, sizeof(int));
    return ncclSuccess;
}
inline ncclResult_t ncclGroupStart() { return ++simulator::nccl_depth, ncclSuccess; }
inline ncclResult_t ncclGroupEnd() {
    if (simulator::nccl_depth == 0) return ncclInvalidUsage;
    return --simulator::nccl_depth > 0 ? ncclSuccess : simulator::end_nccl_group();
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                           ncclConfig_t*) {
    int world = 0;
    std::memcpy(&world, id.internal, sizeof(int));
    auto& ranks = simulator::nccl_worlds[world];
    if (rank != int(ranks.size()) && simulator::nccl_depth > 0) return ncclInvalidUsage;
    ranks.push_back(*comm = new ncclComm{world, size, rank, {}});
    return simulator::nccl_depth > 0 ? ncclSuccess : simulator::end_nccl_group();
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    std::erase(simulator::nccl_worlds[comm->world], comm);
    return delete comm, ncclSuccess;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
    return *error = ncclSuccess, ncclSuccess;
}

inline ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
    const bool is_half = type == ncclHalf;
    return simulator::nccl_call(comm, {from,
                                       to,
                                       count * (is_half ? sizeof(__half) : sizeof(double)),
                                       {0, type, op},
                                       [=](const auto& calls) {
                                           is_half ? simulator::all_reduce<__half>(calls, op)
                                                   : simulator::all_reduce<double>(calls, op);
                                       }});
}
inline ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t) {
    const size_t bytes = count * (type == ncclHalf ? sizeof(__half) : sizeof(double));
    return simulator::nccl_call(comm, {from, to, bytes, {1, type, root}, [=](const auto& calls) {
                                           for (const auto& call : calls)
                                               if (call.to != calls[root].from)
                                                   cudaMemcpy(call.to, calls[root].from, bytes,
                                                              cudaMemcpyDeviceToDevice);
                                       }});
}
