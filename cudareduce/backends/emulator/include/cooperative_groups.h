// Cooperative groups: grid, cluster, block, tiles of a block, and coalesced lanes of a warp.
#pragma once
#include <utility>

namespace cooperative_groups {

class grid_group;
class thread_block;
class coalesced_group;

namespace details {

using cudaemu::Site;

inline unsigned lane() { return cudaemu::this_thread->rank % 32; }

// Shuffles a value of any size in pieces of at most 16 bytes.
template <class T, class Shuffle>
inline T in_pieces(const T &value, Shuffle shuffle) {
  if constexpr (sizeof(T) <= 16) {
    return shuffle(value);
  } else {
    static_assert(__is_trivially_copyable(T), "a shuffle carries trivially copyable types");
    uint4 pieces[(sizeof(T) + 15) / 16];
    __builtin_memcpy(pieces, &value, sizeof value);
    for (uint4 &piece : pieces) piece = shuffle(piece);
    T result;
    __builtin_memcpy(&result, pieces, sizeof result);
    return result;
  }
}

// Operations of a group of lanes in one warp; Group::mask() returns the lanes.
template <class Group>
class Lanes {
 public:
  unsigned get_mask() const { return group().mask(); }
  void sync(Site at = Site::here()) const { __syncwarp(group().mask(), at); }
  int any(int predicate, Site at = Site::here()) const {
    return __any_sync(group().mask(), predicate, at);
  }
  int all(int predicate, Site at = Site::here()) const {
    return __all_sync(group().mask(), predicate, at);
  }
  unsigned ballot(int predicate, Site at = Site::here()) const {
    return packed(__ballot_sync(group().mask(), predicate, at));
  }
  template <class T>
  unsigned match_any(T value, Site at = Site::here()) const {
    return packed(__match_any_sync(group().mask(), value, at));
  }
  template <class T>
  unsigned match_all(T value, int &predicate, Site at = Site::here()) const {
    return packed(__match_all_sync(group().mask(), value, &predicate, at));
  }

 private:
  const Group &group() const { return static_cast<const Group &>(*this); }
  // Translates ranks in the group into lanes.
  unsigned packed(unsigned lanes) const {
    unsigned result = 0, rank = 0;
    for (unsigned left = group().mask(); left != 0; left &= left - 1) {
      result |= (lanes >> __builtin_ctz(left) & 1) << rank++;
    }
    return result;
  }
};

}  // namespace details

// A group of any type below, with the operations that all of them have.
class thread_group {
 public:
  void sync(details::Site at = details::Site::here()) const;
  unsigned long long size() const;
  unsigned long long num_threads() const { return size(); }
  unsigned long long thread_rank() const;

 private:
  friend class grid_group;
  friend class thread_block;
  friend class coalesced_group;
  template <unsigned, class>
  friend class thread_block_tile;
  friend thread_group tiled_partition(const thread_group &, unsigned);
  enum class Kind { Grid, Block, Lanes };
  thread_group(Kind kind, unsigned mask = 0) : kind_(kind), mask_(mask) {}
  Kind kind_;
  unsigned mask_;  // for Kind::Lanes
};

class thread_block {
 public:
  struct arrival_token {};
  static void sync(details::Site at = details::Site::here()) { __syncthreads(at); }
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token &&, details::Site at = details::Site::here()) { sync(at); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return cudaemu::this_thread->rank; }
  static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
  static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 dim_threads() { return blockDim; }
  static dim3 group_dim() { return blockDim; }
  operator thread_group() const { return {thread_group::Kind::Block}; }
};

// Memory for tiles wider than a warp on older GPUs; the emulator does not use it.
template <unsigned max_block_size = 1024>
struct block_tile_memory {
  char unused;
};

inline thread_block this_thread_block() { return {}; }

// A block launched without clusters is a cluster of one block.
class cluster_group : public thread_block {
 public:
  static unsigned num_blocks() { return 1; }
  static unsigned block_rank() { return 0; }
  static dim3 dim_blocks() { return {1, 1, 1}; }
  static dim3 block_index() { return {0, 0, 0}; }
  static unsigned query_shared_rank(const void *) { return 0; }
  // Shared memory of another block of the cluster, which has only one.
  template <class T>
  static T *map_shared_rank(T *address, int rank) { return rank == 0 ? address : nullptr; }
};

inline cluster_group this_cluster() { return {}; }
template <unsigned max_block_size>
inline thread_block this_thread_block(block_tile_memory<max_block_size> &) {
  return {};
}

// Ranks are in the order of lanes. A shuffle from a rank outside the group returns the caller's value.
class coalesced_group : public details::Lanes<coalesced_group> {
 public:
  explicit coalesced_group(unsigned mask, unsigned rank = 0, unsigned count = 1)
      : mask_(mask), meta_rank_(rank), meta_size_(count) {}
  unsigned size() const { return static_cast<unsigned>(__builtin_popcount(mask_)); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const {
    return static_cast<unsigned>(__builtin_popcount(mask_ & ((1u << details::lane()) - 1)));
  }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

  template <class T>
  T shfl(T value, int rank, details::Site at = details::Site::here()) const {
    const int lane = static_cast<int>(__fns(mask_, 0, rank + 1));
    return details::in_pieces(value,
                              [&](auto piece) { return __shfl_sync(mask_, piece, lane, 32, at); });
  }
  template <class T>
  T shfl_down(T value, unsigned by, details::Site at = details::Site::here()) const {
    const unsigned rank = thread_rank();
    return shfl(value, static_cast<int>(rank + by < size() ? rank + by : rank), at);
  }
  template <class T>
  T shfl_up(T value, unsigned by, details::Site at = details::Site::here()) const {
    const unsigned rank = thread_rank();
    return shfl(value, static_cast<int>(rank < by ? rank : rank - by), at);
  }
  unsigned mask() const { return mask_; }
  operator thread_group() const { return {thread_group::Kind::Lanes, mask_}; }

 private:
  unsigned mask_, meta_rank_, meta_size_;
};

// The lanes of the warp that can reach this call, as on a GPU that keeps a warp converged.
inline coalesced_group coalesced_threads(details::Site at = details::Site::here()) {
  return coalesced_group(cudaemu::converged_lanes(at));
}

namespace details {

template <class Parent>
struct SizeOf {
  static unsigned threads() { return thread_block::size(); }
};

// Tiles within a warp.
template <unsigned tile_size, class Tile, bool wide>
class TileOperations : public Lanes<Tile> {
 public:
  static unsigned mask() { return (cudaemu::FULL_WARP >> (32 - tile_size)) << first_lane(); }
  template <class T>
  static T shfl(T value, int rank, Site at = Site::here()) {
    return in_pieces(value,
                     [&](auto piece) { return __shfl_sync(mask(), piece, rank, tile_size, at); });
  }
  template <class T>
  static T shfl_down(T value, unsigned by, Site at = Site::here()) {
    return in_pieces(
        value, [&](auto piece) { return __shfl_down_sync(mask(), piece, by, tile_size, at); });
  }
  template <class T>
  static T shfl_up(T value, unsigned by, Site at = Site::here()) {
    return in_pieces(value,
                     [&](auto piece) { return __shfl_up_sync(mask(), piece, by, tile_size, at); });
  }
  template <class T>
  static T shfl_xor(T value, unsigned with, Site at = Site::here()) {
    return in_pieces(value, [&](auto piece) {
      return __shfl_xor_sync(mask(), piece, static_cast<int>(with), tile_size, at);
    });
  }

 private:
  static unsigned first_lane() { return lane() / tile_size * tile_size; }
};

// Tiles of several warps. They synchronise at a counter in shared memory. Its low ten bits are ones
// when the block begins, and every synchronisation adds the number of threads of the tile.
template <unsigned tile_size, class Tile>
class TileOperations<tile_size, Tile, true> {
 public:
  __forceinline__ static void sync(Site at = Site::here()) {
    if (thread_block::size() <= tile_size) {
      __syncthreads(at);
      return;
    }
    static __shared__ unsigned arrivals[1024 / tile_size];
    unsigned *const mine = &arrivals[thread_block::thread_rank() / tile_size];
    __threadfence_block();
    const unsigned before = atomicAdd(mine, 1u) + 1;
    const unsigned met = before / tile_size * tile_size + tile_size;
    while (static_cast<int>(cudaemu::atomic_load(mine) + 1 - met) < 0) cudaemu::yield();
    __threadfence_block();
  }
  template <class T>
  __forceinline__ static T shfl(T value, unsigned rank, Site at = Site::here()) {
    T *const cell = cells<T>();
    if (Tile::thread_rank() == rank) cell[first_warp()] = value;
    sync(at);
    const T result = cell[first_warp()];
    sync(at);
    return result;
  }
  __forceinline__ static int any(int predicate, Site at = Site::here()) {
    return folded(__any_sync(cudaemu::FULL_WARP, predicate, at), at,
                  [](int a, int b) { return a | b; });
  }
  __forceinline__ static int all(int predicate, Site at = Site::here()) {
    return folded(__all_sync(cudaemu::FULL_WARP, predicate, at), at,
                  [](int a, int b) { return a & b; });
  }
  // Combines one value per warp, the same in all of its lanes, in the order of warps. If `before` is
  // not null, combines only the warps before this one and sets *before to whether there are any.
  template <class T, class Combine>
  __forceinline__ static T folded(T of_warp, Site at, Combine combine, bool *before = nullptr) {
    T *const cell = cells<T>();
    const unsigned warp = cudaemu::this_thread->rank / 32;
    if (lane() == 0) cell[warp] = of_warp;
    sync(at);
    T result = cell[first_warp()];
    const unsigned end = before != nullptr ? warp : first_warp() + tile_size / 32;
    for (unsigned k = first_warp() + 1; k < end; k++) result = combine(result, cell[k]);
    if (before != nullptr) *before = warp > first_warp();
    sync(at);
    return result;
  }

 private:
  template <class T>
  static T *cells() {
    static __shared__ T cells[32];
    return cells;
  }
  static unsigned first_warp() { return cudaemu::this_thread->rank / tile_size * (tile_size / 32); }
};

}  // namespace details

template <unsigned tile_size, class Parent = void>
class thread_block_tile
    : public details::TileOperations<tile_size, thread_block_tile<tile_size, Parent>,
                                     (tile_size > 32)> {
  static_assert(tile_size >= 1 && tile_size <= 1024 && (tile_size & (tile_size - 1)) == 0,
                "the size of a tile is a power of two up to 1024");

 public:
  thread_block_tile() = default;
  template <class Other>
  thread_block_tile(const thread_block_tile<tile_size, Other> &) {}
  thread_block_tile(const thread_block &) {}
  static constexpr unsigned size() { return tile_size; }
  static constexpr unsigned num_threads() { return tile_size; }
  static unsigned thread_rank() { return cudaemu::this_thread->rank % tile_size; }
  static unsigned meta_group_rank() {
    return cudaemu::this_thread->rank % details::SizeOf<Parent>::threads() / tile_size;
  }
  static unsigned meta_group_size() {
    return (details::SizeOf<Parent>::threads() + tile_size - 1) / tile_size;
  }
  operator thread_group() const {
    static_assert(tile_size <= 32, "a thread_group is a tile of 32 lanes at most, here");
    return {thread_group::Kind::Lanes, this->mask()};
  }
};

namespace details {
template <unsigned tile_size, class Parent>
struct SizeOf<thread_block_tile<tile_size, Parent>> {
  static unsigned threads() { return tile_size; }
};
}  // namespace details

inline thread_block_tile<1, void> this_thread() { return {}; }

template <unsigned tile_size, class Parent>
thread_block_tile<tile_size, Parent> tiled_partition(const Parent &) {
  return {};
}

// Splits the lanes into consecutive groups of the requested size; the last may be smaller.
inline coalesced_group tiled_partition(const coalesced_group &parent, unsigned tile_size) {
  const unsigned rank = parent.thread_rank() / tile_size;
  unsigned mask = 0, place = 0;
  for (unsigned left = parent.mask(); left != 0; left &= left - 1) {
    if (place++ / tile_size == rank) mask |= left & -left;
  }
  return coalesced_group(mask, rank, (parent.size() + tile_size - 1) / tile_size);
}
inline thread_group tiled_partition(const thread_group &parent, unsigned tile_size) {
  const unsigned threads = thread_block::size(), first = cudaemu::this_thread->rank / 32 * 32;
  const unsigned lanes = threads - first < 32 ? (1u << (threads - first)) - 1 : cudaemu::FULL_WARP;
  const coalesced_group warp(parent.kind_ == thread_group::Kind::Lanes ? parent.mask_ : lanes);
  return tiled_partition(warp, tile_size);
}

// The subgroup of lanes with the same label or predicate.
template <class Group, class Label>
coalesced_group labeled_partition(const Group &group, Label label,
                                  details::Site at = details::Site::here()) {
  const unsigned mask = group.get_mask();
  const unsigned same = __match_any_sync(mask, (unsigned long long)label, at);
  const unsigned first = same & -same;
  const unsigned leaders = __ballot_sync(mask, first == 1u << details::lane(), at);
  return coalesced_group(same, static_cast<unsigned>(__builtin_popcount(leaders & (first - 1))),
                         static_cast<unsigned>(__builtin_popcount(leaders)));
}
template <class Group>
coalesced_group binary_partition(const Group &group, bool answer,
                                 details::Site at = details::Site::here()) {
  const unsigned mask = group.get_mask(), yes = __ballot_sync(mask, answer, at) & mask;
  if (yes == 0 || yes == mask) return coalesced_group(mask);
  return coalesced_group(answer ? yes : mask & ~yes, answer, 2);
}

class grid_group {
 public:
  struct arrival_token {};
  static void sync(details::Site at = details::Site::here()) { cudaemu::grid_barrier(at); }
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token &&, details::Site at = details::Site::here()) { sync(at); }
  static bool is_valid() { return true; }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
  static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() {
    return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 group_dim() { return gridDim; }
  static dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 dim_threads() {
    return {gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z};
  }
  static dim3 thread_index() {
    return {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
            blockIdx.z * blockDim.z + threadIdx.z};
  }
  operator thread_group() const { return {thread_group::Kind::Grid}; }
};

inline grid_group this_grid() { return {}; }

inline void thread_group::sync(details::Site at) const {
  if (kind_ == Kind::Grid) cudaemu::grid_barrier(at);
  if (kind_ == Kind::Block) __syncthreads(at);
  if (kind_ == Kind::Lanes) __syncwarp(mask_, at);
}
inline unsigned long long thread_group::size() const {
  return kind_ == Kind::Grid    ? grid_group::size()
         : kind_ == Kind::Block ? thread_block::size()
                                : coalesced_group(mask_).size();
}
inline unsigned long long thread_group::thread_rank() const {
  return kind_ == Kind::Grid    ? grid_group::thread_rank()
         : kind_ == Kind::Block ? thread_block::thread_rank()
                                : coalesced_group(mask_).thread_rank();
}

template <class Group>
__forceinline__ void sync(const Group &group, details::Site at = details::Site::here()) {
  group.sync(at);
}
template <class Group>
auto thread_rank(const Group &group) {
  return group.thread_rank();
}
template <class Group>
auto group_size(const Group &group) {
  return group.size();
}

// One thread of the group calls the function; the second form broadcasts its result.
template <class Group, class Function, class... Arguments>
void invoke_one(const Group &group, Function &&function, Arguments &&...arguments) {
  if (group.thread_rank() == 0) function(std::forward<Arguments>(arguments)...);
}
template <class Group, class Function, class... Arguments>
auto invoke_one_broadcast(const Group &group, Function &&function, Arguments &&...arguments) {
  decltype(function(std::forward<Arguments>(arguments)...)) result = {};
  if (group.thread_rank() == 0) result = function(std::forward<Arguments>(arguments)...);
  return group.shfl(result, 0);
}

}  // namespace cooperative_groups
