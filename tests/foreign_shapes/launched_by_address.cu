// expected: right  shape: a grid that waits, launched by the address of its kernel and of its arguments
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void add_all(const double *values, double *partials, double *total, int n)
{
    cg::grid_group grid = cg::this_grid();
    extern __shared__ double sums[];
    double sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += values[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = sums[0];
    grid.sync();
    if (grid.thread_rank() == 0) {
        sum = 0;
        for (int k = 0; k < 24; k++) sum += partials[k];
        *total = sum;
    }
}

void launch(double *values, double *partials, double *total, int n)
{
    dim3 blocks(24), threads(128);
    void *arguments[] = {(void *)&values, (void *)&partials, (void *)&total, (void *)&n};
    size_t bytes = 128 * sizeof(double);
    cudaLaunchCooperativeKernel((void *)add_all, blocks, threads, arguments, bytes, 0);
}
