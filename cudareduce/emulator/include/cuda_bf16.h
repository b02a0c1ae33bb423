// __nv_bfloat16 and __nv_bfloat162: the upper half of a float in memory, computed in float and
// rounded to nearest even.
#pragma once

namespace cudaemu {

inline unsigned short bfloat16_from_float(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN, the one that the GPU returns
  const uint32_t odd = bits >> 16 & 1;
  return static_cast<unsigned short>((bits + 0x7fff + odd) >> 16);
}

inline float float_from_bfloat16(unsigned short bits) {
  return bits_as<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace cudaemu

#define CUDAEMU_SMALL_FLOAT __nv_bfloat16
#define CUDAEMU_SMALL_FLOAT_2 __nv_bfloat162
#define CUDAEMU_TO_FLOAT cudaemu::float_from_bfloat16
#define CUDAEMU_FROM_FLOAT cudaemu::bfloat16_from_float
#include "small_float.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return value; }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
inline float2 __bfloat1622float2(__nv_bfloat162 value) { return {value.x, value.y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) { return {value.x, value.y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return cudaemu::bits_as<unsigned short>(value);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return cudaemu::bits_as<__nv_bfloat16>(bits);
}
