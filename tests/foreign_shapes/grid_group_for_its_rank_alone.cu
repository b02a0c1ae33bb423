// expected: right  shape: the group of the grid tells where a thread is, and partials are those of blocks
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void partials_of(const float *values, float *partials, int n)
{
    cg::thread_block block = cg::this_thread_block();
    cg::grid_group grid = cg::this_grid();
    __shared__ float sums[256];
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += values[i];
    sums[block.thread_rank()] = sum;
    block.sync();
    for (unsigned step = 128; step; step /= 2) {
        if (block.thread_rank() < step) sums[block.thread_rank()] += sums[block.thread_rank() + step];
        block.sync();
    }
    if (block.thread_rank() == 0) partials[blockIdx.x] = sums[0];
}

int main()
{
    float *values, *partials, *total;
    partials_of<<<64, 256>>>(values, partials, 60000);
    partials_of<<<1, 256>>>(partials, total, 64);
}
