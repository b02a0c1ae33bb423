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

// A promise that is broken is a bug of the kernel.
#define __builtin_assume(...) \
  ((__VA_ARGS__)              \
       ? (void)0              \
       : cudaemu::assertion_failed("__builtin_assume: " #__VA_ARGS__, cudaemu::Site::here()))
#define __assume __builtin_assume

// Visible, so that the host can set it by name.
#define __constant__ __attribute__((visibility("default")))

// One copy for each OS thread, and an OS thread runs one block at a time. At block scope
// thread_local is implicitly static, so the declaration also works inside templates.
#define __shared__ thread_local

// `extern __shared__ T name[];` is rewritten to this by the loader, on the same line.
#define CUDAEMU_DYNAMIC_SHARED(type, name) \
  type *name = static_cast<type *>(cudaemu::this_block.dynamic_shared)
// And to this outside of functions.
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

// The C library's, which CUDA's own headers bring along.
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define asm _Pragma("GCC error \"inline PTX runs on a GPU only: add plain C++ under CUDAEMU\"") asm
