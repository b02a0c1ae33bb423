// CUDA's atomic functions, with exactly CUDA's overloads, so that g++ rejects the calls that nvcc
// rejects. As on the GPU all are relaxed; only __threadfence() orders them.
#pragma once

namespace cudaemu {

template <size_t bytes>
struct Word;
template <>
struct Word<1> {
  using type = uint8_t;
};
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<8> {
  using type = uint64_t;
};

template <class To, class From>
__forceinline__ To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// Always inlined, so that the return address of begin_atomic is in the kernel: reports of data races
// derive file and line from it.
template <class T, class Update>
__forceinline__ T atomic_update(T *address, Update update, Scope scope = Scope::Device,
                                bool acquires = true) {
  using W = typename Word<sizeof(T)>::type;
  W *word = reinterpret_cast<W *>(address);
  W present = begin_atomic(word, scope, acquires);
  for (;;) {
    W found = compare_and_swap(word, present, bits_as<W>(update(bits_as<T>(present))));
    if (found == present) return bits_as<T>(present);
    present = found;
  }
}

template <class W>
__forceinline__ W load_word(const W *word, bool acquires = true) {
  if constexpr (sizeof(W) < 4) {
    return begin_atomic(const_cast<W *>(word), Scope::Device, acquires);
  } else {
    return atomic_load(word, acquires);
  }
}
template <class W>
__forceinline__ void store_word(W *word, W value) {
  if constexpr (sizeof(W) < 4) {
    atomic_update(word, [=](W) __attribute__((always_inline)) { return value; });
  } else {
    atomic_store(word, value);
  }
}

}  // namespace cudaemu

#define CUDAEMU_ATOMIC_OF(name, scope, type, result)                                              \
  __forceinline__ type name(type *address, type value) {                                           \
    return cudaemu::atomic_update(                                                                 \
        address, [value](type old) __attribute__((always_inline)) -> type { return result; },      \
        cudaemu::Scope::scope);                                                                    \
  }

#define CUDAEMU_ATOMIC_CAS_OF(name, scope, type)                             \
  __forceinline__ type name(type *address, type expected, type desired) {    \
    return cudaemu::atomic_update(                                           \
        address,                                                             \
        [=](type old) __attribute__((always_inline)) -> type {               \
          return old == expected ? desired : old;                            \
        },                                                                   \
        cudaemu::Scope::scope);                                              \
  }

#define CUDAEMU_ATOMIC(name, type, result) CUDAEMU_ATOMIC_OF(name, Device, type, result)
#define CUDAEMU_ATOMIC_CAS(type) CUDAEMU_ATOMIC_CAS_OF(atomicCAS, Device, type)
#define CUDAEMU_ATOMIC_VECTOR(name, type, ...) \
  __forceinline__ type name(type *address, type value) { return {__VA_ARGS__}; }
#include "atomic_overloads.h"

inline void __threadfence() { cudaemu::fence(cudaemu::Scope::Device); }
inline void __threadfence_block() { cudaemu::fence(cudaemu::Scope::Block); }
inline void __threadfence_system() { cudaemu::fence(cudaemu::Scope::Device); }
