// expected: right  shape: a minimum, which only what it calls tells
__device__ int lesser(int left, int right) { return left < right ? left : right; }
#define MIN(a, b) lesser(a, b)

__global__ void reduction(const int *values, int *found, int count)
{
    extern __shared__ int tile[];
    int mine = 2147483647;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine = MIN(mine, values[k]);
    tile[threadIdx.x] = mine;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) tile[threadIdx.x] = MIN(tile[threadIdx.x], tile[threadIdx.x + step]);
    }
    if (threadIdx.x == 0) found[blockIdx.x] = tile[0];
}
