// __half and __half2: IEEE binary16 in memory, computed in float and rounded to nearest even.
#pragma once

namespace cudaemu {

inline unsigned short half_from_float(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;  // NaN, the one that the GPU returns
  if (magnitude >= 0x47800000) return static_cast<unsigned short>(sign | 0x7c00);  // 2^16 and more
  if (magnitude < 0x38800000) {
    // Below 2^-14 the spacing of half values is 2^-24, which is that of floats near 0.5. Adding 0.5
    // therefore rounds at the right bit.
    const float rounded = bits_as<float>(magnitude) + 0.5f;
    return static_cast<unsigned short>(sign | (bits_as<uint32_t>(rounded) - 0x3f000000));
  }
  // Round off 13 bits of the fraction to nearest, ties to even; a carry into the exponent gives the
  // right result, including infinity. Then change the exponent's bias from 127 to 15.
  const uint32_t odd = magnitude >> 13 & 1;
  const uint32_t rounded = (magnitude + 0xfff + odd) >> 13;
  return static_cast<unsigned short>(sign | (rounded - ((127 - 15) << 10)));
}

inline float float_from_half(unsigned short half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return bits_as<float>(sign | bits_as<uint32_t>(magnitude));
  }
  const uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return bits_as<float>(sign | wide_exponent << 23 | fraction << 13);
}

}  // namespace cudaemu

#define CUDAEMU_SMALL_FLOAT __half
#define CUDAEMU_SMALL_FLOAT_2 __half2
#define CUDAEMU_SMALL_NAME half
#define CUDAEMU_TO_FLOAT cudaemu::float_from_half
#define CUDAEMU_FROM_FLOAT cudaemu::half_from_float
#include "small_float.h"

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
inline __half2 __half2half2(__half value) { return {value, value}; }

#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00)
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fff)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bff)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001)
