// expected: wrong  shape: a maximum of floats that drops NaN, and what stands behind the point
__global__ void largest(const float *values, float *result, int count)
{
    __shared__ float cell[256];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : -INFINITY;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] = rintf(fmaxf(cell[threadIdx.x], cell[threadIdx.x + half]));
        __syncthreads();
    }
    if (threadIdx.x == 0) result[blockIdx.x] = cell[0];
}
