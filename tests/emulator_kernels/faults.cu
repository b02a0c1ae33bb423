// Kernels that go wrong in ways the runtime itself must name.

extern "C" __global__ void read_past_end(const float *in, float *out, size_t n) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  out[i % n] = in[i];  // fault
}

extern "C" __global__ void write_past_end(const float *in, float *out, size_t n) {
  out[n] = in[0];
}

extern "C" __global__ void deadlock(const float *in, float *out, size_t n) {
  float value = in[threadIdx.x % n];
  if (threadIdx.x < 16) {
    value += __shfl_down_sync(0xffffffffu, value, 8);  // lanes 0 to 15
  } else {
    __syncthreads();  // the others
  }
  out[threadIdx.x % n] = value;
}

extern "C" __global__ void different_barriers(const float *in, float *out, size_t n) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();  // second
  }
  out[threadIdx.x % n] = in[threadIdx.x % n];
}

extern "C" __global__ void not_in_own_mask(const float *in, float *out, size_t n) {
  out[threadIdx.x % n] = __shfl_xor_sync(0x0000fffe, in[threadIdx.x % n], 1);  // mask
}

// Lane 0 asks for the value of a lane that has left.
extern "C" __global__ void absent_lane(const float *in, float *out, size_t n) {
  if (threadIdx.x >= 16) return;
  const float value = __shfl_sync(0xffffffffu, in[threadIdx.x % n], 16);
  if (threadIdx.x == 0) *out = value;
}

extern "C" __global__ void shared_overflow(const float *in, float *out, size_t n) {
  __shared__ float shared[32];
  shared[threadIdx.x % 32] = in[threadIdx.x % n];
  __syncthreads();
  if (threadIdx.x == 0) *out = shared[threadIdx.x + n];  // overflow
}

extern "C" __global__ void misaligned(const float *in, float *out, size_t n) {
  const float4 four = *reinterpret_cast<const float4 *>(in + 1);  // misaligned
  if (threadIdx.x == 0) *out = four.x;
}

// All threads but one spin; the schedule must let that one run.
extern "C" __global__ void spin(const float *in, float *out, size_t n, unsigned *flag) {
  if (threadIdx.x == blockDim.x - 1) {
    *out = in[0];
    __threadfence();
    atomicExch(flag, 1u);
  }
  while (atomicAdd(flag, 0u) == 0) __nanosleep(20);
}

extern "C" __global__ void asserts(const float *in, float *out, size_t n) {
  __syncthreads();
  assert(threadIdx.x < 8 || in[threadIdx.x] == 0.0f);  // assertion
  out[threadIdx.x % n] = in[threadIdx.x];
}
