// expected: right  shape: a kernel for clusters, launched without one
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void through_clusters(const int *values, int *sum, int count)
{
    __shared__ int cell;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) cell = 0;
    cluster.sync();
    int *home = cluster.map_shared_rank(&cell, 0);
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        atomicAdd(home, values[k]);
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) atomicAdd(sum, cell);
}
