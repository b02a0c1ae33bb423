// CUDA's atomic functions: the overloads that CUDA has, no others, so that a call which nvcc
// rejects is rejected here as well. All are relaxed, as on the GPU; ordering takes __threadfence().
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

// Always inlined, so that the address to which begin_atomic returns lies in the kernel: hazard
// reports take file and line from it.
template <class T, class Update>
__forceinline__ T atomic_update(T *address, Update update, Scope scope = Scope::Device) {
  using W = typename Word<sizeof(T)>::type;
  W *word = reinterpret_cast<W *>(address);
  W present = begin_atomic(word, scope);
  for (;;) {
    W found = compare_and_swap(word, present, bits_as<W>(update(bits_as<T>(present))));
    if (found == present) return bits_as<T>(present);
    present = found;
  }
}

template <class W>
__forceinline__ W load_word(const W *word) {
  if constexpr (sizeof(W) < 4) {
    return begin_atomic(const_cast<W *>(word), Scope::Device);
  } else {
    return atomic_load(word);
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

#define CUDAEMU_ATOMIC(name, type, result)              \
  CUDAEMU_ATOMIC_OF(name, Device, type, result)         \
  CUDAEMU_ATOMIC_OF(name##_block, Block, type, result)  \
  CUDAEMU_ATOMIC_OF(name##_system, Device, type, result)

CUDAEMU_ATOMIC(atomicAdd, int, old + value)
CUDAEMU_ATOMIC(atomicAdd, unsigned, old + value)
CUDAEMU_ATOMIC(atomicAdd, unsigned long long, old + value)
CUDAEMU_ATOMIC(atomicAdd, float, old + value)
CUDAEMU_ATOMIC(atomicAdd, double, old + value)

CUDAEMU_ATOMIC(atomicSub, int, old - value)
CUDAEMU_ATOMIC(atomicSub, unsigned, old - value)

CUDAEMU_ATOMIC(atomicExch, int, value)
CUDAEMU_ATOMIC(atomicExch, unsigned, value)
CUDAEMU_ATOMIC(atomicExch, unsigned long long, value)
CUDAEMU_ATOMIC(atomicExch, float, value)

#define CUDAEMU_ATOMIC_INTEGER(name, result) \
  CUDAEMU_ATOMIC(name, int, result)          \
  CUDAEMU_ATOMIC(name, unsigned, result)     \
  CUDAEMU_ATOMIC(name, unsigned long long, result)

CUDAEMU_ATOMIC_INTEGER(atomicMin, value < old ? value : old)
CUDAEMU_ATOMIC_INTEGER(atomicMax, old < value ? value : old)
CUDAEMU_ATOMIC(atomicMin, long long, value < old ? value : old)
CUDAEMU_ATOMIC(atomicMax, long long, old < value ? value : old)
CUDAEMU_ATOMIC_INTEGER(atomicAnd, (old & value))
CUDAEMU_ATOMIC_INTEGER(atomicOr, old | value)
CUDAEMU_ATOMIC_INTEGER(atomicXor, old ^ value)

// These two wrap at `value`, which makes a counter that resets itself.
CUDAEMU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
CUDAEMU_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)

#define CUDAEMU_ATOMIC_CAS_OF(name, scope, type)                             \
  __forceinline__ type name(type *address, type expected, type desired) {    \
    return cudaemu::atomic_update(                                           \
        address,                                                             \
        [=](type old) __attribute__((always_inline)) -> type {               \
          return old == expected ? desired : old;                            \
        },                                                                   \
        cudaemu::Scope::scope);                                              \
  }

#define CUDAEMU_ATOMIC_CAS(type)                         \
  CUDAEMU_ATOMIC_CAS_OF(atomicCAS, Device, type)         \
  CUDAEMU_ATOMIC_CAS_OF(atomicCAS_block, Block, type)    \
  CUDAEMU_ATOMIC_CAS_OF(atomicCAS_system, Device, type)

CUDAEMU_ATOMIC_CAS(int)
CUDAEMU_ATOMIC_CAS(unsigned)
CUDAEMU_ATOMIC_CAS(unsigned long long)
CUDAEMU_ATOMIC_CAS(unsigned short)

// Vectors are added component by component.
#define CUDAEMU_ATOMIC_VECTOR(name, type, ...)                                      \
  __forceinline__ type name(type *address, type value) { return {__VA_ARGS__}; }    \
  __forceinline__ type name##_block(type *a, type value) { return name(a, value); } \
  __forceinline__ type name##_system(type *a, type value) { return name(a, value); }
#define CUDAEMU_PART(part) atomicAdd(&address->part, value.part)
CUDAEMU_ATOMIC_VECTOR(atomicAdd, float2, CUDAEMU_PART(x), CUDAEMU_PART(y))
CUDAEMU_ATOMIC_VECTOR(atomicAdd, float4, CUDAEMU_PART(x), CUDAEMU_PART(y), CUDAEMU_PART(z),
                      CUDAEMU_PART(w))

#undef CUDAEMU_ATOMIC
#undef CUDAEMU_ATOMIC_CAS
#undef CUDAEMU_ATOMIC_INTEGER

inline void __threadfence() { cudaemu::fence(cudaemu::Scope::Device); }
inline void __threadfence_block() { cudaemu::fence(cudaemu::Scope::Block); }
inline void __threadfence_system() { cudaemu::fence(cudaemu::Scope::Device); }
