// cooperative_groups::inclusive_scan and exclusive_scan.
#pragma once
#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

namespace details {

// Each step doubles the number of lower lanes that a lane's value includes.
template <class Group, class T, class Combine>
T scan_of_lanes(const Group &group, T value, Combine &combine, Site at) {
  for (unsigned by = 1; by < group.size(); by *= 2) {
    const T below = group.shfl_up(value, by, at);
    if (group.thread_rank() >= by) value = combine(below, value);
  }
  return value;
}

}  // namespace details

template <class T, class Combine>
T inclusive_scan(const coalesced_group &group, T value, Combine &&combine,
                 details::Site at = details::Site::here()) {
  return details::scan_of_lanes(group, value, combine, at);
}
template <unsigned tile_size, class Parent, class T, class Combine>
__forceinline__ T inclusive_scan(const thread_block_tile<tile_size, Parent> &tile, T value,
                                 Combine &&combine, details::Site at = details::Site::here()) {
  if constexpr (tile_size > 32) {
    value = details::scan_of_lanes(thread_block_tile<32>(), value, combine, at);
    bool any_before;
    const T before =
        tile.folded(__shfl_sync(cudaemu::FULL_WARP, value, 31, 32, at), at, combine, &any_before);
    return any_before ? combine(before, value) : value;
  } else {
    return details::scan_of_lanes(tile, value, combine, at);
  }
}

// The first thread of the group gets T{}.
template <class T, class Combine>
T exclusive_scan(const coalesced_group &group, T value, Combine &&combine,
                 details::Site at = details::Site::here()) {
  const T below = group.shfl_up(inclusive_scan(group, value, combine, at), 1, at);
  return group.thread_rank() == 0 ? T{} : below;
}
template <unsigned tile_size, class Parent, class T, class Combine>
__forceinline__ T exclusive_scan(const thread_block_tile<tile_size, Parent> &tile, T value,
                                 Combine &&combine, details::Site at = details::Site::here()) {
  const T inclusive = inclusive_scan(tile, value, combine, at);
  if constexpr (tile_size > 32) {
    const T below = __shfl_up_sync(cudaemu::FULL_WARP, inclusive, 1, 32, at);
    const T last = __shfl_sync(cudaemu::FULL_WARP, inclusive, 31, 32, at);
    bool any_before;
    const T before = tile.folded(last, at, [](T, T b) { return b; }, &any_before);
    return details::lane() != 0 ? below : any_before ? before : T{};
  } else {
    const T below = tile.shfl_up(inclusive, 1, at);
    return tile.thread_rank() == 0 ? T{} : below;
  }
}

template <class Group, class T>
__forceinline__ T inclusive_scan(const Group &group, T value,
                                 details::Site at = details::Site::here()) {
  return inclusive_scan(group, value, plus<T>(), at);
}
template <class Group, class T>
__forceinline__ T exclusive_scan(const Group &group, T value,
                                 details::Site at = details::Site::here()) {
  return exclusive_scan(group, value, plus<T>(), at);
}

}  // namespace cooperative_groups
