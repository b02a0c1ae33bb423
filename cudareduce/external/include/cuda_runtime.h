// The CUDA runtime as the recorder answers it: memory is the host's, kernels only report, and the
// device is like an H100.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "../recorder.h"

// C's abs(int), which older C++ took for unsigned numbers too.
inline int abs(unsigned x) { return abs(static_cast<int>(x)); }

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __inline_hint__
#define __noinline__
#define __nv_pure__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define CUDART_CB
#define CUDARTAPI
#define CUDA_CB
#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_INF __builtin_huge_val()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_MAX_NORMAL_F 3.402823466e38f

using std::size_t;

// Built-in variables and functions of device code, for code that the host also compiles.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
constexpr int warpSize = 32;
template <class... T>
void __syncthreads(T &&...) {}
template <class... T>
void __syncwarp(T &&...) {}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

#define RECORDER_EXTREME(name, op, a, b, type) \
  constexpr type name(a x, b y) { return static_cast<type>(x) op static_cast<type>(y) ? x : y; }
#define RECORDER_EXTREMES(a, b, type) \
  RECORDER_EXTREME(max, >, a, b, type) RECORDER_EXTREME(min, <, a, b, type)
RECORDER_EXTREMES(int, int, int)
RECORDER_EXTREMES(unsigned, unsigned, unsigned)
RECORDER_EXTREMES(int, unsigned, unsigned)
RECORDER_EXTREMES(unsigned, int, unsigned)
RECORDER_EXTREMES(long, long, long)
RECORDER_EXTREMES(unsigned long, unsigned long, unsigned long)
RECORDER_EXTREMES(long, unsigned long, unsigned long)
RECORDER_EXTREMES(unsigned long, long, unsigned long)
RECORDER_EXTREMES(long long, long long, long long)
RECORDER_EXTREMES(unsigned long long, unsigned long long, unsigned long long)
RECORDER_EXTREMES(float, float, float)
RECORDER_EXTREMES(double, double, double)
RECORDER_EXTREMES(float, double, double)
RECORDER_EXTREMES(double, float, double)
#undef RECORDER_EXTREMES
#undef RECORDER_EXTREME
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float saturate(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
template <class To, class From>
To recorder_bits(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from));
  memcpy(&to, &from, sizeof(to));
  return to;
}
inline int __float_as_int(float x) { return recorder_bits<int>(x); }
inline float __int_as_float(int x) { return recorder_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return recorder_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return recorder_bits<float>(x); }
inline long long __double_as_longlong(double x) { return recorder_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return recorder_bits<double>(x); }
template <class T>
T __ldg(const T *x) {
  return *x;
}

// Errors
inline const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
inline const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                     ? "no error"
         : error == cudaErrorInvalidConfiguration ? "invalid configuration argument"
         : error == cudaErrorMemoryAllocation     ? "out of memory"
                                                  : "unknown error";
}
inline cudaError_t cudaGetLastError() { return recorder::last_error(true); }
inline cudaError_t cudaPeekAtLastError() { return recorder::last_error(false); }

// Calls that change nothing that is recorded.
#define RECORDER_IGNORED(name)         \
  template <class... T>                \
  inline cudaError_t name(T &&...) {   \
    return cudaSuccess;                \
  }                                    \
  template <class F, class... T>       \
  inline cudaError_t name(F *, T...) { \
    return cudaSuccess;                \
  }
template <class... P>
cudaError_t cudaFuncSetAttribute(P &&...) {
  recorder::raise_shared_memory();
  return cudaSuccess;
}
RECORDER_IGNORED(cudaFuncSetCacheConfig)
RECORDER_IGNORED(cudaFuncSetSharedMemConfig)
#undef RECORDER_IGNORED
#define RECORDER_IGNORED(name)  \
  template <class... T>         \
  inline cudaError_t name(T...) { \
    return cudaSuccess;         \
  }
RECORDER_IGNORED(cudaDeviceEnablePeerAccess)
RECORDER_IGNORED(cudaDeviceDisablePeerAccess)
RECORDER_IGNORED(cudaDeviceReset)
RECORDER_IGNORED(cudaThreadExit)
RECORDER_IGNORED(cudaDeviceSetCacheConfig)
RECORDER_IGNORED(cudaThreadSetCacheConfig)
RECORDER_IGNORED(cudaDeviceSetSharedMemConfig)
RECORDER_IGNORED(cudaDeviceSetLimit)
RECORDER_IGNORED(cudaCtxResetPersistingL2Cache)
RECORDER_IGNORED(cudaSetDevice)
RECORDER_IGNORED(cudaSetDeviceFlags)
RECORDER_IGNORED(cudaSetValidDevices)
RECORDER_IGNORED(cudaInitDevice)
RECORDER_IGNORED(cudaProfilerStart)
RECORDER_IGNORED(cudaProfilerStop)
RECORDER_IGNORED(cudaStreamDestroy)
RECORDER_IGNORED(cudaStreamWaitEvent)
RECORDER_IGNORED(cudaStreamAttachMemAsync)
RECORDER_IGNORED(cudaStreamSetAttribute)
RECORDER_IGNORED(cudaEventDestroy)
RECORDER_IGNORED(cudaEventRecord)
RECORDER_IGNORED(cudaEventRecordWithFlags)
RECORDER_IGNORED(cudaMemAdvise)
RECORDER_IGNORED(cudaMemPrefetchAsync)
RECORDER_IGNORED(cudaMemPoolSetAttribute)
RECORDER_IGNORED(cudaMemPoolTrimTo)
RECORDER_IGNORED(cudaMemPoolDestroy)
RECORDER_IGNORED(cudaHostRegister)
RECORDER_IGNORED(cudaHostUnregister)
RECORDER_IGNORED(cudaGraphDestroy)
RECORDER_IGNORED(cudaGraphExecDestroy)
RECORDER_IGNORED(cudaGraphUpload)
RECORDER_IGNORED(cudaGraphDebugDotPrint)
#undef RECORDER_IGNORED

enum { cudaDeviceScheduleAuto, cudaDeviceScheduleSpin, cudaDeviceScheduleYield };
enum { cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8 };
enum { cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped };
enum { cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault, cudaHostRegisterPortable, cudaHostRegisterMapped };
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaMemAttachSingle = 4 };
enum { cudaStreamDefault, cudaStreamNonBlocking };
enum { cudaEventDefault, cudaEventBlockingSync, cudaEventDisableTiming, cudaEventInterprocess = 4 };
enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual
};
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault,
  cudaSharedMemBankSizeFourByte,
  cudaSharedMemBankSizeEightByte
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 13
};
enum cudaLimit {
  cudaLimitStackSize,
  cudaLimitPrintfFifoSize,
  cudaLimitMallocHeapSize,
  cudaLimitDevRuntimeSyncDepth,
  cudaLimitDevRuntimePendingLaunchCount,
  cudaLimitMaxL2FetchGranularity,
  cudaLimitPersistingL2CacheSize
};
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly,
  cudaMemAdviseSetPreferredLocation,
  cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy,
  cudaMemAdviseUnsetAccessedBy
};
constexpr int cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2;
constexpr int cudaOccupancyDefault = 0;

// Devices
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256] = "NVIDIA H100 80GB HBM3";
  cudaUUID_t uuid = {};
  size_t totalGlobalMem = size_t(80) << 30, sharedMemPerBlock = 49152;
  int regsPerBlock = 65536, warpSize = 32;
  size_t memPitch = 2147483647;
  int maxThreadsPerBlock = 1024, maxThreadsDim[3] = {1024, 1024, 64};
  int maxGridSize[3] = {2147483647, 65535, 65535};
  int clockRate = 1980000;
  size_t totalConstMem = 65536;
  int major = 9, minor = 0;
  size_t textureAlignment = 512, texturePitchAlignment = 32, surfaceAlignment = 512;
  int deviceOverlap = 1, multiProcessorCount = 132, kernelExecTimeoutEnabled = 0, integrated = 0;
  int canMapHostMemory = 1, computeMode = 0, maxTexture1D = 131072, maxTexture1DLinear = 1 << 28;
  int maxTexture2D[2] = {131072, 65536}, maxTexture3D[3] = {16384, 16384, 16384};
  int concurrentKernels = 1, ECCEnabled = 1, pciBusID = 0, pciDeviceID = 0, pciDomainID = 0;
  int tccDriver = 0, asyncEngineCount = 3, unifiedAddressing = 1, memoryClockRate = 2619000;
  int memoryBusWidth = 5120, l2CacheSize = 52428800, persistingL2CacheMaxSize = 32768000;
  int maxThreadsPerMultiProcessor = 2048, streamPrioritiesSupported = 1;
  int globalL1CacheSupported = 1, localL1CacheSupported = 1;
  size_t sharedMemPerMultiprocessor = 233472;
  int regsPerMultiprocessor = 65536, managedMemory = 1, isMultiGpuBoard = 0;
  int multiGpuBoardGroupID = 0, hostNativeAtomicSupported = 0, singleToDoublePrecisionPerfRatio = 2;
  int pageableMemoryAccess = 0, concurrentManagedAccess = 1, computePreemptionSupported = 1;
  int canUseHostPointerForRegisteredMem = 1, cooperativeLaunch = 1, cooperativeMultiDeviceLaunch = 1;
  size_t sharedMemPerBlockOptin = 232448;
  int pageableMemoryAccessUsesHostPageTables = 0, directManagedMemAccessFromHost = 0;
  int maxBlocksPerMultiProcessor = 32, accessPolicyMaxWindowSize = 134217728;
  size_t reservedSharedMemPerBlock = 1024;
  int hostRegisterSupported = 1, memoryPoolsSupported = 1, clusterLaunch = 1;
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxGridDimY = 6,
  cudaDevAttrMaxGridDimZ = 7,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrTotalConstantMemory = 9,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrPageableMemoryAccess = 88,
  cudaDevAttrConcurrentManagedAccess = 89,
  cudaDevAttrComputePreemptionSupported = 90,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrCooperativeMultiDeviceLaunch = 96,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrMaxPersistingL2CacheSize = 108,
  cudaDevAttrMaxAccessPolicyWindowSize = 109,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrClusterLaunch = 120
};
inline cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int) {
  static const int values[][2] = {
      {1, 1024},         {2, 1024},    {3, 1024},       {4, 64},        {5, 2147483647},
      {6, 65535},        {7, 65535},   {8, 49152},      {9, 65536},     {10, 32},
      {12, 65536},       {13, 1980000}, {16, 132},      {31, 1},        {36, 2619000},
      {37, 5120},        {38, 52428800}, {39, 2048},    {41, 1},        {75, 9},
      {76, 0},           {81, 233472}, {82, 65536},     {83, 1},        {88, 0},
      {89, 1},           {90, 1},      {95, 1},         {96, 1},        {97, 232448},
      {106, 32},         {108, 32768000}, {109, 134217728}, {111, 1024}, {115, 1},
      {120, 1}};
  *value = 0;
  for (auto &pair : values) {
    if (pair[0] == attribute) *value = pair[1];
  }
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = cudaDeviceProp();
  return cudaSuccess;
}
inline cudaError_t cudaChooseDevice(int *device, const cudaDeviceProp *) {
  return *device = 0, cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(size_t *value, int) { return *value = 1 << 23, cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig *config) {
  return *config = cudaSharedMemBankSizeFourByte, cudaSuccess;
}
inline cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *config) {
  return *config = cudaFuncCachePreferNone, cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int) {
  return snprintf(text, length, "0000:00:00.0"), cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  recorder::synchronize();
  return cudaGetLastError();
}
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  return *free = size_t(79) << 30, *total = size_t(80) << 30, cudaSuccess;
}

// Streams and events
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
inline cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  static size_t created = 0;
  return *stream = reinterpret_cast<cudaStream_t>(++created << 4), cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaDeviceSynchronize(); }
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void *);
typedef void (*cudaHostFn_t)(void *);
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                         void *data, unsigned) {
  recorder::synchronize();
  return callback(stream, cudaSuccess, data), cudaSuccess;
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *data) {
  recorder::synchronize();
  return function(data), cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event) {
  static size_t created = 0;
  return *event = reinterpret_cast<cudaEvent_t>(++created << 4), cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  return cudaEventCreate(event);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
  return *ms = 1, cudaSuccess;
}

// Memory
template <class T>
cudaError_t recorder_allocate(T **pointer, size_t bytes, recorder::Kind kind) {
  *pointer = static_cast<T *>(recorder::allocate(bytes, kind, "", recorder::name_holder<T>()));
  return *pointer ? cudaSuccess : recorder::set_error(cudaErrorMemoryAllocation);
}
template <class T>
cudaError_t cudaMalloc(T **pointer, size_t bytes) {
  return recorder_allocate(pointer, bytes, recorder::kDevice);
}
typedef struct CUmemPool_st *cudaMemPool_t;
enum cudaMemPoolAttr { cudaMemPoolReuseFollowEventDependencies = 1 };
enum { cudaMemPoolAttrReleaseThreshold = 4 };
template <class T>
cudaError_t cudaMallocAsync(T **pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T **pointer, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
template <class T>
cudaError_t cudaMallocFromPoolAsync(T **pointer, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int) {
  return *pool = nullptr, cudaSuccess;
}
template <class T>
cudaError_t cudaMallocManaged(T **pointer, size_t bytes, unsigned = cudaMemAttachGlobal) {
  return recorder_allocate(pointer, bytes, recorder::kManaged);
}
template <class T>
cudaError_t cudaMallocHost(T **pointer, size_t bytes, unsigned = 0) {
  return recorder_allocate(pointer, bytes, recorder::kPinned);
}
template <class T>
cudaError_t cudaHostAlloc(T **pointer, size_t bytes, unsigned) {
  return recorder_allocate(pointer, bytes, recorder::kPinned);
}
template <class T, class U>
cudaError_t cudaHostGetDevicePointer(T **device, U *host, unsigned) {
  return *device = (T *)host, cudaSuccess;
}
template <class T>
cudaError_t cudaMallocPitch(T **pointer, size_t *pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}
inline cudaError_t cudaFree(const void *address) {
  return recorder::release(const_cast<void *>(address)), cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void *address, cudaStream_t) { return cudaFree(address); }
inline cudaError_t cudaFreeHost(void *address) { return cudaFree(address); }

inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice) recorder::synchronize();
  return recorder::copy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  return recorder::copy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpyPeer(void *to, int, const void *from, int, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
inline cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                       cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
inline cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
  if (width == to_pitch && width == from_pitch) return cudaMemcpy(to, from, width * height, kind);
  for (size_t row = 0; row < height; ++row) {
    cudaMemcpy(static_cast<char *>(to) + row * to_pitch,
               static_cast<const char *>(from) + row * from_pitch, width, kind);
  }
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t = nullptr) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t cudaMemset(void *address, int byte, size_t bytes) {
  return recorder::fill(address, byte, bytes);
}
inline cudaError_t cudaMemsetAsync(void *address, int byte, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(address, byte, bytes);
}
inline cudaError_t cudaMemset2D(void *address, size_t pitch, int byte, size_t width,
                                size_t height) {
  for (size_t row = 0; row < height; ++row) {
    cudaMemset(static_cast<char *>(address) + row * pitch, byte, width);
  }
  return cudaSuccess;
}
inline cudaError_t cudaMemset2DAsync(void *address, size_t pitch, int byte, size_t width,
                                     size_t height, cudaStream_t = nullptr) {
  return cudaMemset2D(address, pitch, byte, width, height);
}

// Old programs name a symbol by a string.
template <class T>
char *recorder_symbol(const T &symbol) {
  return (char *)&symbol;
}
inline char *recorder_symbol(const char *name) {
  return static_cast<char *>(recorder::symbol_named(name));
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(recorder_symbol(symbol) + offset, from, bytes, kind);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T &symbol, const void *from, size_t bytes,
                                    size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                    cudaStream_t = nullptr) {
  return cudaMemcpyAsync(recorder_symbol(symbol) + offset, from, bytes, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(to, recorder_symbol(symbol) + offset, bytes, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                      cudaStream_t = nullptr) {
  return cudaMemcpyAsync(to, recorder_symbol(symbol) + offset, bytes, kind);
}
template <class P, class T>
cudaError_t cudaGetSymbolAddress(P **address, const T &symbol) {
  return *address = (P *)recorder_symbol(symbol), cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolSize(size_t *bytes, const T &) {
  return *bytes = sizeof(T), cudaSuccess;
}
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes,
                                            const void *address) {
  const recorder::Kind kind = recorder::kind_of(address);
  void *pointer = const_cast<void *>(address);
  *attributes = {kind == recorder::kManaged  ? cudaMemoryTypeManaged
                 : kind == recorder::kPinned ? cudaMemoryTypeHost
                                             : cudaMemoryTypeDevice,
                 0, pointer, kind == recorder::kManaged ? pointer : nullptr};
  return cudaSuccess;
}

// Launches
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                             size_t shared = 0, cudaStream_t stream = nullptr) {
  recorder::configure(grid, block, shared, stream, false, dim3(1));
  return recorder::launch(recorder::function_address(kernel), arguments);
}
inline cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared = 0, cudaStream_t stream = nullptr) {
  recorder::configure(grid, block, shared, stream, false, dim3(1));
  return recorder::launch(kernel, arguments);
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block,
                                        void **arguments, size_t shared = 0,
                                        cudaStream_t stream = nullptr) {
  recorder::configure(grid, block, shared, stream, true, dim3(1));
  return recorder::launch(recorder::function_address(kernel), arguments);
}
inline cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block,
                                               void **arguments, size_t shared = 0,
                                               cudaStream_t stream = nullptr) {
  recorder::configure(grid, block, shared, stream, true, dim3(1));
  return recorder::launch(kernel, arguments);
}
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeAccessPolicyWindow = 1,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeSynchronizationPolicy = 3,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8
};
struct cudaAccessPolicyWindow {
  void *base_ptr;
  size_t num_bytes;
  float hitRatio;
  int hitProp, missProp;
};
enum { cudaAccessPropertyNormal, cudaAccessPropertyStreaming, cudaAccessPropertyPersisting };
union cudaLaunchAttributeValue {
  cudaAccessPolicyWindow accessPolicyWindow;
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  int priority;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
typedef cudaLaunchAttributeValue cudaStreamAttrValue, cudaKernelNodeAttrValue;
constexpr auto cudaStreamAttributeAccessPolicyWindow = cudaLaunchAttributeAccessPolicyWindow;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute *attrs = nullptr;
  unsigned numAttrs = 0;
};
inline void recorder_configure(const cudaLaunchConfig_t *config) {
  bool cooperative = false;
  dim3 cluster(1);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute &attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) cooperative = attribute.val.cooperative;
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto &size = attribute.val.clusterDim;
      cluster = dim3(size.x, size.y, size.z);
    }
  }
  recorder::configure(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream,
                      cooperative, cluster);
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                               A &&...arguments) {
  recorder_configure(config);
  kernel(std::forward<A>(arguments)...);
  return recorder::last_error(false);
}
template <class... P>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                void **arguments) {
  recorder_configure(config);
  return recorder::launch(recorder::function_address(kernel), arguments);
}
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **arguments) {
  recorder_configure(config);
  return recorder::launch(kernel, arguments);
}

// Occupancy: 32 registers a thread
struct cudaFuncAttributes {
  size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0;
  int maxThreadsPerBlock = 1024, numRegs = 32, ptxVersion = 90, binaryVersion = 90;
  int cacheModeCA = 0, maxDynamicSharedSizeBytes = 49152, preferredShmemCarveout = -1;
};
template <class K>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, K) {
  return *attributes = cudaFuncAttributes(), cudaSuccess;
}
template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, K, int threads,
                                                          size_t shared) {
  const int by_threads = threads > 0 && threads <= 1024 ? 2048 / ((threads + 31) / 32 * 32) : 0;
  const int by_memory = static_cast<int>(233472 / (shared + 1024));
  return *blocks = min(32, min(by_threads, by_memory)), cudaSuccess;
}
template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, K kernel,
                                                                   int threads, size_t shared,
                                                                   unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
template <class K>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, K, size_t = 0,
                                               int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  return *grid = 132 * (2048 / *block), cudaSuccess;
}
template <class K, class F>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int *grid, int *block, K kernel, F,
                                                           int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, 0, limit);
}

// Graphs are the sequence in which their nodes were added.
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
struct cudaKernelNodeParams {
  void *func;
  dim3 gridDim, blockDim;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
};
struct cudaMemsetParams {
  void *dst;
  size_t pitch;
  unsigned value, elementSize;
  size_t width, height;
};
struct cudaHostNodeParams {
  cudaHostFn_t fn;
  void *userData;
};
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int = 0) {
  return recorder::begin_capture(stream), cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return *graph = recorder::end_capture(stream), cudaSuccess;
}
inline cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) {
  return *graph = recorder::new_graph(), cudaSuccess;
}
template <class... T>
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, T...) {
  return *executable = graph, cudaSuccess;
}
template <class... T>
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, T...) {
  return *executable = graph, cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  return recorder::replay(executable), cudaSuccess;
}
inline cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *count) {
  return *count = 0, cudaSuccess;
}
inline cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *, cudaGraph_t graph,
                                          const cudaGraphNode_t *, size_t,
                                          const cudaKernelNodeParams *node) {
  recorder::begin_node(graph);
  const cudaError_t error = cudaLaunchKernel(node->func, node->gridDim, node->blockDim,
                                             node->kernelParams, node->sharedMemBytes);
  recorder::end_node();
  return error;
}
inline cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *, cudaGraph_t graph,
                                            const cudaGraphNode_t *, size_t, void *to,
                                            const void *from, size_t bytes, cudaMemcpyKind kind) {
  recorder::begin_node(graph);
  recorder::copy(to, from, bytes, kind);
  return recorder::end_node(), cudaSuccess;
}
inline cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *, cudaGraph_t graph,
                                          const cudaGraphNode_t *, size_t,
                                          const cudaMemsetParams *node) {
  recorder::begin_node(graph);
  recorder::fill(node->dst, node->value, node->width * node->elementSize * node->height);
  return recorder::end_node(), cudaSuccess;
}
inline cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *,
                                        size_t, const cudaHostNodeParams *) {
  return cudaSuccess;
}

// Textures: only that they exist
typedef unsigned long long cudaTextureObject_t, cudaSurfaceObject_t;
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum { cudaTextureType1D = 1, cudaTextureType2D, cudaTextureType3D };
template <class T, int dimensions = 1, int mode = 0>
struct texture {
  int normalized, filterMode, addressMode[3];
};
template <class... T>
cudaError_t cudaBindTexture(T &&...) {
  return cudaSuccess;
}
template <class... T>
cudaError_t cudaUnbindTexture(T &&...) {
  return cudaSuccess;
}
