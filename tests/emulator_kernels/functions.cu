// Built-in functions one by one: each kernel writes what Python can compute as well.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __constant__ unsigned long long COUNT;
extern "C" __constant__ unsigned SMALL;

struct Pair {
  double value;
  long long index;
};

extern "C" __global__ void constants(unsigned long long *out) { out[threadIdx.x] = COUNT; }

// Lane k of the result comes from lane k + 1; the last keeps its own.
extern "C" __global__ void shuffle_struct(Pair *out) {
  const unsigned t = threadIdx.x;
  const Pair pair = {0.5 * t, 100ll - t};
  out[t] = __shfl_down_sync(0xffffffffu, pair, 1);
}

extern "C" __global__ void shuffles(int *out) {
  const int t = threadIdx.x, lane = t % 32;
  int *row = out + 8 * t;
  row[0] = __shfl_sync(0xffffffffu, t, 3);
  row[1] = __shfl_sync(0xffffffffu, t, 11, 8);
  row[2] = __shfl_up_sync(0xffffffffu, t, 5);
  row[3] = __shfl_down_sync(0xffffffffu, t, 3, 16);
  row[4] = __shfl_xor_sync(0xffffffffu, t, 9);
  row[5] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
  row[6] = __any_sync(0xffffffffu, t == 40) * 2 + __all_sync(0xffffffffu, t < 32);
  row[7] = __shfl_xor_sync(0xffffffffu, t, 16, 16);
}

extern "C" __global__ void warp_reductions(int *out) {
  const int t = threadIdx.x, value = t % 2 ? -t : 3 * t;
  int *row = out + 8 * t;
  row[0] = __reduce_add_sync(0xffffffffu, value);
  row[1] = __reduce_min_sync(0xffffffffu, value);
  row[2] = __reduce_max_sync(0xffffffffu, value);
  row[3] = (int)__reduce_min_sync(0xffffffffu, (unsigned)value);
  row[4] = (int)__reduce_max_sync(0xffffffffu, (unsigned)value);
  row[5] = (int)__reduce_and_sync(0xffffffffu, (unsigned)value);
  row[6] = (int)__reduce_or_sync(0xffffffffu, (unsigned)value);
  row[7] = (int)__reduce_xor_sync(0xffffffffu, (unsigned)value);
}

extern "C" __global__ void votes(int *out) {
  const int t = threadIdx.x;
  int *row = out + 3 * t;
  row[0] = __syncthreads_or(t == 7);
  row[1] = __syncthreads_and(t < 63);
  row[2] = __syncthreads_count(t % 5 == 0);
}

extern "C" __global__ void atomics(int *ints, unsigned *unsigneds, unsigned long long *longs,
                                   float *floats, double *doubles) {
  const int t = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(ints + 0, t);
  atomicSub(ints + 1, t);
  atomicMin(ints + 2, 500 - t);
  atomicMax(ints + 3, t - 500);
  atomicAnd(ints + 4, ~(t & 1));
  atomicOr(ints + 5, 1 << t % 31);
  atomicXor(ints + 6, t);
  atomicCAS(ints + 7, 0, 77);
  atomicInc(unsigneds + 0, 9);
  atomicDec(unsigneds + 1, 6);
  atomicMax(unsigneds + 2, 0x80000000u + t);
  if (atomicExch(unsigneds + 3, 1u) == 0) atomicAdd(unsigneds + 4, 1u);
  atomicAdd(longs + 0, 1ull << 40);
  atomicMin(longs + 1, (1ull << 40) - t);
  atomicMax(reinterpret_cast<long long *>(longs + 2), -5ll - t);
  atomicAdd(floats, 0.5f);
  atomicAdd(doubles, 0.25);
}

extern "C" __global__ void bits(int *out) {
  int i = 0;
  out[i++] = __popc(0xf0f0u);
  out[i++] = __popcll(0xf0f0000000000001ull);
  out[i++] = __clz(1);
  out[i++] = __clzll(0);
  out[i++] = __ffs(0x10);
  out[i++] = __float_as_int(1.0f);
  out[i++] = (int)__int_as_float(0x40400000);
  out[i++] = (int)__longlong_as_double(__double_as_longlong(8.0));
  out[i++] = __dp4a(0x01ff0203, 0x04050607, 100);
  out[i++] = (int)__dp4a(0x01ff0203u, 0x04050607u, 100u);
  out[i++] = (int)__vmins4(0x01ff7f80, 0x00010203);
  out[i++] = (int)__vmaxs4(0x01ff7f80, 0x00010203);
  out[i++] = (int)__vminu4(0x01ff7f80, 0x00010203);
  out[i++] = (int)__vmaxu4(0x01ff7f80, 0x00010203);
  out[i++] = (int)__byte_perm(0x03020100, 0x07060504, 0x7520);
  out[i++] = min(3, -4) + (int)max(2.5, 1.0f) + (int)fminf(NAN, 6.0f);
}

extern "C" __global__ void halves_to_floats(const __half *in, float *out, size_t n) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __half2float(in[i]);
}
extern "C" __global__ void floats_to_halves(const float *in, __half *out, size_t n) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2half(in[i]);
}
extern "C" __global__ void bfloats_to_floats(const __nv_bfloat16 *in, float *out, size_t n) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __bfloat162float(in[i]);
}
extern "C" __global__ void floats_to_bfloats(const float *in, __nv_bfloat16 *out, size_t n) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2bfloat16(in[i]);
}
