// CUDA's keywords and built-in variables.
#pragma once

#define __global__
#define __device__
#define __host__
#define __managed__
#define __grid_constant__
#define __nv_pure__
#define __launch_bounds__(...)  // read by the loader, see toolchain.py
#define __maxnreg__(...)
#define __block_size__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#ifdef CUDAEMU_NOINLINE  // a word of the standard library's headers, too; see toolchain.py
#define __noinline__ __attribute__((noinline))
#endif
#define __align__(bytes) __attribute__((aligned(bytes)))

// If the condition is false, the kernel has a bug.
#define __builtin_assume(...) \
  ((__VA_ARGS__)              \
       ? (void)0              \
       : cudaemu::assertion_failed("__builtin_assume: " #__VA_ARGS__, cudaemu::Site::here()))
#define __assume __builtin_assume

// Exported, so that the host can set the variable by name.
#define __constant__ __attribute__((visibility("default")))

// One copy per OS thread, which runs one block at a time. In a function thread_local is implicitly
// static, so the declaration also works in templates.
#define __shared__ thread_local

// translation.py replaces `extern __shared__ T name[];` in functions by this macro.
#define CUDAEMU_DYNAMIC_SHARED(type, name) \
  type *name = static_cast<type *>(cudaemu::this_block.dynamic_shared)
// The same at file scope.
#define CUDAEMU_SHARED_OF_FILE(type, name) static const cudaemu::SharedOfFile<type> name

namespace cudaemu {
template <typename T> struct SharedOfFile {
  operator T *() const { return static_cast<T *>(this_block.dynamic_shared); }
};
}  // namespace cudaemu

#define threadIdx (cudaemu::this_thread->index)
#define blockIdx (const_cast<const uint3 &>(cudaemu::this_block.index))
#define blockDim (const_cast<const dim3 &>(cudaemu::this_block.shape))
#define gridDim (const_cast<const dim3 &>(cudaemu::this_block.grid))
static constexpr int warpSize = 32;

// Functions of the C library that CUDA's headers declare.
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define asm _Pragma("GCC error \"inline PTX runs on a GPU only: add plain C++ under CUDAEMU\"") asm
