#pragma once
#include "cuda_runtime.h"

inline int nvtxRangePushA(const char *) { return 0; }
inline int nvtxRangePush(const char *) { return 0; }
inline int nvtxRangePop() { return 0; }
inline void nvtxMarkA(const char *) {}
inline void nvtxMark(const char *) {}
