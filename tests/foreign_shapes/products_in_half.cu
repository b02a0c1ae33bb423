// expected: right  if: nothing is lost by rounding to float16  shape: products rounded to half
#include <cuda_fp16.h>

__global__ void dot(half *a, half *b, float *y, int n) {
    __shared__ float sums[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half product = i < n ? __hmul(a[i], b[i]) : __float2half(0.0f);
    float sum = __half2float(product);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) sum += sums[k];
        atomicAdd(y, sum);
    }
}

void launch(half *a, half *b, float *y, int n) { dot<<<(n + 255) / 256, 256>>>(a, b, y, n); }
