// expected: right  shape: rows of halves, whose sums are halves
#include <cuda_fp16.h>

__global__ void row_sums(const half *rows, half *out, int columns)
{
    extern __shared__ float shared[];
    int tid = threadIdx.x;
    float sum = 0.0f;
    for (int k = tid; k < columns; k += blockDim.x)
        sum += __half2float(rows[size_t(blockIdx.x) * columns + k]);
    shared[tid] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (tid < step)
            shared[tid] += shared[tid + step];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = __float2half(shared[0]);
}
