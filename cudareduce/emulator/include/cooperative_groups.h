// The cooperative groups that a reduction uses: the block, tiles of a warp, their shuffles.
#pragma once

namespace cooperative_groups {

class thread_block {
 public:
  static void sync(cudaemu::Site at = cudaemu::Site::here()) { __syncthreads(at); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return cudaemu::this_thread->rank; }
  static uint3 thread_index() { return threadIdx; }
  static uint3 group_index() { return blockIdx; }
};

inline thread_block this_thread_block() { return {}; }

template <unsigned tile_size, class Parent = thread_block>
class thread_block_tile {
  static_assert(tile_size >= 1 && tile_size <= 32 && (tile_size & (tile_size - 1)) == 0,
                "the size of a tile is a power of two up to 32");

 public:
  static constexpr unsigned size() { return tile_size; }
  static constexpr unsigned num_threads() { return tile_size; }
  static unsigned thread_rank() { return cudaemu::this_thread->rank % tile_size; }
  static unsigned meta_group_rank() { return cudaemu::this_thread->rank / tile_size; }
  static unsigned meta_group_size() { return (thread_block::size() + tile_size - 1) / tile_size; }

  static void sync(cudaemu::Site at = cudaemu::Site::here()) { __syncwarp(mask(), at); }

  template <class T>
  static T shfl(T value, int lane, cudaemu::Site at = cudaemu::Site::here()) {
    return __shfl_sync(mask(), value, lane, tile_size, at);
  }
  template <class T>
  static T shfl_down(T value, unsigned by, cudaemu::Site at = cudaemu::Site::here()) {
    return __shfl_down_sync(mask(), value, by, tile_size, at);
  }
  template <class T>
  static T shfl_up(T value, unsigned by, cudaemu::Site at = cudaemu::Site::here()) {
    return __shfl_up_sync(mask(), value, by, tile_size, at);
  }
  template <class T>
  static T shfl_xor(T value, unsigned with, cudaemu::Site at = cudaemu::Site::here()) {
    return __shfl_xor_sync(mask(), value, static_cast<int>(with), tile_size, at);
  }

  static int any(int predicate, cudaemu::Site at = cudaemu::Site::here()) {
    return __any_sync(mask(), predicate, at);
  }
  static int all(int predicate, cudaemu::Site at = cudaemu::Site::here()) {
    return __all_sync(mask(), predicate, at);
  }
  static unsigned ballot(int predicate, cudaemu::Site at = cudaemu::Site::here()) {
    return __ballot_sync(mask(), predicate, at) >> first_lane();
  }

 private:
  static unsigned first_lane() { return cudaemu::this_thread->rank % 32 / tile_size * tile_size; }
  static unsigned mask() { return (cudaemu::FULL_WARP >> (32 - tile_size)) << first_lane(); }
};

template <unsigned tile_size, class Parent>
thread_block_tile<tile_size, Parent> tiled_partition(const Parent &) {
  return {};
}

template <class Group>
void sync(const Group &, cudaemu::Site at = cudaemu::Site::here()) {
  Group::sync(at);
}

// There are no cooperative launches here, so that a barrier across the grid is an error.
class grid_group {
 public:
  static void sync(cudaemu::Site at = cudaemu::Site::here()) {
    cudaemu::unsupported("grid.sync() without a cooperative launch", at);
  }
  static bool is_valid() { return false; }
  static unsigned long long size() {
    return 1ull * gridDim.x * gridDim.y * gridDim.z * thread_block::size();
  }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() {
    const unsigned long long block =
        (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return block * thread_block::size() + thread_block::thread_rank();
  }
};

inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups
