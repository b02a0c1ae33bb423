// The mathematical functions that CUDA declares in the global namespace.
//
// The float overloads are templates. If the kernel includes a standard header with plain overloads of
// the same signature, overload resolution prefers those.
#pragma once
#include "traits.h"

namespace cudaemu {

template <class T>
using OnlyFloat = OnlyIf<same<T, float>>;
template <class T>
using OnlyFloating = OnlyIf<floating<T>>;
template <class T>
using OnlyLong = OnlyIf<same<T, long> || same<T, long long>>;

}  // namespace cudaemu

#define CUDAEMU_MATH_1(name)                        \
  extern "C" double name(double) noexcept;          \
  extern "C" float name##f(float) noexcept;         \
  template <class T, class = cudaemu::OnlyFloat<T>> \
  inline T name(T x) {                              \
    return name##f(x);                              \
  }
#define CUDAEMU_MATH_2(name)                        \
  extern "C" double name(double, double) noexcept;  \
  extern "C" float name##f(float, float) noexcept;  \
  template <class T, class = cudaemu::OnlyFloat<T>> \
  inline T name(T x, T y) {                         \
    return name##f(x, y);                           \
  }
// Functions with an integer result or operand.
#define CUDAEMU_MATH_TO(result, name)               \
  extern "C" result name(double) noexcept;          \
  extern "C" result name##f(float) noexcept;        \
  template <class T, class = cudaemu::OnlyFloat<T>> \
  inline result name(T x) {                         \
    return name##f(x);                              \
  }
#define CUDAEMU_MATH_WITH(name, operand)             \
  extern "C" double name(double, operand) noexcept;  \
  extern "C" float name##f(float, operand) noexcept; \
  template <class T, class = cudaemu::OnlyFloat<T>>  \
  inline T name(T x, operand y) {                    \
    return name##f(x, y);                            \
  }

CUDAEMU_MATH_1(sqrt)
CUDAEMU_MATH_1(cbrt)
CUDAEMU_MATH_1(exp)
CUDAEMU_MATH_1(exp2)
CUDAEMU_MATH_1(exp10)
CUDAEMU_MATH_1(expm1)
CUDAEMU_MATH_1(log)
CUDAEMU_MATH_1(log2)
CUDAEMU_MATH_1(log10)
CUDAEMU_MATH_1(log1p)
CUDAEMU_MATH_1(logb)
CUDAEMU_MATH_1(floor)
CUDAEMU_MATH_1(ceil)
CUDAEMU_MATH_1(trunc)
CUDAEMU_MATH_1(round)
CUDAEMU_MATH_1(rint)
CUDAEMU_MATH_1(nearbyint)
CUDAEMU_MATH_1(sin)
CUDAEMU_MATH_1(cos)
CUDAEMU_MATH_1(tan)
CUDAEMU_MATH_1(asin)
CUDAEMU_MATH_1(acos)
CUDAEMU_MATH_1(atan)
CUDAEMU_MATH_1(sinh)
CUDAEMU_MATH_1(cosh)
CUDAEMU_MATH_1(tanh)
CUDAEMU_MATH_1(asinh)
CUDAEMU_MATH_1(acosh)
CUDAEMU_MATH_1(atanh)
CUDAEMU_MATH_1(erf)
CUDAEMU_MATH_1(erfc)
CUDAEMU_MATH_1(lgamma)
CUDAEMU_MATH_1(tgamma)
CUDAEMU_MATH_1(fabs)
CUDAEMU_MATH_2(pow)
CUDAEMU_MATH_2(hypot)
CUDAEMU_MATH_2(atan2)
CUDAEMU_MATH_2(copysign)
CUDAEMU_MATH_2(fdim)
CUDAEMU_MATH_2(fmod)
CUDAEMU_MATH_2(remainder)
CUDAEMU_MATH_2(nextafter)
CUDAEMU_MATH_TO(int, ilogb)
CUDAEMU_MATH_TO(long, lrint)
CUDAEMU_MATH_TO(long, lround)
CUDAEMU_MATH_TO(long long, llrint)
CUDAEMU_MATH_TO(long long, llround)
CUDAEMU_MATH_WITH(ldexp, int)
CUDAEMU_MATH_WITH(scalbn, int)
CUDAEMU_MATH_WITH(frexp, int *)
#undef CUDAEMU_MATH_1
#undef CUDAEMU_MATH_2
#undef CUDAEMU_MATH_TO
#undef CUDAEMU_MATH_WITH

extern "C" double modf(double, double *) noexcept;
extern "C" float modff(float, float *) noexcept;
extern "C" void sincos(double, double *, double *) noexcept;
extern "C" void sincosf(float, float *, float *) noexcept;
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
template <class T, class = cudaemu::OnlyFloat<T>>
inline T fma(T a, T b, T c) {
  return fmaf(a, b, c);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
inline float norm3df(float x, float y, float z) { return hypotf(hypotf(x, y), z); }
inline double norm3d(double x, double y, double z) { return hypot(hypot(x, y), z); }
inline float fdividef(float x, float y) { return x / y; }

// A NaN operand is ignored, as by IEEE minNum and on the GPU. Written as comparisons, since g++ would
// compile fminf to a call of the C library, which is slower.
#define CUDAEMU_ALWAYS_INLINE extern "C" __attribute__((gnu_inline, always_inline)) inline
#define CUDAEMU_FLOAT_MIN_MAX(min_name, max_name, type)                                            \
  CUDAEMU_ALWAYS_INLINE type min_name(type a, type b) noexcept { return a < b || b != b ? a : b; } \
  CUDAEMU_ALWAYS_INLINE type max_name(type a, type b) noexcept { return a > b || b != b ? a : b; }
CUDAEMU_FLOAT_MIN_MAX(fminf, fmaxf, float)
CUDAEMU_FLOAT_MIN_MAX(fmin, fmax, double)
#undef CUDAEMU_FLOAT_MIN_MAX
#undef CUDAEMU_ALWAYS_INLINE

template <class T, class = cudaemu::OnlyFloat<T>>
inline T fmin(T a, T b) {
  return fminf(a, b);
}
template <class T, class = cudaemu::OnlyFloat<T>>
inline T fmax(T a, T b) {
  return fmaxf(a, b);
}

#define CUDAEMU_MIN_MAX(prefix, type)                               \
  inline type prefix##min(type a, type b) { return a < b ? a : b; } \
  inline type prefix##max(type a, type b) { return a > b ? a : b; }
CUDAEMU_MIN_MAX(u, unsigned)
CUDAEMU_MIN_MAX(ll, long long)
CUDAEMU_MIN_MAX(ull, unsigned long long)
#undef CUDAEMU_MIN_MAX

// Exactly CUDA's overloads, so that a call that is ambiguous for nvcc is ambiguous here.
#define CUDAEMU_MIN_MAX(a_type, b_type, type)                                  \
  inline type min(a_type a, b_type b) {                                        \
    return static_cast<type>(a) < static_cast<type>(b) ? static_cast<type>(a)  \
                                                       : static_cast<type>(b); \
  }                                                                            \
  inline type max(a_type a, b_type b) {                                        \
    return static_cast<type>(a) > static_cast<type>(b) ? static_cast<type>(a)  \
                                                       : static_cast<type>(b); \
  }
#define CUDAEMU_MIN_MAX_INTEGERS(type)                         \
  CUDAEMU_MIN_MAX(type, type, type)                            \
  CUDAEMU_MIN_MAX(unsigned type, unsigned type, unsigned type) \
  CUDAEMU_MIN_MAX(type, unsigned type, unsigned type)          \
  CUDAEMU_MIN_MAX(unsigned type, type, unsigned type)
CUDAEMU_MIN_MAX_INTEGERS(int)
CUDAEMU_MIN_MAX_INTEGERS(long)
CUDAEMU_MIN_MAX_INTEGERS(long long)
#undef CUDAEMU_MIN_MAX
#undef CUDAEMU_MIN_MAX_INTEGERS
#define CUDAEMU_MIN_MAX(a_type, b_type, suffix)                      \
  inline auto min(a_type a, b_type b) { return fmin##suffix(a, b); } \
  inline auto max(a_type a, b_type b) { return fmax##suffix(a, b); }
CUDAEMU_MIN_MAX(float, float, f)
CUDAEMU_MIN_MAX(double, double, )
CUDAEMU_MIN_MAX(float, double, )
CUDAEMU_MIN_MAX(double, float, )
#undef CUDAEMU_MIN_MAX

extern "C" int abs(int) noexcept;
extern "C" long labs(long) noexcept;
extern "C" long long llabs(long long) noexcept;
template <class T, class = cudaemu::OnlyFloating<T>>
inline T abs(T x) {
  return fabs(x);
}
template <class T, class = cudaemu::OnlyLong<T>, class = void>
inline T abs(T x) {
  return x < 0 ? -x : x;
}

template <class T, class = cudaemu::OnlyFloating<T>>
constexpr bool isnan(T x) {
  return __builtin_isnan(x);
}
template <class T, class = cudaemu::OnlyFloating<T>>
constexpr bool isinf(T x) {
  return __builtin_isinf(x);
}
template <class T, class = cudaemu::OnlyFloating<T>>
constexpr bool isfinite(T x) {
  return __builtin_isfinite(x);
}
template <class T, class = cudaemu::OnlyFloating<T>>
constexpr bool signbit(T x) {
  return __builtin_signbit(x);
}

#ifndef INFINITY
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#endif
