// expected: wrong  shape: of as many blocks as are launched those without elements leave before all meet
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void add_up(const int *values, int *total, int n)
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

void solve(int *values, int *total, int n) { add_up<<<64, 256>>>(values, total, n); }
