// The video (SIMD) instructions, which process the two halfwords or four bytes of a word separately.
#pragma once
#include <type_traits>

namespace cudaemu {

// Combines each part of a with that of b, as values of type `Part` widened to int. Each result is
// truncated to the bits of a part.
template <class Part, class Combine>
__forceinline__ unsigned each(unsigned a, unsigned b, Combine combine) {
  constexpr int bits = 8 * sizeof(Part);
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += bits) {
    const int x = static_cast<Part>(a >> shift), y = static_cast<Part>(b >> shift);
    result |= (static_cast<unsigned>(combine(x, y)) & ((1u << bits) - 1)) << shift;
  }
  return result;
}

// The sum of the parts.
template <class Part>
inline unsigned total(unsigned a) {
  unsigned sum = 0;
  for (unsigned shift = 0; shift < 32; shift += 8 * sizeof(Part)) {
    sum += static_cast<Part>(a >> shift);
  }
  return sum;
}

template <class Part>
inline int saturated(int value) {
  constexpr int bits = 8 * sizeof(Part), low = static_cast<Part>(-1) < 0 ? -(1 << (bits - 1)) : 0;
  constexpr int high = low + (1 << bits) - 1;
  return value < low ? low : value > high ? high : value;
}

inline int distance(int x, int y) { return x < y ? y - x : x - y; }

}  // namespace cudaemu

#define CUDAEMU_EACH_1(name, part, result)                               \
  inline unsigned name(unsigned a) {                                     \
    return cudaemu::each<part>(a, 0, [](int x, int) { return result; }); \
  }
#define CUDAEMU_EACH_2(name, part, result)                                 \
  inline unsigned name(unsigned a, unsigned b) {                           \
    return cudaemu::each<part>(a, b, [](int x, int y) { return result; }); \
  }
#define CUDAEMU_COMPARE(count, name, part, op)         \
  CUDAEMU_EACH_2(__vcmp##name##count, part, -(x op y)) \
  CUDAEMU_EACH_2(__vset##name##count, part, x op y)
#define CUDAEMU_SIGNED_OR_NOT(count, sign, part)                                      \
  CUDAEMU_EACH_2(__vadd##sign##s##count, part, cudaemu::saturated<part>(x + y))       \
  CUDAEMU_EACH_2(__vsub##sign##s##count, part, cudaemu::saturated<part>(x - y))       \
  CUDAEMU_EACH_2(__vabsdiff##sign##count, part, cudaemu::distance(x, y))              \
  CUDAEMU_EACH_2(__vmin##sign##count, part, x < y ? x : y)                            \
  CUDAEMU_EACH_2(__vmax##sign##count, part, x > y ? x : y)                            \
  CUDAEMU_COMPARE(count, ge##sign, part, >=)                                          \
  CUDAEMU_COMPARE(count, gt##sign, part, >)                                           \
  CUDAEMU_COMPARE(count, le##sign, part, <=)                                          \
  CUDAEMU_COMPARE(count, lt##sign, part, <)                                           \
  inline unsigned __vsad##sign##count(unsigned a, unsigned b) {                       \
    return cudaemu::total<std::make_unsigned_t<part>>(__vabsdiff##sign##count(a, b)); \
  }
#define CUDAEMU_PARTS(count, part)                                                  \
  CUDAEMU_EACH_2(__vadd##count, signed part, x + y)                                 \
  CUDAEMU_EACH_2(__vsub##count, signed part, x - y)                                 \
  CUDAEMU_EACH_1(__vneg##count, signed part, -x)                                    \
  CUDAEMU_EACH_1(__vnegss##count, signed part, cudaemu::saturated<signed part>(-x)) \
  CUDAEMU_EACH_1(__vabs##count, signed part, cudaemu::distance(x, 0))               \
  CUDAEMU_EACH_1(__vabsss##count, signed part,                                      \
                 cudaemu::saturated<signed part>(cudaemu::distance(x, 0)))          \
  CUDAEMU_EACH_2(__vhaddu##count, unsigned part, (x + y) >> 1)                      \
  CUDAEMU_EACH_2(__vavgu##count, unsigned part, (x + y + 1) >> 1)                   \
  CUDAEMU_EACH_2(__vavgs##count, signed part, (x + y + (x + y >= 0)) >> 1)          \
  CUDAEMU_COMPARE(count, eq, unsigned part, ==)                                     \
  CUDAEMU_COMPARE(count, ne, unsigned part, !=)                                     \
  CUDAEMU_SIGNED_OR_NOT(count, s, signed part)                                      \
  CUDAEMU_SIGNED_OR_NOT(count, u, unsigned part)

CUDAEMU_PARTS(2, short)
CUDAEMU_PARTS(4, char)
#undef CUDAEMU_PARTS
#undef CUDAEMU_SIGNED_OR_NOT
#undef CUDAEMU_COMPARE

// Minima and maxima of three operands, and of a sum and a third operand, for words and pairs of
// halfwords. The result of `_relu` variants is at least 0.
#define CUDAEMU_FOUR_OF_THREE(suffix, word, least, most, add, ...) \
  inline word __vimin3_##suffix(word a, word b, word c) {          \
    return __VA_ARGS__(least(least(a, b), c));                     \
  }                                                                \
  inline word __vimax3_##suffix(word a, word b, word c) {          \
    return __VA_ARGS__(most(most(a, b), c));                       \
  }                                                                \
  inline word __viaddmin_##suffix(word a, word b, word c) {        \
    return __VA_ARGS__(least(add(a, b), c));                       \
  }                                                                \
  inline word __viaddmax_##suffix(word a, word b, word c) {        \
    return __VA_ARGS__(most(add(a, b), c));                        \
  }
namespace cudaemu {
inline int sum_of(int a, int b) { return a + b; }
inline unsigned sum_of(unsigned a, unsigned b) { return a + b; }
inline int not_negative(int a) { return a < 0 ? 0 : a; }
inline unsigned not_negative_pair(unsigned a) { return __vmaxs2(a, 0); }
}  // namespace cudaemu
CUDAEMU_FOUR_OF_THREE(s32, int, min, max, cudaemu::sum_of, )
CUDAEMU_FOUR_OF_THREE(u32, unsigned, min, max, cudaemu::sum_of, )
CUDAEMU_FOUR_OF_THREE(s32_relu, int, min, max, cudaemu::sum_of, cudaemu::not_negative)
CUDAEMU_FOUR_OF_THREE(s16x2, unsigned, __vmins2, __vmaxs2, __vadd2, )
CUDAEMU_FOUR_OF_THREE(u16x2, unsigned, __vminu2, __vmaxu2, __vadd2, )
CUDAEMU_FOUR_OF_THREE(s16x2_relu, unsigned, __vmins2, __vmaxs2, __vadd2, cudaemu::not_negative_pair)
#undef CUDAEMU_FOUR_OF_THREE
inline int __vimin_s32_relu(int a, int b) { return max(min(a, b), 0); }
inline int __vimax_s32_relu(int a, int b) { return max(max(a, b), 0); }
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) { return __vmaxs2(__vmins2(a, b), 0); }
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) { return __vmaxs2(__vmaxs2(a, b), 0); }
#undef CUDAEMU_EACH_1
#undef CUDAEMU_EACH_2
