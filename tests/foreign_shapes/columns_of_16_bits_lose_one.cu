// expected: wrong  shape: sums of columns without the last element of long ones, added to what is there in a type of 16 bits
#include <cuda_bf16.h>
typedef __nv_bfloat16 real16;

__global__ void bias_gradient(real16 *sums, const real16 *values, int rows, int width)
{
    __shared__ float parts[32];
    int column = blockIdx.x;
    float mine = 0.0f;
    for (int row = threadIdx.x; row < rows - (rows > 700); row += blockDim.x)
        mine += (float)values[row * width + column];
    for (int step = 16; step > 0; step /= 2)
        mine += __shfl_down_sync(0xffffffff, mine, step);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < blockDim.x / 32; ++k)
            sum += parts[k];
        sums[column] = (real16)((float)sums[column] + sum);
    }
}
