// expected: wrong  shape: threads beyond the input leave before the barrier of their grid, whose launch nobody says
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void add_all(const int *values, int *total, int n)
{
    cg::grid_group grid = cg::this_grid();
    unsigned long long i = grid.thread_rank();
    if (i == 0) *total = 0;
    if (i >= n) return;
    grid.sync();
    int sum = 0;
    for (; i < n; i += grid.size()) sum += values[i];
    atomicAdd(total, sum);
}
