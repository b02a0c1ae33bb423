// expected: right  shape: partials, an answer and a counter are three pointers; a value to begin with
__global__ void total(const float *values, float *partials, unsigned *ticket, float *total,
                      float init, int count)
{
    __shared__ float cell[1024];
    float mine = init;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        mine += values[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    partials[blockIdx.x] = cell[0];
    __threadfence();
    if (atomicAdd(ticket, 1u) != gridDim.x - 1) return;
    __threadfence();
    float all = init;
    for (unsigned k = 0; k < gridDim.x; ++k) all += ((volatile float *)partials)[k];
    *total = all;
}
