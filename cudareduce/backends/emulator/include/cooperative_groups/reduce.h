// cooperative_groups::reduce and its operators.
#pragma once
#include <cooperative_groups.h>

namespace cooperative_groups {

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

// A butterfly reduction: every lane receives the result, as in CUDA.
template <unsigned tile_size, class Parent, class T, class Combine>
__forceinline__ T reduce(const thread_block_tile<tile_size, Parent> &tile, T value,
                         Combine &&combine, details::Site at = details::Site::here()) {
  if constexpr (tile_size > 32) {
    value = reduce(thread_block_tile<32>(), value, combine, at);
    return tile.folded(value, at, combine);
  } else {
    for (unsigned with = tile_size / 2; with > 0; with /= 2) {
      value = combine(value, tile.shfl_xor(value, with, at));
    }
    return value;
  }
}

// Each step doubles the number of higher lanes that a lane's value includes; the lowest lane's value
// then includes all.
template <class T, class Combine>
T reduce(const coalesced_group &group, T value, Combine &&combine,
         details::Site at = details::Site::here()) {
  for (unsigned by = 1; by < group.size(); by *= 2) {
    const T other = group.shfl_down(value, by, at);
    if (group.thread_rank() + by < group.size()) value = combine(value, other);
  }
  return group.shfl(value, 0, at);
}

// Reductions whose result one thread of the group stores, or combines with an atomic object.
template <class Group, class T, class Value, class Combine>
void reduce_store_async(const Group &group, T *target, Value value, Combine &&combine,
                        details::Site at = details::Site::here()) {
  const T result = reduce(group, T(value), combine, at);
  if (group.thread_rank() == 0) *target = result;
}
template <class Group, class Atomic, class Value, class Combine>
void reduce_store_async(const Group &group, Atomic &target, Value value, Combine &&combine,
                        details::Site at = details::Site::here()) {
  const auto result = reduce(group, typename Atomic::value_type(value), combine, at);
  if (group.thread_rank() == 0) target.update([&](auto) { return result; });
}
template <class Group, class Atomic, class Value, class Combine>
void reduce_update_async(const Group &group, Atomic &&target, Value value, Combine &&combine,
                         details::Site at = details::Site::here()) {
  using T = typename std::decay_t<Atomic>::value_type;
  const T result = reduce(group, T(value), combine, at);
  if (group.thread_rank() == 0) target.update([&](T old) { return combine(old, result); });
}

}  // namespace cooperative_groups
