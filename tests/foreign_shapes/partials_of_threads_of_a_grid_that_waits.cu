// expected: right  shape: a partial of each thread of a grid that waits, all of which one of them adds up
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void add_all(const float *values, float *partials, float *total, int n)
{
    auto grid = cg::this_grid();
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += values[i];
    partials[grid.thread_rank()] = sum;
    grid.sync();
    if (grid.thread_rank() > 0) return;
    sum = 0;
    for (int k = 0; k < grid.size(); k++) sum += partials[k];
    *total = sum;
}

int main()
{
    float *values, *partials, *total;
    int n = 10000;
    void *arguments[] = {&values, &partials, &total, &n};
    cudaLaunchCooperativeKernel((void *)add_all, dim3(16), dim3(128), arguments);
}
