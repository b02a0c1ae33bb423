#pragma once
#include "cuda_fp16.h"

RECORDER_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, recorder::bfloat_bits, recorder::bfloat_value)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
inline nv_bfloat16 __float2bfloat16(float x) { return x; }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline nv_bfloat16 __double2bfloat16(double x) { return x; }
inline float __bfloat162float(nv_bfloat16 x) { return x; }
inline nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
inline float2 __bfloat1622float2(nv_bfloat162 v) { return {v.x, v.y}; }
inline nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return recorder_bits<nv_bfloat16>(x); }
inline unsigned short __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits; }
