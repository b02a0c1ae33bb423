// The atomic functions of block and system scope. Few kernels use them, so they have a separate
// header, which keeps compilation of the others fast.
#pragma once

#define CUDAEMU_ATOMIC(name, type, result)             \
  CUDAEMU_ATOMIC_OF(name##_block, Block, type, result) \
  CUDAEMU_ATOMIC_OF(name##_system, Device, type, result)
#define CUDAEMU_ATOMIC_CAS(type)                      \
  CUDAEMU_ATOMIC_CAS_OF(atomicCAS_block, Block, type) \
  CUDAEMU_ATOMIC_CAS_OF(atomicCAS_system, Device, type)
#define CUDAEMU_ATOMIC_VECTOR(name, type, ...)                                      \
  __forceinline__ type name##_block(type *a, type value) { return name(a, value); } \
  __forceinline__ type name##_system(type *a, type value) { return name(a, value); }
#include "atomic_overloads.h"
