// 16-bit floats with the arithmetic of the host, in float.
#pragma once
#include "cuda_runtime.h"

namespace recorder {

inline unsigned short half_bits(float value) {
  const unsigned bits = recorder_bits<unsigned>(value), sign = bits >> 16 & 0x8000;
  const unsigned magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {  // subnormal: the float's own addition rounds it
    const float sum = recorder_bits<float>(magnitude) + 0.5f;
    return sign | (recorder_bits<unsigned>(sum) - 0x3f000000);
  }
  return sign | ((magnitude + 0xc8000fff + (magnitude >> 13 & 1)) >> 13);
}

inline float half_value(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, rest = bits & 1023;
  if (exponent == 31) return recorder_bits<float>(sign | 0x7f800000 | rest << 13);
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * rest * 0x1p-24f;
  return recorder_bits<float>(sign | (exponent + 112) << 23 | rest << 13);
}

inline unsigned short bfloat_bits(float value) {
  const unsigned bits = recorder_bits<unsigned>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline float bfloat_value(unsigned short bits) {
  return recorder_bits<float>(static_cast<unsigned>(bits) << 16);
}

}  // namespace recorder

#define RECORDER_SMALL_FLOAT(name, pair, to_bits, to_value)               \
  struct name {                                                           \
    unsigned short bits;                                                  \
    name() = default;                                                     \
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> \
    name(T value) : bits(to_bits(static_cast<float>(value))) {}           \
    operator float() const { return to_value(bits); }                     \
    name &operator+=(name b) { return *this = name(*this + b); }          \
    name &operator-=(name b) { return *this = name(*this - b); }          \
    name &operator*=(name b) { return *this = name(*this * b); }          \
    name &operator/=(name b) { return *this = name(*this / b); }          \
    friend name operator+(name a, name b) { return float(a) + float(b); } \
    friend name operator-(name a, name b) { return float(a) - float(b); } \
    friend name operator*(name a, name b) { return float(a) * float(b); } \
    friend name operator/(name a, name b) { return float(a) / float(b); } \
    friend name operator-(name a) { return -float(a); }                   \
  };                                                                      \
  struct __align__(4) pair {                                              \
    name x, y;                                                            \
  };

RECORDER_SMALL_FLOAT(__half, __half2, recorder::half_bits, recorder::half_value)
typedef __half half;
typedef __half2 half2;
struct __half_raw {
  unsigned short x;
};
inline half __float2half(float x) { return x; }
inline half __float2half_rn(float x) { return x; }
inline half __double2half(double x) { return x; }
inline half __int2half_rn(int x) { return x; }
inline float __half2float(half x) { return x; }
inline half __hadd(half a, half b) { return a + b; }
inline half __hmul(half a, half b) { return a * b; }
inline bool __hgt(half a, half b) { return float(a) > float(b); }
inline bool __hlt(half a, half b) { return float(a) < float(b); }
inline half __ushort_as_half(unsigned short bits) { return recorder_bits<half>(bits); }
inline unsigned short __half_as_ushort(half x) { return x.bits; }
inline half2 __float2half2_rn(float x) { return {x, x}; }
inline half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline half2 __halves2half2(half x, half y) { return {x, y}; }
inline half2 make_half2(half x, half y) { return {x, y}; }
inline float2 __half22float2(half2 v) { return {v.x, v.y}; }
inline float __low2float(half2 v) { return v.x; }
inline float __high2float(half2 v) { return v.y; }
