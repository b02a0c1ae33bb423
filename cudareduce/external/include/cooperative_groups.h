// Types that appear in the signatures of device functions; their members are device code.
#pragma once
#include "cuda_runtime.h"

namespace cooperative_groups {
struct thread_group {};
struct thread_block : thread_group {};
struct grid_group : thread_group {};
struct multi_grid_group : thread_group {};
struct cluster_group : thread_group {};
struct coalesced_group : thread_group {};
template <unsigned Size, class Parent = void>
struct thread_block_tile : thread_group {};
template <class T>
struct plus {};
template <class T>
struct less {};
template <class T>
struct greater {};
thread_block this_thread_block();
grid_group this_grid();
cluster_group this_cluster();
template <unsigned Size, class Group>
thread_block_tile<Size, Group> tiled_partition(const Group &);
template <class... T>
void sync(T &&...) {}
namespace experimental {}
}  // namespace cooperative_groups
