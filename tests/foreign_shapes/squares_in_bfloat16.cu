// expected: right  if: it has at most 128 elements  shape: one block, which stores the sum of squares of floats in 16 bits
#include <cuda_bf16.h>

__global__ void sum_of_squares(const float *x, __nv_bfloat16 *norm, int n)
{
    __shared__ float parts[256];
    float sum = 0.0f;
    for (int k = threadIdx.x; k < n; k += 256)
        sum += x[k] * x[k];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (threadIdx.x < step)
            parts[threadIdx.x] += parts[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *norm = __float2bfloat16(parts[0]);
}

int main()
{
    sum_of_squares<<<1, 256>>>(nullptr, nullptr, 0);
}
