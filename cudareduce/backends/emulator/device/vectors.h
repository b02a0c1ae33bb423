// The built-in vector types with CUDA's alignments, and their make_ functions.
#pragma once

#define CUDAEMU_VECTORS(element, name, align2, align4)                                 \
  struct name##1 { element x; };                                                       \
  struct __align__(align2) name##2 { element x, y; };                                  \
  CUDAEMU_VECTOR3(element, name)                                                       \
  struct __align__(align4) name##4 { element x, y, z, w; };                            \
  inline name##1 make_##name##1(element x) { return {x}; }                             \
  inline name##2 make_##name##2(element x, element y) { return {x, y}; }               \
  inline name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; } \
  inline name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }

#define CUDAEMU_VECTOR3(element, name) \
  struct name##3 { element x, y, z; };

CUDAEMU_VECTORS(signed char, char, 2, 4)
CUDAEMU_VECTORS(unsigned char, uchar, 2, 4)
CUDAEMU_VECTORS(short, short, 4, 8)
CUDAEMU_VECTORS(unsigned short, ushort, 4, 8)
CUDAEMU_VECTORS(int, int, 8, 16)
CUDAEMU_VECTORS(long long, longlong, 16, 16)
CUDAEMU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUDAEMU_VECTORS(float, float, 8, 16)
CUDAEMU_VECTORS(double, double, 16, 16)

#undef CUDAEMU_VECTOR3
#define CUDAEMU_VECTOR3(element, name)  // uint3 is in runtime.h: threadIdx has that type
CUDAEMU_VECTORS(unsigned, uint, 8, 16)

#undef CUDAEMU_VECTOR3
#undef CUDAEMU_VECTORS
