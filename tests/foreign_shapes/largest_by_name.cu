// expected: right  if: one of its elements is finite and a NaN may be dropped  shape: a maximum, as its name says; a NaN is dropped
#include <cfloat>

__global__ void reduce_max(const float *values, float *largest, int count)
{
    extern __shared__ float cell[];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : -FLT_MAX;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] = fmaxf(cell[threadIdx.x], cell[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) largest[blockIdx.x] = cell[0];
}
