// CUB: its device-wide calls are logged; its blocks and warps are device code.
#pragma once
#include <iterator>

#include "cuda_runtime.h"

namespace cub {

struct Sum {};
struct Max {};
struct Min {};
struct ArgMax {};
struct ArgMin {};
struct Equality {};
template <class K, class V>
struct KeyValuePair {
  typedef K Key;
  typedef V Value;
  K key;
  V value;
};
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE };
#define RECORDER_COLLECTIVE(name)        \
  template <class T, auto... parameters> \
  struct name {                          \
    struct TempStorage {};               \
  };
RECORDER_COLLECTIVE(BlockReduce)
RECORDER_COLLECTIVE(BlockScan)
RECORDER_COLLECTIVE(BlockLoad)
RECORDER_COLLECTIVE(BlockStore)
RECORDER_COLLECTIVE(WarpReduce)
RECORDER_COLLECTIVE(WarpScan)
#undef RECORDER_COLLECTIVE

struct CachingDeviceAllocator {
  template <class... T>
  CachingDeviceAllocator(T...) {}
  template <class... T>
  cudaError_t DeviceAllocate(void **pointer, size_t bytes, T...) {
    return cudaMalloc(pointer, bytes);
  }
  cudaError_t DeviceFree(void *pointer) { return cudaFree(pointer); }
};

// Without temporary storage a call says how much it needs.
template <class... T>
cudaError_t recorder_call(const char *name, void *storage, size_t &bytes, T &&...) {
  if (storage == nullptr) return bytes = 1024, cudaSuccess;
  return recorder::library_call(name), cudaSuccess;
}
#define RECORDER_CALL(type, name)                                                   \
  template <class... T>                                                             \
  static cudaError_t name(void *storage, size_t &bytes, T &&...arguments) {         \
    return recorder_call("cub::" #type "::" #name, storage, bytes, arguments...);   \
  }
struct DeviceReduce {
  RECORDER_CALL(DeviceReduce, Sum)
  RECORDER_CALL(DeviceReduce, Min)
  RECORDER_CALL(DeviceReduce, Max)
  RECORDER_CALL(DeviceReduce, ArgMin)
  RECORDER_CALL(DeviceReduce, ArgMax)
  RECORDER_CALL(DeviceReduce, Reduce)
  RECORDER_CALL(DeviceReduce, TransformReduce)
  RECORDER_CALL(DeviceReduce, ReduceByKey)
};
struct DeviceSegmentedReduce {
  RECORDER_CALL(DeviceSegmentedReduce, Sum)
  RECORDER_CALL(DeviceSegmentedReduce, Min)
  RECORDER_CALL(DeviceSegmentedReduce, Max)
  RECORDER_CALL(DeviceSegmentedReduce, Reduce)
};
struct DeviceScan {
  RECORDER_CALL(DeviceScan, InclusiveSum)
  RECORDER_CALL(DeviceScan, ExclusiveSum)
};
struct DeviceRadixSort {
  RECORDER_CALL(DeviceRadixSort, SortKeys)
  RECORDER_CALL(DeviceRadixSort, SortPairs)
  RECORDER_CALL(DeviceRadixSort, SortKeysDescending)
};
struct DeviceHistogram {
  RECORDER_CALL(DeviceHistogram, HistogramEven)
};
#undef RECORDER_CALL

}  // namespace cub

#define CubDebugExit(call) (call)
#define CubDebug(call) (call)
