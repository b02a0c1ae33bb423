// Random numbers on the host; what they fill is device memory that was set.
#pragma once
#include "cuda_runtime.h"

typedef struct curandGenerator_st *curandGenerator_t;
enum curandStatus_t { CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_ALLOCATION_FAILED = 102 };
typedef curandStatus_t curandStatus;
enum curandRngType_t {
  CURAND_RNG_PSEUDO_DEFAULT = 100,
  CURAND_RNG_PSEUDO_XORWOW = 101,
  CURAND_RNG_PSEUDO_MRG32K3A = 121,
  CURAND_RNG_PSEUDO_MTGP32 = 141,
  CURAND_RNG_PSEUDO_MT19937 = 142,
  CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
  CURAND_RNG_QUASI_DEFAULT = 200
};
template <class... T>
curandStatus_t curandCreateGenerator(T...) {
  return CURAND_STATUS_SUCCESS;
}
template <class... T>
curandStatus_t curandCreateGeneratorHost(T...) {
  return CURAND_STATUS_SUCCESS;
}
template <class... T>
curandStatus_t curandSetPseudoRandomGeneratorSeed(T...) {
  return CURAND_STATUS_SUCCESS;
}
template <class... T>
curandStatus_t curandSetGeneratorOffset(T...) {
  return CURAND_STATUS_SUCCESS;
}
template <class... T>
curandStatus_t curandSetStream(T...) {
  return CURAND_STATUS_SUCCESS;
}
template <class... T>
curandStatus_t curandDestroyGenerator(T...) {
  return CURAND_STATUS_SUCCESS;
}
template <class T>
curandStatus_t recorder_random(T *to, size_t count, double mean, double width) {
  unsigned long long state = 88172645463325252ull;
  for (size_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const double uniform = ((state >> 11) + 1) * 0x1p-53;
    to[i] = width == 0 ? static_cast<T>(uniform) : static_cast<T>(mean + width * (uniform - 0.5));
  }
  recorder::set_device(to, count * sizeof(T));
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandGenerateUniform(curandGenerator_t, float *to, size_t count) {
  return recorder_random(to, count, 0, 0);
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t, double *to, size_t count) {
  return recorder_random(to, count, 0, 0);
}
inline curandStatus_t curandGenerateNormal(curandGenerator_t, float *to, size_t count, float mean,
                                           float deviation) {
  return recorder_random(to, count, mean, deviation);
}
inline curandStatus_t curandGenerateNormalDouble(curandGenerator_t, double *to, size_t count,
                                                 double mean, double deviation) {
  return recorder_random(to, count, mean, deviation);
}
inline curandStatus_t curandGenerate(curandGenerator_t, unsigned *to, size_t count) {
  return recorder_random(to, count, 2147483648.0, 4294967295.0);
}
