// Marks for profilers: there is none here.
#pragma once

#ifdef SIMULATOR_COUNT
int nvtxRangePushA(const char* name);  // for traces
int nvtxRangePop();
#else
inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
#endif
inline void nvtxMarkA(const char*) {}
#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
