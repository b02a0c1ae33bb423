// What common samples and books keep in headers of their own: error checks, timers, arguments.
#pragma once
#include <sys/time.h>

#include "cuda_runtime.h"

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif
#define checkCudaErrors(call) (call)
#define getLastCudaError(message) cudaGetLastError()
#define printLastCudaError(message) cudaGetLastError()
#define cutilSafeCall(call) (call)
#define cutilCheckError(call) (call)
#define cutilCheckMsg(message) cudaGetLastError()
#define CUDA_SAFE_CALL(call) (call)
#define CUT_SAFE_CALL(call) (call)
#define CUT_CHECK_ERROR(message) cudaGetLastError()
#define CUT_DEVICE_INIT(argc, argv)
#define CUT_EXIT(argc, argv)
#define HANDLE_ERROR(call) (call)
#define HANDLE_NULL(value) (value)
#define CHECK(call) (call)
#define CHECK_CUDA(call) (call)
#define CUDA_CHECK(call) (call)
#define CUDA_CALL(call) (call)
#define CHECK_CUDA_ERROR(call) (call)
#define gpuErrchk(call) (call)
#define ErrorCheck(call, ...) (call)
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif

inline int _ConvertSMVer2Cores(int, int) { return 128; }
inline const char *_ConvertSMVer2ArchName(int, int) { return "Hopper"; }
inline int findCudaDevice(int, const char **) { return 0; }
inline int gpuGetMaxGflopsDeviceId() { return 0; }
inline int cutGetMaxGflopsDeviceId() { return 0; }
inline int gpuDeviceInit(int) { return 0; }
inline bool checkCudaCapabilities(int, int) { return true; }
inline int findIntegratedGPU() { return -1; }
template <class T>
const char *_cudaGetErrorEnum(T) {
  return "error";
}

// `--name=value` or `-name value`. Each name that is looked for is logged.
inline const char *recorder_option(int count, const char *const *arguments, const char *name) {
  recorder::option(name);
  for (int i = 1; i < count; ++i) {
    const char *argument = arguments[i];
    while (*argument == '-') ++argument;
    const size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0) continue;
    if (argument[length] == '=') return argument + length + 1;
    if (argument[length] == 0) return "";
  }
  return nullptr;
}
template <class A>
bool checkCmdLineFlag(int count, A arguments, const char *name) {
  return recorder_option(count, (const char *const *)arguments, name) != nullptr;
}
template <class A>
int getCmdLineArgumentInt(int count, A arguments, const char *name) {
  const char *text = recorder_option(count, (const char *const *)arguments, name);
  return text ? atoi(text) : 0;
}
template <class A>
float getCmdLineArgumentFloat(int count, A arguments, const char *name) {
  const char *text = recorder_option(count, (const char *const *)arguments, name);
  return text ? atof(text) : 0;
}
template <class A>
bool getCmdLineArgumentString(int count, A arguments, const char *name, char **value) {
  const char *text = recorder_option(count, (const char *const *)arguments, name);
  *value = const_cast<char *>(text);
  return text != nullptr;
}
template <class T, class A>
bool getCmdLineArgumentValue(int count, A arguments, const char *name, T *value) {
  const char *text = recorder_option(count, (const char *const *)arguments, name);
  if (text) *value = static_cast<T>(atof(text));
  return text != nullptr;
}
inline char *sdkFindFilePath(const char *, const char *) { return nullptr; }
template <class T>
bool recorder_compare(const T *a, const T *b, size_t count, double tolerance) {
  for (size_t i = 0; i < count; ++i) {
    if (fabs(double(a[i]) - double(b[i])) > tolerance) return false;
  }
  return true;
}
template <class T>
bool compareData(const T *a, const T *b, size_t count, double tolerance, double = 0) {
  return recorder_compare(a, b, count, tolerance);
}

struct StopWatchInterface {};
inline bool sdkCreateTimer(StopWatchInterface **timer) {
  return *timer = new StopWatchInterface, true;
}
inline bool sdkStartTimer(StopWatchInterface **) { return true; }
inline bool sdkStopTimer(StopWatchInterface **) { return true; }
inline bool sdkResetTimer(StopWatchInterface **) { return true; }
inline bool sdkDeleteTimer(StopWatchInterface **) { return true; }
inline float sdkGetTimerValue(StopWatchInterface **) { return 1; }
inline float sdkGetAverageTimerValue(StopWatchInterface **) { return 1; }

// cutil, of samples before CUDA 5
#define cutCheckCmdLineFlag checkCmdLineFlag
#define cutGetCmdLineArgumenti(count, arguments, name, value) \
  (*(value) = getCmdLineArgumentInt(count, arguments, name), true)
#define cutilDeviceInit(count, arguments)
#define cutilExit(count, arguments)
#define cutilSafeThreadSync() cudaDeviceSynchronize()
#define cutilSafeMalloc(value) (value)
enum CUTBoolean { CUTFalse, CUTTrue };
inline CUTBoolean cutCreateTimer(unsigned *timer) { return *timer = 0, CUTTrue; }
inline CUTBoolean cutStartTimer(unsigned) { return CUTTrue; }
inline CUTBoolean cutStopTimer(unsigned) { return CUTTrue; }
inline CUTBoolean cutResetTimer(unsigned) { return CUTTrue; }
inline CUTBoolean cutDeleteTimer(unsigned) { return CUTTrue; }
inline float cutGetTimerValue(unsigned) { return 1; }
inline float cutGetAverageTimerValue(unsigned) { return 1; }
template <class T>
CUTBoolean cutComparef(const T *, const T *, unsigned) {
  return CUTTrue;
}
template <class T>
CUTBoolean cutComparefe(const T *, const T *, unsigned, float) {
  return CUTTrue;
}

struct GpuTimer {
  void Start() {}
  void Stop() {}
  float Elapsed() { return 1; }
};
inline double recorder_seconds() {
  timeval now;
  gettimeofday(&now, nullptr);
  return now.tv_sec + 1e-6 * now.tv_usec;
}
inline double seconds() { return recorder_seconds(); }
inline double cpuSecond() { return recorder_seconds(); }
inline double get_time() { return recorder_seconds(); }

inline void initialData(float *data, int count) {
  for (int i = 0; i < count; ++i) data[i] = (rand() & 0xff) / 10.0f;
}
inline void initialInt(int *data, int count) {
  for (int i = 0; i < count; ++i) data[i] = rand() & 0xff;
}
inline void initDevice(int) {}
template <class T>
void checkResult(const T *a, const T *b, int count) {
  recorder_compare(a, b, count, 1e-6);
}
inline void *big_random_block(int bytes) {
  auto *data = static_cast<unsigned char *>(malloc(bytes));
  for (int i = 0; i < bytes; ++i) data[i] = rand();
  return data;
}
inline int *big_random_block_int(int count) {
  return static_cast<int *>(big_random_block(count * sizeof(int)));
}
