// expected: right  shape: a grid that waits, launched by address with as many blocks as the device holds
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void add_all(const float *values, float *partials, float *total, int n)
{
    cg::grid_group grid = cg::this_grid();
    __shared__ float sums[256];
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += values[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = sums[0];
    grid.sync();
    if (grid.thread_rank() > 0) return;
    sum = 0;
    for (int k = 0; k < gridDim.x; k++) sum += partials[k];
    *total = sum;
}

int main()
{
    float *values, *partials, *total;
    int n = 1 << 24, processors, each;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, add_all, 256, 0);
    void *arguments[] = {&values, &partials, &total, &n};
    cudaLaunchCooperativeKernel((void *)add_all, dim3(processors * each), dim3(256), arguments);
}
