// Sums with one mistake each. A report must name a line that is marked "hazard" here.

constexpr unsigned BLOCK = 256;
constexpr unsigned FULL = 0xffffffffu;

__device__ __forceinline__ size_t global_index() {
  return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void no_barrier_after_load(const float *in, float *out, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;  // hazard
  for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];  // hazard
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = shared[0];
}

extern "C" __global__ void no_barrier_in_loop(const float *in, float *out, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];  // hazard
  }
  __syncthreads();
  if (t == 0) out[blockIdx.x] = shared[0];
}

__device__ float block_sum_once(float value, float *partial) {
  for (int offset = 16; offset > 0; offset >>= 1) {
    value += __shfl_down_sync(FULL, value, offset);
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;  // hazard
  __syncthreads();
  float sum = 0.0f;
  for (unsigned k = 0; k < BLOCK / 32; k++) sum += partial[k];  // hazard
  return sum;
}

// The second use of the scratch array overwrites what slower threads have yet to read of the first.
extern "C" __global__ void no_barrier_between_uses(const float *in, float *out, size_t n) {
  __shared__ float partial[BLOCK / 32];
  const size_t i = global_index();
  const float value = i < n ? in[i] : 0.0f;
  const float once = block_sum_once(value, partial);
  const float twice = block_sum_once(2.0f * value, partial);
  atomicAdd(out + blockIdx.x, (once + twice) / (3.0f * BLOCK));
}

// What worked while the lanes of a warp ran in lockstep.
extern "C" __global__ void no_syncwarp_in_tail(const float *in, float *out, size_t n) {
  __shared__ float shared[BLOCK + 32];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = BLOCK / 2; stride > 32; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  if (t < 32) {
    volatile float *tail = shared;
    for (unsigned stride = 32; stride > 0; stride >>= 1) tail[t] += tail[t + stride];  // hazard
  }
  if (t == 0) out[blockIdx.x] = shared[0];
}

// One __syncwarp a step is not enough where every lane writes.
extern "C" __global__ void one_syncwarp_in_tail(const float *in, float *out, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (unsigned stride = BLOCK / 2; stride > 32; stride >>= 1) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  if (t < 32) {
    for (unsigned stride = 32; stride > 0; stride >>= 1) {
      shared[t] += shared[t + stride];  // hazard
      __syncwarp();
    }
  }
  if (t == 0) out[blockIdx.x] = shared[0];
}

extern "C" __global__ void barrier_in_branch(const float *in, float *out, size_t n) {
  __shared__ float shared[BLOCK];
  const unsigned t = threadIdx.x;
  const size_t i = global_index();
  shared[t] = i < n ? in[i] : 0.0f;  // hazard
  for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
    if (t < stride) {
      shared[t] += shared[t + stride];  // hazard
      __syncthreads();  // hazard
    }
  }
  if (t == 0) out[blockIdx.x] = shared[0];
}

// Nothing makes the partial sum visible before the arrival is counted.
extern "C" __global__ void no_fence(const float *in, float *out, size_t n, float *partials,
                                    unsigned *counter) {
  __shared__ float partial[BLOCK / 32];
  __shared__ bool is_last;
  const size_t i = global_index();
  const float sum = block_sum_once(i < n ? in[i] : 0.0f, partial);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  float total = 0.0f;
  for (unsigned k = 0; k < gridDim.x; k++) total += partials[k];  // hazard
  *out = total;
}

// The fence orders what this block sees, and no other.
extern "C" __global__ void block_fence(const float *in, float *out, size_t n, float *partials,
                                       unsigned *counter) {
  __shared__ float partial[BLOCK / 32];
  __shared__ bool is_last;
  const size_t i = global_index();
  const float sum = block_sum_once(i < n ? in[i] : 0.0f, partial);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    __threadfence_block();
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  float total = 0.0f;
  for (unsigned k = 0; k < gridDim.x; k++) total += partials[k];  // hazard
  *out = total;
}

// The fence comes after the arrival; the atomic operation that it precedes tells nobody.
extern "C" __global__ void fence_after_arrival(const float *in, float *out, size_t n,
                                               float *partials, unsigned *counter) {
  __shared__ float partial[BLOCK / 32];
  __shared__ bool is_last;
  const size_t i = global_index();
  const float sum = block_sum_once(i < n ? in[i] : 0.0f, partial);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
    atomicExch(partials + gridDim.x + blockIdx.x, 1.0f);
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  float total = 0.0f;
  for (unsigned k = 0; k < gridDim.x; k++) total += __ldcg(partials + k);  // hazard
  *out = total;
}

// A second pass over many blocks that writes where another block has yet to read.
extern "C" __global__ void in_place(float *in, float *out, size_t n) {
  __shared__ float partial[BLOCK / 32];
  const size_t i = global_index();
  const float sum = block_sum_once(i < n ? in[i] : 0.0f, partial);  // hazard
  if (threadIdx.x == 0) {
    in[blockIdx.x] = sum;  // hazard
    out[blockIdx.x] = sum;
  }
}

extern "C" __global__ void missing_barrier_after_atomics(const float *in, float *out, size_t n) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  const size_t i = global_index();
  if (i < n) atomicAdd(&sum, in[i]);  // hazard
  if (threadIdx.x == 0) out[blockIdx.x] = sum;  // hazard
}
