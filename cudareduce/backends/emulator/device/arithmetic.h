// Arithmetic and conversions with an explicit rounding mode, and fast approximate functions.
#pragma once
#include <fenv.h>

namespace cudaemu {

// Calls `compute` in a rounding mode other than to nearest. Operands and result are volatile, so that
// the compiler computes nothing outside the two changes of the mode.
template <int mode, class Result, class Compute, class... Operands>
__attribute__((noinline)) Result rounded(Compute compute, Operands... operands) {
  fesetround(mode);
  const volatile Result result = compute(const_cast<const volatile Operands &>(operands)...);
  fesetround(FE_TONEAREST);
  return result;
}

// Converts with saturation. NaN becomes 0, or only the highest bit set if either type has 64 bits.
template <class To, class From>
inline To to_integer(From value, double whole) {
  constexpr int bits = 8 * sizeof(To);
  constexpr bool has_sign = static_cast<To>(-1) < 0;
  constexpr To top_bit = static_cast<To>(uint64_t{1} << (bits - 1));
  constexpr double over = static_cast<double>(uint64_t{1} << (bits - 1)) * (has_sign ? 1 : 2);
  if (value != value) return bits == 64 || sizeof(From) == 8 ? top_bit : 0;
  if (whole >= over) return has_sign ? static_cast<To>(~top_bit) : static_cast<To>(-1);
  if (whole <= (has_sign ? -over : 0.0)) return has_sign ? top_bit : 0;
  return static_cast<To>(whole);
}

}  // namespace cudaemu

#define CUDAEMU_ROUNDED_1(name, type, from, result)                                        \
  inline type name##_rn(from a) { return result; }                                         \
  inline type name##_rz(from a) { CUDAEMU_ROUNDED(TOWARDZERO, type, (from a), a, result) } \
  inline type name##_ru(from a) { CUDAEMU_ROUNDED(UPWARD, type, (from a), a, result) }     \
  inline type name##_rd(from a) { CUDAEMU_ROUNDED(DOWNWARD, type, (from a), a, result) }
#define CUDAEMU_ROUNDED_2(name, type, result)                                       \
  inline type name##_rn(type a, type b) { return result; }                          \
  inline type name##_rz(type a, type b) {                                           \
    CUDAEMU_ROUNDED(TOWARDZERO, type, (type a, type b), CUDAEMU_LIST(a, b), result) \
  }                                                                                 \
  inline type name##_ru(type a, type b) {                                           \
    CUDAEMU_ROUNDED(UPWARD, type, (type a, type b), CUDAEMU_LIST(a, b), result)     \
  }                                                                                 \
  inline type name##_rd(type a, type b) {                                           \
    CUDAEMU_ROUNDED(DOWNWARD, type, (type a, type b), CUDAEMU_LIST(a, b), result)   \
  }
#define CUDAEMU_ROUNDED_3(name, type, result)                                                  \
  inline type name##_rn(type a, type b, type c) { return result; }                             \
  inline type name##_rz(type a, type b, type c) {                                              \
    CUDAEMU_ROUNDED(TOWARDZERO, type, (type a, type b, type c), CUDAEMU_LIST(a, b, c), result) \
  }                                                                                            \
  inline type name##_ru(type a, type b, type c) {                                              \
    CUDAEMU_ROUNDED(UPWARD, type, (type a, type b, type c), CUDAEMU_LIST(a, b, c), result)     \
  }                                                                                            \
  inline type name##_rd(type a, type b, type c) {                                              \
    CUDAEMU_ROUNDED(DOWNWARD, type, (type a, type b, type c), CUDAEMU_LIST(a, b, c), result)   \
  }
#define CUDAEMU_LIST(...) __VA_ARGS__
#define CUDAEMU_ROUNDED(mode, type, parameters, operands, result) \
  return cudaemu::rounded<FE_##mode, type>([] parameters -> type { return result; }, operands);

CUDAEMU_ROUNDED_2(__fadd, float, a + b)
CUDAEMU_ROUNDED_2(__fsub, float, a - b)
CUDAEMU_ROUNDED_2(__fmul, float, a *b)
CUDAEMU_ROUNDED_2(__fdiv, float, a / b)
CUDAEMU_ROUNDED_3(__fmaf, float, fmaf(a, b, c))
CUDAEMU_ROUNDED_1(__frcp, float, float, 1.0f / a)
CUDAEMU_ROUNDED_1(__fsqrt, float, float, __builtin_sqrtf(a))
CUDAEMU_ROUNDED_2(__dadd, double, a + b)
CUDAEMU_ROUNDED_2(__dsub, double, a - b)
CUDAEMU_ROUNDED_2(__dmul, double, a *b)
CUDAEMU_ROUNDED_2(__ddiv, double, a / b)
CUDAEMU_ROUNDED_3(__fma, double, fma(a, b, c))
CUDAEMU_ROUNDED_1(__drcp, double, double, 1.0 / a)
CUDAEMU_ROUNDED_1(__dsqrt, double, double, __builtin_sqrt(a))

CUDAEMU_ROUNDED_1(__double2float, float, double, static_cast<float>(a))
CUDAEMU_ROUNDED_1(__int2float, float, int, static_cast<float>(a))
CUDAEMU_ROUNDED_1(__uint2float, float, unsigned, static_cast<float>(a))
CUDAEMU_ROUNDED_1(__ll2float, float, long long, static_cast<float>(a))
CUDAEMU_ROUNDED_1(__ull2float, float, unsigned long long, static_cast<float>(a))
CUDAEMU_ROUNDED_1(__ll2double, double, long long, static_cast<double>(a))
CUDAEMU_ROUNDED_1(__ull2double, double, unsigned long long, static_cast<double>(a))
#undef CUDAEMU_ROUNDED_1
#undef CUDAEMU_ROUNDED_2
#undef CUDAEMU_ROUNDED_3

inline double __int2double_rn(int a) { return a; }
inline double __uint2double_rn(unsigned a) { return a; }

#define CUDAEMU_TO_INTEGER(name, to, from)                                               \
  inline to name##_rn(from a) { return cudaemu::to_integer<to>(a, __builtin_rint(a)); }  \
  inline to name##_rz(from a) { return cudaemu::to_integer<to>(a, __builtin_trunc(a)); } \
  inline to name##_ru(from a) { return cudaemu::to_integer<to>(a, __builtin_ceil(a)); }  \
  inline to name##_rd(from a) { return cudaemu::to_integer<to>(a, __builtin_floor(a)); }
CUDAEMU_TO_INTEGER(__float2int, int, float)
CUDAEMU_TO_INTEGER(__float2uint, unsigned, float)
CUDAEMU_TO_INTEGER(__float2ll, long long, float)
CUDAEMU_TO_INTEGER(__float2ull, unsigned long long, float)
CUDAEMU_TO_INTEGER(__double2int, int, double)
CUDAEMU_TO_INTEGER(__double2uint, unsigned, double)
CUDAEMU_TO_INTEGER(__double2ll, long long, double)
CUDAEMU_TO_INTEGER(__double2ull, unsigned long long, double)

// Fast functions; on the GPU they are less accurate than here.
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / __builtin_sqrt(x)); }
inline float __saturatef(float x) { return x != x || x <= 0 ? 0.0f : x < 1 ? x : 1.0f; }
inline float __fdividef(float x, float y) {
  const float magnitude = __builtin_fabsf(y);  // as documented, |y| above 2^126 gives 0
  return magnitude > 0x1p126f && magnitude <= 0x1.fffffep127f ? x * 0.0f : x / y;
}
// extern "C", since some C libraries declare functions of these names.
extern "C" {
inline float __expf(float x) noexcept { return expf(x); }
inline float __exp10f(float x) noexcept { return exp10f(x); }
inline float __logf(float x) noexcept { return logf(x); }
inline float __log2f(float x) noexcept { return log2f(x); }
inline float __log10f(float x) noexcept { return log10f(x); }
inline float __powf(float x, float y) noexcept { return exp2f(y * log2f(x)); }
inline float __sinf(float x) noexcept { return sinf(x); }
inline float __cosf(float x) noexcept { return cosf(x); }
inline float __tanf(float x) noexcept { return tanf(x); }
inline void __sincosf(float x, float *sine, float *cosine) noexcept { sincosf(x, sine, cosine); }
}
