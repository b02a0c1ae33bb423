#include <cuda_runtime.h>

// Values are distances, never negative.
__global__ void longest(const float* distance, float* result, int n) {
    __shared__ float s[128];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += 128) v = fmaxf(v, distance[i]);
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 64; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) *result = s[0];
}

void findLongest(const float* distance, float* result, int n) {
    longest<<<1, 128>>>(distance, result, n);
}
