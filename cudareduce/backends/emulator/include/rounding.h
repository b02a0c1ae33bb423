// Rounding to odd, for conversions to 16-bit floats: an inexact result gets its last bit set. A second
// rounding, to at most half as many bits, then gives the same result as a single rounding.
#pragma once
#include "../device/arithmetic.h"

namespace cudaemu {

inline float odd_float(double value) {
  const float nearest = static_cast<float>(value);
  if (nearest == value || value != value || __builtin_isinf(nearest)) return nearest;
  const uint32_t bits = bits_as<uint32_t>(nearest);
  if ((bits & 1) != 0) return nearest;
  const bool too_far = __builtin_fabs(nearest) > __builtin_fabs(value);
  return bits_as<float>(too_far ? bits - 1 : bits + 1);
}

// For integers beyond 2^53, the lowest bits are reduced to one bit that is set if any of them is.
inline double odd_double(unsigned long long value) {
  return static_cast<double>(value >> 53 == 0 ? value
                                              : value >> 12 << 12 | ((value & 4095) != 0) << 11);
}
inline double odd_double(long long value) {
  return value < 0 ? -odd_double(0 - static_cast<unsigned long long>(value))
                   : odd_double(static_cast<unsigned long long>(value));
}

inline float odd_sum(double a, double b) {
  const double sum = a + b, part = sum - a, error = (a - (sum - part)) + (b - part);
  if (error == 0 || error != error) return odd_float(sum);
  const uint64_t bits = bits_as<uint64_t>(sum);
  if ((bits & 1) != 0) return odd_float(sum);
  return odd_float(bits_as<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1));
}

inline float same_rz(float value) { return value; }
inline float same_ru(float value) { return value; }
inline float same_rd(float value) { return value; }

}  // namespace cudaemu
