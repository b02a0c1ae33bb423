// Blocks and warps that wait for each other in loops. The state of a launch is told from that of the
// one before by its epoch, so that nothing has to be reset.

#include <cooperative_groups.h>

constexpr unsigned BLOCK = 256;
constexpr unsigned MAX_BLOCKS = 64;

__device__ float totals[MAX_BLOCKS];
__device__ volatile unsigned done[MAX_BLOCKS];
__device__ unsigned arrived, lock;
__device__ volatile unsigned epoch;
__device__ float sum_under_lock;

__device__ float block_sum(const float *in, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = (size_t)blockIdx.x * blockDim.x + t;
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  return shared[0];
}

// ----- right

// Each block waits for the one before it, and the last one has the sum.
extern "C" __global__ void look_back(const float *in, float *out, size_t n) {
  float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  const unsigned b = blockIdx.x, now = epoch + 1;
  if (b > 0) {
    while (done[b - 1] != now) {
    }
    __threadfence();
    sum += totals[b - 1];
  }
  totals[b] = sum;
  __threadfence();
  done[b] = now;
  if (b != gridDim.x - 1) return;
  *out = sum;
  epoch = now;
}

// Block 0 waits for blocks that may not have begun.
extern "C" __global__ void first_waits(const float *in, float *out, size_t n) {
  float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  const unsigned b = blockIdx.x, now = epoch + 1;
  totals[b] = sum;
  __threadfence();
  done[b] = now;
  if (b != 0) return;
  for (unsigned other = 1; other < gridDim.x; other++) {
    while (done[other] != now) __nanosleep(100);
    __threadfence();
    sum += totals[other];
  }
  *out = sum;
  epoch = now;
}

// All blocks meet before the first one reads what the others wrote.
extern "C" __global__ void grid_barrier(const float *in, float *out, size_t n) {
  const float sum = block_sum(in, n);
  if (threadIdx.x == 0) {
    totals[blockIdx.x] = sum;
    const unsigned before = epoch;
    __threadfence();
    if (atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1) {
      epoch = before + 1;
    } else {
      while (epoch == before) {
      }
    }
    __threadfence();
  }
  __syncthreads();
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  float total = 0.0f;
  for (unsigned b = 0; b < gridDim.x; b++) total += totals[b];
  *out = total;
}

// A plain variable that only the holder of a lock touches.
extern "C" __global__ void spin_lock(const float *in, float *out, size_t n) {
  const float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  while (atomicCAS(&lock, 0u, 1u) != 0) {
  }
  __threadfence();
  const unsigned count = ++arrived;
  sum_under_lock = (count == 1 ? 0.0f : sum_under_lock) + sum;
  if (count == gridDim.x) {
    *out = sum_under_lock;
    arrived = 0;
  }
  __threadfence();
  atomicExch(&lock, 0u);
}

// The first warp waits for the others without a barrier.
extern "C" __global__ void warps_wait(const float *in, float *out, size_t n) {
  __shared__ float sums[BLOCK / 32];
  __shared__ volatile unsigned ready[BLOCK / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (lane == 0) ready[warp] = 0;
  __syncthreads();
  float sum = i < n ? in[i] : 0.0f;
  for (unsigned down = 16; down > 0; down /= 2) sum += __shfl_down_sync(0xffffffffu, sum, down);
  if (lane == 0) {
    sums[warp] = sum;
    __threadfence_block();
    ready[warp] = 1;
  }
  if (threadIdx.x != 0) return;
  for (unsigned other = 1; other < BLOCK / 32; other++) {
    while (ready[other] == 0) {
    }
    __threadfence_block();
    sum += sums[other];
  }
  out[blockIdx.x] = sum;
}

// ----- wrong

extern "C" __global__ void look_back_without_fence(const float *in, float *out, size_t n) {
  float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  const unsigned b = blockIdx.x, now = epoch + 1;
  if (b > 0) {
    while (done[b - 1] != now) {
    }
    sum += totals[b - 1];  // hazard
  }
  totals[b] = sum;
  done[b] = now;
  if (b != gridDim.x - 1) return;
  *out = sum;
  epoch = now;
}

// Looks at the flag once, by which time it happens to be there.
extern "C" __global__ void looks_once(const float *in, float *out, size_t n) {
  float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  const unsigned b = blockIdx.x, now = epoch + 1;
  if (b > 0 && done[b - 1] == now) sum += totals[b - 1];
  totals[b] = sum;
  __threadfence();
  done[b] = now;
  if (b != gridDim.x - 1) return;
  *out = sum;
  epoch = now;
}

extern "C" __global__ void lock_without_fence(const float *in, float *out, size_t n) {
  const float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  while (atomicCAS(&lock, 0u, 1u) != 0) {
  }
  const unsigned count = ++arrived;                                // hazard
  sum_under_lock = (count == 1 ? 0.0f : sum_under_lock) + sum;  // hazard
  if (count == gridDim.x) {
    *out = sum_under_lock;
    arrived = 0;
  }
  atomicExch(&lock, 0u);
}

// The partials are in a variable, and nobody fences before the arrival.
extern "C" __global__ void variable_without_fence(const float *in, float *out, size_t n) {
  const float sum = block_sum(in, n);
  if (threadIdx.x != 0) return;
  totals[blockIdx.x] = sum;
  if (atomicInc(&arrived, gridDim.x - 1) != gridDim.x - 1) return;
  float total = 0.0f;
  for (unsigned b = 0; b < gridDim.x; b++) total += totals[b];  // hazard
  *out = total;
}

// Blocks of a grid do not see each other's atomic operations if their scope is the block.
extern "C" __global__ void scope_too_narrow(const float *in, float *out, size_t n) {
  const float sum = block_sum(in, n);
  if (threadIdx.x == 0) atomicAdd_block(out, sum);  // hazard
}

extern "C" __global__ void waits_for_ever(const float *in, float *out, size_t n) {
  while (done[blockIdx.x] != 0xffffffffu) {
  }
}

// ----- the barrier of a grid

__device__ void meet_and_add(const float *in, float *out, size_t n, bool all) {
  const float sum = block_sum(in, n);
  if (threadIdx.x == 0) totals[blockIdx.x] = sum;
  // The first block comes long after the others.
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    volatile unsigned busy = 0;
    while (busy < 20000000) busy = busy + 1;
  }
  if (!all && blockIdx.x > 0 && blockIdx.x == gridDim.x - 1) return;
  cooperative_groups::this_grid().sync();
  if (blockIdx.x > 0 || threadIdx.x > 0) return;
  float total = 0.0f;
  for (unsigned b = 0; b < gridDim.x; b++) total += totals[b];
  *out = total;
}

extern "C" __global__ void all_meet(const float *in, float *out, size_t n) {
  meet_and_add(in, out, n, true);
}

extern "C" __global__ void last_leaves(const float *in, float *out, size_t n) {
  meet_and_add(in, out, n, false);
}
