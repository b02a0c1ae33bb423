// The mathematical functions that CUDA declares in the global namespace.
//
// The float overloads are templates: if the kernel includes a standard header that brings plain
// overloads of the same signature, those win and nothing is declared twice.
#pragma once
#include <type_traits>

namespace cudaemu {

template <class T>
using OnlyFloat = std::enable_if_t<std::is_same<T, float>::value>;
template <class T>
using OnlyFloating = std::enable_if_t<std::is_floating_point<T>::value>;
template <class A, class B>
using CommonArithmetic =
    std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value,
                     std::common_type_t<A, B>>;

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

CUDAEMU_MATH_1(sqrt)
CUDAEMU_MATH_1(exp)
CUDAEMU_MATH_1(exp2)
CUDAEMU_MATH_1(log)
CUDAEMU_MATH_1(log2)
CUDAEMU_MATH_1(log1p)
CUDAEMU_MATH_1(floor)
CUDAEMU_MATH_1(ceil)
CUDAEMU_MATH_1(trunc)
CUDAEMU_MATH_1(rint)
CUDAEMU_MATH_1(sin)
CUDAEMU_MATH_1(cos)
CUDAEMU_MATH_1(tanh)
CUDAEMU_MATH_1(fabs)
CUDAEMU_MATH_2(pow)
CUDAEMU_MATH_2(hypot)
CUDAEMU_MATH_2(copysign)
CUDAEMU_MATH_2(fmod)
#undef CUDAEMU_MATH_1
#undef CUDAEMU_MATH_2

extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// A NaN operand is ignored, as IEEE's minNum and the GPU have it. Written out, because the calls
// into the C library that the compiler would make of fminf cost more than the comparison.
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

template <class A, class B>
constexpr cudaemu::CommonArithmetic<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x < y || y != y ? x : y;
}
template <class A, class B>
constexpr cudaemu::CommonArithmetic<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x > y || y != y ? x : y;
}

extern "C" int abs(int) noexcept;
template <class T, class = cudaemu::OnlyFloating<T>>
inline T abs(T x) {
  return fabs(x);
}
inline long long abs(long long x) { return x < 0 ? -x : x; }

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
