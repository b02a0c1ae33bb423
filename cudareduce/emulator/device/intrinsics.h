// Cached loads and stores, bit casts, bit counting and byte-wise integer functions.
#pragma once
#include <string.h>  // memcpy, which device code may call without asking for it

// Caches do not exist here; the names only have to read and write memory.
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

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(value); }
inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }

// Rounded once, and never contracted into a fused multiply-add.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

// Each of the four low selector digits picks one of the eight bytes of b:a. Bit 3 of a digit asks
// for the picked byte's sign in all bits instead.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
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

// Four bytes of a word, each taken as `Byte`, combined one by one.
template <class Byte, class Combine>
inline unsigned each_byte(unsigned a, unsigned b, Combine combine) {
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const Byte combined = combine(static_cast<Byte>(a >> shift), static_cast<Byte>(b >> shift));
    result |= static_cast<unsigned>(static_cast<unsigned char>(combined)) << shift;
  }
  return result;
}

template <class Byte>
inline unsigned each_byte_min(unsigned a, unsigned b) {
  return each_byte<Byte>(a, b, [](Byte x, Byte y) { return y < x ? y : x; });
}

template <class Byte>
inline unsigned each_byte_max(unsigned a, unsigned b) {
  return each_byte<Byte>(a, b, [](Byte x, Byte y) { return x < y ? y : x; });
}

template <class Byte, class Sum>
inline Sum dot_bytes(unsigned a, unsigned b, Sum sum) {
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<Sum>(static_cast<Byte>(a >> shift)) * static_cast<Byte>(b >> shift);
  }
  return sum;
}

}  // namespace cudaemu

inline unsigned __vmins4(unsigned a, unsigned b) {
  return cudaemu::each_byte_min<signed char>(a, b);
}
inline unsigned __vmaxs4(unsigned a, unsigned b) {
  return cudaemu::each_byte_max<signed char>(a, b);
}
inline unsigned __vminu4(unsigned a, unsigned b) {
  return cudaemu::each_byte_min<unsigned char>(a, b);
}
inline unsigned __vmaxu4(unsigned a, unsigned b) {
  return cudaemu::each_byte_max<unsigned char>(a, b);
}

inline int __dp4a(int a, int b, int sum) { return cudaemu::dot_bytes<signed char>(a, b, sum); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  return cudaemu::dot_bytes<unsigned char>(a, b, sum);
}
inline int __dp4a(char4 a, char4 b, int sum) {
  return __dp4a(cudaemu::bits_as<int>(a), cudaemu::bits_as<int>(b), sum);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned sum) {
  return __dp4a(cudaemu::bits_as<unsigned>(a), cudaemu::bits_as<unsigned>(b), sum);
}

#define __trap() (cudaemu::unsupported("__trap()", cudaemu::Site::here()))
