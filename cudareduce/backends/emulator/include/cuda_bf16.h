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
#define CUDAEMU_SMALL_NAME bfloat16
#define CUDAEMU_TO_FLOAT cudaemu::float_from_bfloat16
#define CUDAEMU_FROM_FLOAT cudaemu::bfloat16_from_float
#include "small_float.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }

#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80)
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fff)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7f)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001)
