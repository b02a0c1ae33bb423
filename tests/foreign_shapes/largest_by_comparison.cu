// expected: right  if: none of its elements is NaN  shape: what becomes of a NaN depends on its place
__global__ void maxima(const float *values, float *largest, int count)
{
    __shared__ float cell[256];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = place < count ? values[place] : -INFINITY;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float mine = cell[threadIdx.x], other = cell[threadIdx.x + half];
            cell[threadIdx.x] = mine > other ? mine : other;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) largest[blockIdx.x] = cell[0];
}
