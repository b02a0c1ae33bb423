// Cached loads and stores, bit casts, bit counting, integer functions and dot products of bytes.
#pragma once
#include <string.h>  // memcpy, which device code may call without asking for it

// The emulator has no caches, so these functions are plain loads and stores.
#define CUDAEMU_LOAD(name)                   \
  template <class T>                         \
  __forceinline__ T name(const T *address) { \
    return *address;                         \
  }
CUDAEMU_LOAD(__ldg)
CUDAEMU_LOAD(__ldca)
CUDAEMU_LOAD(__ldcg)
CUDAEMU_LOAD(__ldcs)
CUDAEMU_LOAD(__ldcv)
CUDAEMU_LOAD(__ldlu)
#undef CUDAEMU_LOAD

#define CUDAEMU_STORE(name)                        \
  template <class T>                               \
  __forceinline__ void name(T *address, T value) { \
    *address = value;                              \
  }
CUDAEMU_STORE(__stcg)
CUDAEMU_STORE(__stcs)
CUDAEMU_STORE(__stwb)
CUDAEMU_STORE(__stwt)
#undef CUDAEMU_STORE

inline float __int_as_float(int value) { return cudaemu::bits_as<float>(value); }
inline float __uint_as_float(unsigned value) { return cudaemu::bits_as<float>(value); }
inline int __float_as_int(float value) { return cudaemu::bits_as<int>(value); }
inline unsigned __float_as_uint(float value) { return cudaemu::bits_as<unsigned>(value); }
inline double __longlong_as_double(long long value) { return cudaemu::bits_as<double>(value); }
inline long long __double_as_longlong(double value) { return cudaemu::bits_as<long long>(value); }
inline int __double2hiint(double value) {
  return static_cast<int>(cudaemu::bits_as<uint64_t>(value) >> 32);
}
inline int __double2loint(double value) {
  return static_cast<int>(cudaemu::bits_as<uint64_t>(value));
}
inline double __hiloint2double(int high, int low) {
  return cudaemu::bits_as<double>(static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 |
                                  static_cast<unsigned>(low));
}

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(value); }
inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }

inline unsigned long long __brevll(unsigned long long value) {
  unsigned long long result = 0;
  for (int i = 0; i < 64; i++) result |= (value >> i & 1) << (63 - i);
  return result;
}
inline unsigned __brev(unsigned value) { return static_cast<unsigned>(__brevll(value) >> 32); }

// Index of the n-th set bit of `mask`, counted upwards from bit `base`, or downwards for negative n.
// For n = 0 the result is `base` if that bit is set. If there is no such bit, all bits are set.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
  const int step = n < 0 ? -1 : 1;
  int left = n < 0 ? -n : n == 0 ? 1 : n;
  for (int bit = static_cast<int>(base & 31); bit >= 0 && bit < 32; bit += step) {
    if ((mask >> bit & 1) != 0 && --left == 0) return static_cast<unsigned>(bit);
    if (n == 0) break;
  }
  return ~0u;
}

// __funnelshift_l returns the upper word of high:low shifted left, __funnelshift_r the lower word of
// it shifted right. The shift is taken modulo 32; in names with c it is clamped to 32.
namespace cudaemu {
inline uint64_t joined(unsigned low, unsigned high) {
  return static_cast<uint64_t>(high) << 32 | low;
}
inline unsigned at_most_32(unsigned shift) { return shift < 32 ? shift : 32; }
}  // namespace cudaemu
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(cudaemu::joined(low, high) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(cudaemu::joined(low, high) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(cudaemu::joined(low, high) << cudaemu::at_most_32(shift) >> 32);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(cudaemu::joined(low, high) >> cudaemu::at_most_32(shift));
}

// Upper halves of products, and products of the lower 24 bits.
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }

// Averages, rounded down (hadd) or up (rhadd), and sums of absolute differences (sad).
inline int __hadd(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) + b >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) + b + 1 >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) + b >> 1);
}
inline unsigned __urhadd(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) + b + 1 >> 1);
}
inline unsigned __sad(int a, int b, unsigned sum) {
  return sum + (a < b ? static_cast<unsigned>(b) - a : static_cast<unsigned>(a) - b);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned sum) {
  return sum + (a < b ? b - a : a - b);
}

// Each of the four low hexadecimal digits of the selector selects one of the eight bytes of b:a. If
// bit 3 of a digit is set, the sign of the byte is replicated to all eight bits.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = cudaemu::joined(a, b);
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned digit = selector >> 4 * i & 0xf;
    unsigned byte = bytes >> 8 * (digit & 7) & 0xff;
    if (digit & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}

namespace cudaemu {

// Dot product of `count` parts of type A of a, and `count` bytes of b from byte `first` on.
template <class A, class B, class Sum>
inline Sum dot_product(unsigned a, unsigned b, Sum sum, unsigned count, unsigned first) {
  for (unsigned i = 0; i < count; i++) {
    sum += static_cast<Sum>(static_cast<A>(a >> 8 * sizeof(A) * i)) *
           static_cast<B>(b >> 8 * (first + i));
  }
  return sum;
}

}  // namespace cudaemu

#define CUDAEMU_DOT_PRODUCT(name, part, fours, bytes, count, first)                     \
  inline int name(int a, int b, int sum) {                                              \
    return cudaemu::dot_product<signed part, signed char>(a, b, sum, count, first);     \
  }                                                                                     \
  inline unsigned name(unsigned a, unsigned b, unsigned sum) {                          \
    return cudaemu::dot_product<unsigned part, unsigned char>(a, b, sum, count, first); \
  }                                                                                     \
  inline int name(fours a, bytes b, int sum) {                                          \
    return name(cudaemu::bits_as<int>(a), cudaemu::bits_as<int>(b), sum);               \
  }                                                                                     \
  inline unsigned name(u##fours a, u##bytes b, unsigned sum) {                          \
    return name(cudaemu::bits_as<unsigned>(a), cudaemu::bits_as<unsigned>(b), sum);     \
  }
CUDAEMU_DOT_PRODUCT(__dp4a, char, char4, char4, 4, 0)
CUDAEMU_DOT_PRODUCT(__dp2a_lo, short, short2, char4, 2, 0)
CUDAEMU_DOT_PRODUCT(__dp2a_hi, short, short2, char4, 2, 2)
#undef CUDAEMU_DOT_PRODUCT

inline long long clock64() { return cudaemu::nanoseconds(); }
typedef long clock_t;
extern "C" clock_t clock() noexcept;

#define __trap() (cudaemu::unsupported("__trap()", cudaemu::Site::here()))
#define __brkpt() ((void)0)
