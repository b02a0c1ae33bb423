// expected: right  shape: a whole grid that meets, and keeps its partials in the output
#include <cooperative_groups.h>

__global__ void meet(const float *values, float *out, unsigned count)
{
    auto grid = cooperative_groups::this_grid();
    extern __shared__ float cell[];
    float mine = 0;
    for (size_t k = grid.thread_rank(); k < count; k += grid.size()) mine += values[k];
    cell[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = cell[0];
    grid.sync();
    if (grid.thread_rank() != 0) return;
    for (unsigned k = 1; k < gridDim.x; ++k) mine = k == 1 ? out[0] + out[1] : mine + out[k];
    if (gridDim.x > 1) out[0] = mine;
}
