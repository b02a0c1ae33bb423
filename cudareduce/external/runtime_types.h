// Types of the CUDA runtime that the recorder and its cuda_runtime.h share.
#pragma once
#include <cstddef>
#include <utility>

#define __align__(n) __attribute__((aligned(n)))

// One to four members of one type, and make_NAME().
#define RECORDER_VECTOR(name, type, align2, align4)                               \
  struct name##1 {                                                                \
    type x;                                                                       \
  };                                                                              \
  struct __align__(align2) name##2 {                                              \
    type x, y;                                                                    \
  };                                                                              \
  struct name##3 {                                                                \
    type x, y, z;                                                                 \
  };                                                                              \
  struct __align__(align4) name##4 {                                              \
    type x, y, z, w;                                                              \
  };                                                                              \
  constexpr name##1 make_##name##1(type x) { return {x}; }                        \
  constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }             \
  constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }  \
  constexpr name##4 make_##name##4(type x, type y, type z, type w) {              \
    return {x, y, z, w};                                                          \
  }
RECORDER_VECTOR(char, signed char, 2, 4)
RECORDER_VECTOR(uchar, unsigned char, 2, 4)
RECORDER_VECTOR(short, short, 4, 8)
RECORDER_VECTOR(ushort, unsigned short, 4, 8)
RECORDER_VECTOR(int, int, 8, 16)
RECORDER_VECTOR(uint, unsigned, 8, 16)
RECORDER_VECTOR(long, long, 16, 16)
RECORDER_VECTOR(ulong, unsigned long, 16, 16)
RECORDER_VECTOR(longlong, long long, 16, 16)
RECORDER_VECTOR(ulonglong, unsigned long long, 16, 16)
RECORDER_VECTOR(float, float, 8, 16)
RECORDER_VECTOR(double, double, 16, 16)
#undef RECORDER_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraph_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchTimeout = 702,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999
};
typedef cudaError cudaError_t;
