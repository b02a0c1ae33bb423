// Asynchronous copies of a thread: the C functions.
#pragma once
#include "async_copy.h"

// The last `zeros` bytes of the target are set to 0 instead of copied.
__forceinline__ void __pipeline_memcpy_async(void *target, const void *source, size_t bytes,
                                             size_t zeros = 0) {
  cudaemu::begin_copy(target, source, bytes - zeros, nullptr);
  for (size_t k = bytes - zeros; k < bytes; k++) static_cast<char *>(target)[k] = 0;
}
inline void __pipeline_commit() { cudaemu::close_batch(); }
__forceinline__ void __pipeline_wait_prior(size_t newest) {
  cudaemu::finish_copies(static_cast<unsigned>(newest), nullptr);
}
