// expected: right  if: n is a multiple of 256  shape: a variable of the file has a name that headers have, too
#include <cuda.h>
#include <stdint.h>
__device__ float result;
__global__ void dot(float *x, float *y, uint32_t N)
{
    __shared__ float product[256];
    uint32_t index = threadIdx.x + blockIdx.x * blockDim.x;
    product[threadIdx.x] = x[index] * y[index];
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int k = 0; k < 256; k++) sum += product[k];
        atomicAdd(&result, sum);
    }
}
void launch(float *x, float *y, int N) { dot<<<(N + 255) / 256, 256>>>(x, y, N); }
