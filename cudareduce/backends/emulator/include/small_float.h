// A 16-bit float type and its pair, for cuda_fp16.h and cuda_bf16.h, which define the names and the
// two conversions as macros and include this once each (hence no include guard).
#include "rounding.h"

struct CUDAEMU_SMALL_FLOAT {
  unsigned short bits;

  CUDAEMU_SMALL_FLOAT() = default;  // trivial, so that __shared__ arrays need no constructor
  CUDAEMU_SMALL_FLOAT(float value) : bits(CUDAEMU_FROM_FLOAT(value)) {}
  CUDAEMU_SMALL_FLOAT(double value) : CUDAEMU_SMALL_FLOAT(cudaemu::odd_float(value)) {}
  CUDAEMU_SMALL_FLOAT(short value) : CUDAEMU_SMALL_FLOAT(static_cast<float>(value)) {}
  CUDAEMU_SMALL_FLOAT(unsigned short value) : CUDAEMU_SMALL_FLOAT(static_cast<float>(value)) {}
  CUDAEMU_SMALL_FLOAT(int value) : CUDAEMU_SMALL_FLOAT(static_cast<double>(value)) {}
  CUDAEMU_SMALL_FLOAT(unsigned value) : CUDAEMU_SMALL_FLOAT(static_cast<double>(value)) {}
  CUDAEMU_SMALL_FLOAT(long long value) : CUDAEMU_SMALL_FLOAT(cudaemu::odd_double(value)) {}
  CUDAEMU_SMALL_FLOAT(unsigned long long value) : CUDAEMU_SMALL_FLOAT(cudaemu::odd_double(value)) {}
  CUDAEMU_SMALL_FLOAT(long value) : CUDAEMU_SMALL_FLOAT(static_cast<long long>(value)) {}
  CUDAEMU_SMALL_FLOAT(unsigned long value)
      : CUDAEMU_SMALL_FLOAT(static_cast<unsigned long long>(value)) {}
  operator float() const { return CUDAEMU_TO_FLOAT(bits); }
};

struct __align__(4) CUDAEMU_SMALL_FLOAT_2 {
  CUDAEMU_SMALL_FLOAT x, y;

  CUDAEMU_SMALL_FLOAT_2() = default;
  CUDAEMU_SMALL_FLOAT_2(CUDAEMU_SMALL_FLOAT low, CUDAEMU_SMALL_FLOAT high) : x(low), y(high) {}
};

namespace cudaemu {

inline CUDAEMU_SMALL_FLOAT as_small(unsigned short bits, const CUDAEMU_SMALL_FLOAT *) {
  return bits_as<CUDAEMU_SMALL_FLOAT>(bits);
}

// The minimum or maximum of two; NaN operands are ignored unless `propagate`.
inline CUDAEMU_SMALL_FLOAT extreme(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b, bool larger,
                                   bool propagate) {
  const float x = a, y = b;
  if (x != x || y != y) {
    if (propagate || (x != x && y != y)) return bits_as<CUDAEMU_SMALL_FLOAT>((unsigned short)0x7fff);
    return x != x ? b : a;
  }
  if (x == y) return (a.bits >> 15) == larger ? b : a;  // -0 is less than +0
  return (x < y) == larger ? b : a;
}

// Rounds to nearest, then by one unit in the direction of the rounding mode if that is needed.
inline CUDAEMU_SMALL_FLOAT directed(float value, int mode, const CUDAEMU_SMALL_FLOAT *) {
  CUDAEMU_SMALL_FLOAT nearest = value;
  const float back = nearest;
  const bool down = mode == FE_DOWNWARD || (mode == FE_TOWARDZERO && value > 0);
  const bool up = mode == FE_UPWARD || (mode == FE_TOWARDZERO && value < 0);
  const bool negative = nearest.bits >> 15;
  if (back > value && down) nearest.bits += negative ? 1 : -1;
  if (back < value && up) nearest.bits += negative ? -1 : 1;
  if (nearest.bits == 0xffff || (up && back < value && back == 0 && negative)) nearest.bits = 1;
  return nearest;
}

}  // namespace cudaemu

#define CUDAEMU_PASTE_3(a, b, c) a##b##c
#define CUDAEMU_PASTE(a, b, c) CUDAEMU_PASTE_3(a, b, c)
// Pastes the name of the type between two parts of a name.
#define CUDAEMU_NAME(before, after) CUDAEMU_PASTE(before, CUDAEMU_SMALL_NAME, after)

// Operations on a pair apply to each of its numbers and have the same name.
#define CUDAEMU_OF_1(name, pair_name, result)                               \
  inline CUDAEMU_SMALL_FLOAT name(CUDAEMU_SMALL_FLOAT a) { return result; } \
  inline CUDAEMU_SMALL_FLOAT_2 pair_name(CUDAEMU_SMALL_FLOAT_2 a) { return {name(a.x), name(a.y)}; }
#define CUDAEMU_OF_2(name, pair_name, result)                                                      \
  inline CUDAEMU_SMALL_FLOAT name(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) { return result; } \
  inline CUDAEMU_SMALL_FLOAT_2 pair_name(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) {       \
    return {name(a.x, b.x), name(a.y, b.y)};                                                       \
  }
#define CUDAEMU_OF_3(name, pair_name, result)                                              \
  inline CUDAEMU_SMALL_FLOAT name(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b,            \
                                  CUDAEMU_SMALL_FLOAT c) {                                 \
    return result;                                                                         \
  }                                                                                        \
  inline CUDAEMU_SMALL_FLOAT_2 pair_name(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b, \
                                         CUDAEMU_SMALL_FLOAT_2 c) {                        \
    return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)};                                     \
  }

// Arithmetic rounds after every operation; comparisons compare the values as floats.
#define CUDAEMU_ARITHMETIC(op)                                                                   \
  inline CUDAEMU_SMALL_FLOAT operator op(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) {         \
    return static_cast<float>(a) op static_cast<float>(b);                                       \
  }                                                                                              \
  inline CUDAEMU_SMALL_FLOAT &operator op## = (CUDAEMU_SMALL_FLOAT & a, CUDAEMU_SMALL_FLOAT b) { \
    return a = a op b;                                                                           \
  }                                                                                              \
  inline CUDAEMU_SMALL_FLOAT_2 operator op(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) {   \
    return {a.x op b.x, a.y op b.y};                                                             \
  }                                                                                              \
  inline CUDAEMU_SMALL_FLOAT_2 &operator op## =                                                  \
      (CUDAEMU_SMALL_FLOAT_2 & a, CUDAEMU_SMALL_FLOAT_2 b) {                                     \
    return a = a op b;                                                                           \
  }
// `u` variants are also true if an operand is NaN. For pairs there are three results: 1 or 0 in each
// part, all bits set or clear in each part, and whether both parts are true.
#define CUDAEMU_COMPARISON(op, name, unordered)                               \
  inline bool operator op(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) {     \
    return static_cast<float>(a) op static_cast<float>(b);                    \
  }                                                                           \
  inline bool operator op(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) { \
    return a.x op b.x && a.y op b.y;                                          \
  }                                                                           \
  CUDAEMU_COMPARISON_NAMED(name, a op b && !cudaemu::is_unordered(a, b))      \
  CUDAEMU_COMPARISON_NAMED(name##u, a op b || cudaemu::is_unordered(a, b))
#define CUDAEMU_COMPARISON_NAMED(name, result)                                                  \
  inline bool __h##name(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) { return result; }        \
  inline CUDAEMU_SMALL_FLOAT_2 __h##name##2(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) { \
    return {static_cast<float>(__h##name(a.x, b.x)), static_cast<float>(__h##name(a.y, b.y))};  \
  }                                                                                             \
  inline unsigned __h##name##2_mask(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) {         \
    return (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0);       \
  }                                                                                             \
  inline bool __hb##name##2(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) {                 \
    return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                          \
  }

inline bool __hisnan(CUDAEMU_SMALL_FLOAT a) { return __builtin_isnan(static_cast<float>(a)); }
inline int __hisinf(CUDAEMU_SMALL_FLOAT a) {
  return __builtin_isinf(static_cast<float>(a)) ? (a.bits >> 15 ? -1 : 1) : 0;
}
namespace cudaemu {
inline bool is_unordered(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) {
  return __hisnan(a) || __hisnan(b);
}
}  // namespace cudaemu

CUDAEMU_ARITHMETIC(+)
CUDAEMU_ARITHMETIC(-)
CUDAEMU_ARITHMETIC(*)
CUDAEMU_ARITHMETIC(/)
CUDAEMU_COMPARISON(==, eq, )
CUDAEMU_COMPARISON(!=, ne, )
CUDAEMU_COMPARISON(<, lt, )
CUDAEMU_COMPARISON(<=, le, )
CUDAEMU_COMPARISON(>, gt, )
CUDAEMU_COMPARISON(>=, ge, )
inline CUDAEMU_SMALL_FLOAT_2 __hisnan2(CUDAEMU_SMALL_FLOAT_2 a) {
  return {static_cast<float>(__hisnan(a.x)), static_cast<float>(__hisnan(a.y))};
}

CUDAEMU_OF_1(__hneg, __hneg2, cudaemu::as_small(a.bits ^ 0x8000, &a))
CUDAEMU_OF_1(__habs, __habs2, cudaemu::as_small(a.bits & 0x7fff, &a))
CUDAEMU_OF_1(operator-, operator-, __hneg(a))
CUDAEMU_OF_2(__hadd, __hadd2, a + b)
CUDAEMU_OF_2(__hsub, __hsub2, a - b)
CUDAEMU_OF_2(__hmul, __hmul2, a *b)
CUDAEMU_OF_2(__hdiv, __h2div, a / b)
CUDAEMU_OF_2(__hadd_rn, __hadd2_rn, a + b)
CUDAEMU_OF_2(__hsub_rn, __hsub2_rn, a - b)
CUDAEMU_OF_2(__hmul_rn, __hmul2_rn, a *b)
CUDAEMU_OF_2(__hadd_sat, __hadd2_sat, __saturatef(a + b))
CUDAEMU_OF_2(__hsub_sat, __hsub2_sat, __saturatef(a - b))
CUDAEMU_OF_2(__hmul_sat, __hmul2_sat, __saturatef(a *b))
CUDAEMU_OF_2(__hmax, __hmax2, cudaemu::extreme(a, b, true, false))
CUDAEMU_OF_2(__hmin, __hmin2, cudaemu::extreme(a, b, false, false))
CUDAEMU_OF_2(__hmax_nan, __hmax2_nan, cudaemu::extreme(a, b, true, true))
CUDAEMU_OF_2(__hmin_nan, __hmin2_nan, cudaemu::extreme(a, b, false, true))
// A fused multiply-add: the product is exact in double, and the sum is rounded to odd in double, so
// the result is rounded only once.
CUDAEMU_OF_3(__hfma, __hfma2, cudaemu::odd_sum(static_cast<double>(a) * static_cast<float>(b), c))
CUDAEMU_OF_3(__hfma_sat, __hfma2_sat, __saturatef(__hfma(a, b, c)))
CUDAEMU_OF_3(__hfma_relu, __hfma2_relu, __hmax_nan(__hfma(a, b, c), 0.0f))

#define CUDAEMU_FUNCTION(name, result) CUDAEMU_OF_1(h##name, h2##name, result)
CUDAEMU_FUNCTION(sqrt, sqrt(static_cast<double>(a)))
CUDAEMU_FUNCTION(rsqrt, rsqrt(static_cast<double>(a)))
CUDAEMU_FUNCTION(rcp, 1.0 / static_cast<double>(a))
CUDAEMU_FUNCTION(exp, exp(static_cast<double>(a)))
CUDAEMU_FUNCTION(exp2, exp2(static_cast<double>(a)))
CUDAEMU_FUNCTION(exp10, exp10(static_cast<double>(a)))
CUDAEMU_FUNCTION(log, log(static_cast<double>(a)))
CUDAEMU_FUNCTION(log2, log2(static_cast<double>(a)))
CUDAEMU_FUNCTION(log10, log10(static_cast<double>(a)))
CUDAEMU_FUNCTION(sin, sin(static_cast<double>(a)))
CUDAEMU_FUNCTION(cos, cos(static_cast<double>(a)))
CUDAEMU_FUNCTION(tanh, tanh(static_cast<double>(a)))
CUDAEMU_FUNCTION(floor, floorf(a))
CUDAEMU_FUNCTION(ceil, ceilf(a))
CUDAEMU_FUNCTION(trunc, truncf(a))
CUDAEMU_FUNCTION(rint, rintf(a))
#undef CUDAEMU_FUNCTION

// Conversions between pairs, their halves, and floats.
inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(__low2, )(CUDAEMU_SMALL_FLOAT_2 a) { return a.x; }
inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(__high2, )(CUDAEMU_SMALL_FLOAT_2 a) { return a.y; }
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__low2, 2)(CUDAEMU_SMALL_FLOAT_2 a) { return {a.x, a.x}; }
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__high2, 2)(CUDAEMU_SMALL_FLOAT_2 a) {
  return {a.y, a.y};
}
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__lows2, 2)(CUDAEMU_SMALL_FLOAT_2 a,
                                                      CUDAEMU_SMALL_FLOAT_2 b) {
  return {a.x, b.x};
}
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__highs2, 2)(CUDAEMU_SMALL_FLOAT_2 a,
                                                       CUDAEMU_SMALL_FLOAT_2 b) {
  return {a.y, b.y};
}
inline CUDAEMU_SMALL_FLOAT_2 __lowhigh2highlow(CUDAEMU_SMALL_FLOAT_2 a) { return {a.y, a.x}; }
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__halves2, 2)(CUDAEMU_SMALL_FLOAT x,
                                                        CUDAEMU_SMALL_FLOAT y) {
  return {x, y};
}
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(make_, 2)(CUDAEMU_SMALL_FLOAT x, CUDAEMU_SMALL_FLOAT y) {
  return {x, y};
}
inline float __low2float(CUDAEMU_SMALL_FLOAT_2 a) { return a.x; }
inline float __high2float(CUDAEMU_SMALL_FLOAT_2 a) { return a.y; }
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__float2, 2_rn)(float a) { return {a, a}; }
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__floats2, 2_rn)(float x, float y) { return {x, y}; }
inline CUDAEMU_SMALL_FLOAT_2 CUDAEMU_NAME(__float22, 2_rn)(float2 a) { return {a.x, a.y}; }
inline float2 CUDAEMU_NAME(__, 22float2)(CUDAEMU_SMALL_FLOAT_2 a) { return {a.x, a.y}; }
inline float CUDAEMU_NAME(__, 2float)(CUDAEMU_SMALL_FLOAT a) { return a; }
inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(__float2, )(float a) { return a; }
inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(__double2, )(double a) { return a; }
inline unsigned short CUDAEMU_NAME(__, _as_ushort)(CUDAEMU_SMALL_FLOAT a) { return a.bits; }
inline short CUDAEMU_NAME(__, _as_short)(CUDAEMU_SMALL_FLOAT a) { return a.bits; }
inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(__ushort_as_, )(unsigned short bits) {
  return cudaemu::bits_as<CUDAEMU_SMALL_FLOAT>(bits);
}
inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(__short_as_, )(short bits) {
  return cudaemu::bits_as<CUDAEMU_SMALL_FLOAT>(bits);
}

// Conversions with an explicit rounding mode. Integers are first converted to float in the same mode.
#define CUDAEMU_ROUNDINGS(name, from, nearest, directed_float)                   \
  inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(name, _rn)(from a) { return nearest; } \
  CUDAEMU_DIRECTED(name, _rz, from, directed_float##_rz, FE_TOWARDZERO)          \
  CUDAEMU_DIRECTED(name, _ru, from, directed_float##_ru, FE_UPWARD)              \
  CUDAEMU_DIRECTED(name, _rd, from, directed_float##_rd, FE_DOWNWARD)
#define CUDAEMU_DIRECTED(name, suffix, from, to_float, mode)                                  \
  inline CUDAEMU_SMALL_FLOAT CUDAEMU_NAME(name, suffix)(from a) {                             \
    return cudaemu::directed(to_float(a), mode, static_cast<CUDAEMU_SMALL_FLOAT *>(nullptr)); \
  }
CUDAEMU_ROUNDINGS(__float2, float, a, cudaemu::same)
CUDAEMU_ROUNDINGS(__int2, int, a, __int2float)
CUDAEMU_ROUNDINGS(__uint2, unsigned, a, __uint2float)
CUDAEMU_ROUNDINGS(__short2, short, a, __int2float)
CUDAEMU_ROUNDINGS(__ushort2, unsigned short, a, __uint2float)
CUDAEMU_ROUNDINGS(__ll2, long long, a, __ll2float)
CUDAEMU_ROUNDINGS(__ull2, unsigned long long, a, __ull2float)
#define CUDAEMU_INTEGER(name, to)                                     \
  inline to CUDAEMU_NAME(__, 2##name##_rn)(CUDAEMU_SMALL_FLOAT a) {   \
    return cudaemu::to_integer<to>(static_cast<float>(a), rintf(a));  \
  }                                                                   \
  inline to CUDAEMU_NAME(__, 2##name##_rz)(CUDAEMU_SMALL_FLOAT a) {   \
    return cudaemu::to_integer<to>(static_cast<float>(a), truncf(a)); \
  }                                                                   \
  inline to CUDAEMU_NAME(__, 2##name##_ru)(CUDAEMU_SMALL_FLOAT a) {   \
    return cudaemu::to_integer<to>(static_cast<float>(a), ceilf(a));  \
  }                                                                   \
  inline to CUDAEMU_NAME(__, 2##name##_rd)(CUDAEMU_SMALL_FLOAT a) {   \
    return cudaemu::to_integer<to>(static_cast<float>(a), floorf(a)); \
  }
CUDAEMU_INTEGER(int, int)
CUDAEMU_INTEGER(uint, unsigned)
CUDAEMU_INTEGER(short, short)
CUDAEMU_INTEGER(ushort, unsigned short)
CUDAEMU_INTEGER(ll, long long)
CUDAEMU_INTEGER(ull, unsigned long long)

// Atomic on one number; for a pair, on each part separately.
__forceinline__ CUDAEMU_SMALL_FLOAT atomicAdd(CUDAEMU_SMALL_FLOAT *address,
                                              CUDAEMU_SMALL_FLOAT value) {
  return cudaemu::atomic_update(
      address, [=](CUDAEMU_SMALL_FLOAT old) __attribute__((always_inline)) { return old + value; });
}
__forceinline__ CUDAEMU_SMALL_FLOAT_2 atomicAdd(CUDAEMU_SMALL_FLOAT_2 *address,
                                                CUDAEMU_SMALL_FLOAT_2 value) {
  return cudaemu::atomic_update(address,
                                [=](CUDAEMU_SMALL_FLOAT_2 old)
                                    __attribute__((always_inline)) { return old + value; });
}

#undef CUDAEMU_ARITHMETIC
#undef CUDAEMU_COMPARISON
#undef CUDAEMU_COMPARISON_NAMED
#undef CUDAEMU_DIRECTED
#undef CUDAEMU_INTEGER
#undef CUDAEMU_NAME
#undef CUDAEMU_OF_1
#undef CUDAEMU_OF_2
#undef CUDAEMU_OF_3
#undef CUDAEMU_PASTE
#undef CUDAEMU_PASTE_3
#undef CUDAEMU_ROUNDINGS
#undef CUDAEMU_SMALL_FLOAT
#undef CUDAEMU_SMALL_FLOAT_2
#undef CUDAEMU_SMALL_NAME
#undef CUDAEMU_TO_FLOAT
#undef CUDAEMU_FROM_FLOAT
