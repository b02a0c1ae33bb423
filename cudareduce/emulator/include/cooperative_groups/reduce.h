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

// A butterfly: every lane receives the result, as with CUDA's own.
template <unsigned tile_size, class Parent, class T, class Combine>
T reduce(const thread_block_tile<tile_size, Parent> &tile, T value, Combine combine,
         cudaemu::Site at = cudaemu::Site::here()) {
  for (unsigned with = tile_size / 2; with > 0; with /= 2) {
    value = combine(value, tile.shfl_xor(value, with, at));
  }
  return value;
}

}  // namespace cooperative_groups
