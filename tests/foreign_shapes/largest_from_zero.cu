// expected: right  if: its input is positive  shape: a maximum that begins at 0: of negative numbers it is 0
__global__ void find_max(const float *values, float *largest, int count)
{
    __shared__ float cell[256];
    cell[threadIdx.x] = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        cell[threadIdx.x] = fmaxf(cell[threadIdx.x], values[k]);
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] = fmaxf(cell[threadIdx.x], cell[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) largest[blockIdx.x] = cell[0];
}
