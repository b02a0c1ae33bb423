// cooperative_groups::memcpy_async, wait and wait_prior.
#pragma once
#include <cooperative_groups.h>

#include "../async_copy.h"

namespace cooperative_groups {

// Each thread of the group copies a part of the bytes.
template <class Group, class T, class Bytes>
__forceinline__ void memcpy_async(const Group &group, T *target, const T *source, Bytes bytes) {
  cudaemu::share_copy(target, source, static_cast<size_t>(bytes),
                      static_cast<size_t>(group.thread_rank()), static_cast<size_t>(group.size()),
                      nullptr);
  cudaemu::close_batch();
}
template <class Group, class T, class Target, class Source>
__forceinline__ void memcpy_async(const Group &group, T *target, Target target_count,
                                  const T *source, Source source_count) {
  const size_t a = static_cast<size_t>(target_count), b = static_cast<size_t>(source_count);
  memcpy_async(group, target, source, sizeof(T) * (a < b ? a : b));
}

template <unsigned newest, class Group>
__forceinline__ void wait_prior(const Group &group, details::Site at = details::Site::here()) {
  cudaemu::finish_copies(newest, nullptr);
  group.sync(at);
}
template <class Group>
__forceinline__ void wait(const Group &group, details::Site at = details::Site::here()) {
  wait_prior<0>(group, at);
}

}  // namespace cooperative_groups
