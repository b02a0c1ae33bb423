// Barriers, shuffles, votes and warp-wide reductions.
#pragma once
#include "traits.h"

namespace cudaemu {

constexpr unsigned FULL_WARP = 0xffffffffu;

template <class T>
inline Value pack(const T &value) {
  static_assert(sizeof(T) <= sizeof(Value) && __is_trivially_copyable(T),
                "a shuffle carries trivially copyable types of up to 16 bytes");
  Value packed = 0;
  __builtin_memcpy(&packed, &value, sizeof value);
  return packed;
}

template <class T>
inline T unpack(Value packed) {
  T value;
  __builtin_memcpy(&value, &packed, sizeof value);
  return value;
}

template <class T>
inline T shuffle(Collective how, unsigned mask, T value, int argument, int width, Site at) {
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0) width = diagnose_width(width, at);
  const Request request = {mask, argument, how, static_cast<uint8_t>(width)};
  return unpack<T>(warp_collective(request, pack(value), at));
}

inline unsigned reduce(Collective how, unsigned mask, unsigned value, Site at) {
  return static_cast<unsigned>(warp_collective({mask, 0, how, 32}, value, at));
}

}  // namespace cudaemu

inline void __syncthreads(cudaemu::Site at = cudaemu::Site::here()) { cudaemu::block_barrier(at); }
inline int __syncthreads_or(int predicate, cudaemu::Site at = cudaemu::Site::here()) {
  return cudaemu::block_barrier(cudaemu::Vote::Any, predicate != 0, at);
}
inline int __syncthreads_and(int predicate, cudaemu::Site at = cudaemu::Site::here()) {
  return cudaemu::block_barrier(cudaemu::Vote::All, predicate != 0, at);
}
inline int __syncthreads_count(int predicate, cudaemu::Site at = cudaemu::Site::here()) {
  return cudaemu::block_barrier(cudaemu::Vote::Count, predicate != 0, at);
}

inline void __syncwarp(unsigned mask = cudaemu::FULL_WARP,
                       cudaemu::Site at = cudaemu::Site::here()) {
  cudaemu::warp_collective({mask, 0, cudaemu::Collective::SyncWarp, 32}, 0, at);
}

#define CUDAEMU_SHUFFLE(name, how, argument_type)                                              \
  template <class T>                                                                           \
  inline T name(unsigned mask, T value, argument_type argument, int width = 32,                \
                cudaemu::Site at = cudaemu::Site::here()) {                                    \
    return cudaemu::shuffle(cudaemu::Collective::how, mask, value, static_cast<int>(argument), \
                            width, at);                                                        \
  }

CUDAEMU_SHUFFLE(__shfl_sync, ShuffleIndex, int)
CUDAEMU_SHUFFLE(__shfl_up_sync, ShuffleUp, unsigned)
CUDAEMU_SHUFFLE(__shfl_down_sync, ShuffleDown, unsigned)
CUDAEMU_SHUFFLE(__shfl_xor_sync, ShuffleXor, int)
#undef CUDAEMU_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              cudaemu::Site at = cudaemu::Site::here()) {
  return cudaemu::reduce(cudaemu::Collective::Ballot, mask, predicate != 0, at);
}
inline int __any_sync(unsigned mask, int predicate, cudaemu::Site at = cudaemu::Site::here()) {
  return __ballot_sync(mask, predicate, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cudaemu::Site at = cudaemu::Site::here()) {
  return __ballot_sync(mask, !predicate, at) == 0;
}
inline unsigned __activemask(cudaemu::Site at = cudaemu::Site::here()) {
  return cudaemu::converged_lanes(at, false);
}

// The lanes of `mask` with the same value. Each iteration broadcasts the value of the lowest lane that
// has no result yet, so there are as many iterations as different values.
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, cudaemu::Site at = cudaemu::Site::here()) {
  static_assert(cudaemu::number<T>, "a match takes numbers");
  unsigned result = 0;
  for (unsigned left = mask; left != 0;) {
    const T shown = __shfl_sync(mask, value, __builtin_ctz(left), 32, at);
    const bool same = __builtin_memcmp(&shown, &value, sizeof(T)) == 0;
    const unsigned who = __ballot_sync(mask, same, at);
    if (same) result = who;
    left &= ~(who | 1u << __builtin_ctz(left));
  }
  return result;
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int *predicate,
                                 cudaemu::Site at = cudaemu::Site::here()) {
  *predicate = (__match_any_sync(mask, value, at) & mask) == mask;
  *predicate = __all_sync(mask, *predicate, at);
  return *predicate ? mask : 0;
}

#define CUDAEMU_WARP_REDUCE(name, how, type)                                                \
  inline type name(unsigned mask, type value, cudaemu::Site at = cudaemu::Site::here()) {   \
    return static_cast<type>(                                                               \
        cudaemu::reduce(cudaemu::Collective::how, mask, static_cast<unsigned>(value), at)); \
  }

CUDAEMU_WARP_REDUCE(__reduce_add_sync, ReduceAdd, int)
CUDAEMU_WARP_REDUCE(__reduce_add_sync, ReduceAdd, unsigned)
CUDAEMU_WARP_REDUCE(__reduce_min_sync, ReduceMinSigned, int)
CUDAEMU_WARP_REDUCE(__reduce_min_sync, ReduceMinUnsigned, unsigned)
CUDAEMU_WARP_REDUCE(__reduce_max_sync, ReduceMaxSigned, int)
CUDAEMU_WARP_REDUCE(__reduce_max_sync, ReduceMaxUnsigned, unsigned)
CUDAEMU_WARP_REDUCE(__reduce_and_sync, ReduceAnd, unsigned)
CUDAEMU_WARP_REDUCE(__reduce_or_sync, ReduceOr, unsigned)
CUDAEMU_WARP_REDUCE(__reduce_xor_sync, ReduceXor, unsigned)
#undef CUDAEMU_WARP_REDUCE

inline void __nanosleep(unsigned) { cudaemu::yield(); }
