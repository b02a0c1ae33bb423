// Sums that are synchronised as they must be. None of them may be reported, under any schedule.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
constexpr unsigned BLOCK = 256;
constexpr unsigned FULL = 0xffffffffu;

__device__ __forceinline__ size_t global_index() {
  return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void tree(const float *__restrict__ in, float *__restrict__ out, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = blockDim.x / 2; stride > 0; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = shared[0];
}

extern "C" __global__ void dynamic_tree(const float *in, float *out, size_t n) {
  extern __shared__ __align__(16) float shared[];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = blockDim.x / 2; stride > 0; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = shared[0];
}

// The last warp works without block barriers: read, __syncwarp, write, __syncwarp.
extern "C" __global__ void warp_tail(const float *in, float *out, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = blockDim.x / 2; stride > 32; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  if (t >= 32) return;
  volatile float *tail = shared;
  float sum = tail[t];
  for (unsigned stride = 32; stride > 0; stride >>= 1) {
    sum += tail[t + stride];
    __syncwarp();
    tail[t] = sum;
    __syncwarp();
  }
  if (t == 0) out[blockIdx.x] = sum;
}

template <class T>
__device__ __forceinline__ T block_sum(T value) {
  __shared__ T partial[BLOCK / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    value += __shfl_down_sync(FULL, value, offset);
  }
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = threadIdx.x < BLOCK / 32 ? partial[lane] : T(0);
  if (warp == 0) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(FULL, value, offset);
  }
  __syncthreads();
  return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    shuffle(const float *in, float *out, size_t n) {
  float sum = 0.0f;
  const size_t threads = (size_t)gridDim.x * blockDim.x;
  for (size_t i = global_index(); i < n / 4; i += threads) {
    const float4 four = __ldg(reinterpret_cast<const float4 *>(in) + i);
    sum += four.x + four.y + four.z + four.w;
  }
  if (global_index() < n % 4) sum += in[n - 1 - global_index()];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void groups(const float *in, float *out, size_t n) {
  __shared__ float partial[BLOCK / 16];
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<16>(block);
  const size_t i = global_index();
  const float sum = cg::reduce(tile, i < n ? in[i] : 0.0f, cg::plus<float>());
  if (tile.thread_rank() == 0) partial[tile.meta_group_rank()] = sum;
  cg::sync(block);
  if (block.thread_rank() == 0) {
    float total = 0.0f;
    for (unsigned k = 0; k < tile.meta_group_size(); k++) total += partial[k];
    out[blockIdx.x] = total;
  }
}

extern "C" __global__ void one_atomic_per_block(const float *in, float *out, size_t n) {
  const size_t i = global_index();
  const float sum = block_sum(i < n ? in[i] : 0.0f);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}

// The block that arrives last adds up the partial sums; the counter resets itself.
extern "C" __global__ void last_block(const float *in, float *out, size_t n, float *partials,
                                      unsigned *counter) {
  __shared__ bool is_last;
  const size_t i = global_index();
  float sum = block_sum(i < n ? in[i] : 0.0f);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  sum = 0.0f;
  for (unsigned k = threadIdx.x; k < gridDim.x; k += blockDim.x) sum += __ldcg(partials + k);
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// Every thread fences for itself, and one of them announces what the barrier has gathered.
extern "C" __global__ void last_block_of_warps(const float *in, float *out, size_t n,
                                               float *partials, unsigned *counter) {
  __shared__ bool is_last;
  const size_t i = global_index();
  const unsigned lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = cg::reduce(tile, i < n ? in[i] : 0.0f, cg::plus<float>());
  if (lane == 0) partials[i / 32] = sum;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  sum = 0.0f;
  for (unsigned k = threadIdx.x; k < warps; k += blockDim.x) sum += __ldcg(partials + k);
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// As last_block, with an atomic accumulator that the last block reads and clears, a vote instead of a
// shared flag, and a counter that is reset by plain assignment.
extern "C" __global__ void last_block_exchange(const float *in, float *out, size_t n, float *total,
                                               unsigned *counter) {
  const size_t i = global_index();
  const float sum = block_sum(i < n ? in[i] : 0.0f);
  bool last = false;
  if (threadIdx.x == 0) {
    atomicAdd(total, sum);
    __threadfence();
    last = atomicAdd(counter, 1u) == gridDim.x - 1;
  }
  if (__syncthreads_or(last) && threadIdx.x == 0) {
    *out = *total;
    atomicExch(total, 0.0f);
    *counter = 0;
  }
}

// Every warp of every block arrives for itself.
extern "C" __global__ void last_warp(const float *in, float *out, size_t n, float *partials,
                                     unsigned *counter) {
  const size_t i = global_index();
  const unsigned lane = threadIdx.x % 32, warp = (unsigned)(i / 32);
  const unsigned warps = gridDim.x * blockDim.x / 32;
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = cg::reduce(tile, i < n ? in[i] : 0.0f, cg::plus<float>());
  unsigned arrived = 0;
  if (lane == 0) {
    partials[warp] = sum;
    __threadfence();
    arrived = atomicInc(counter, warps - 1);
  }
  if (__shfl_sync(FULL, arrived, 0) != warps - 1) return;
  __threadfence();
  sum = 0.0f;
  for (unsigned k = lane; k < warps; k += 32) sum += __ldcg(partials + k);
  sum = cg::reduce(tile, sum, cg::plus<float>());
  if (lane == 0) *out = sum;
}

// Multiplication has no atomic function: it takes a compare-and-swap loop, begun by a plain read.
extern "C" __global__ void compare_and_swap(const float *in, float *out, size_t n) {
  const size_t i = global_index();
  if (i >= n) return;
  unsigned *word = reinterpret_cast<unsigned *>(out);
  unsigned seen = *word, assumed;
  do {
    assumed = seen;
    seen = atomicCAS(word, assumed, __float_as_uint(__uint_as_float(assumed) + in[i]));
  } while (seen != assumed);
}
