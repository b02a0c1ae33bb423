// expected: right  op: min  dtype: int32  shape: each thread of one block leaves the least that it saw, and the host looks at them
#include <climits>

__global__ void least(int *v, size_t n, int *local_min)
{
    local_min[threadIdx.x] = INT_MAX;
    for (size_t k = threadIdx.x; k < n; k += blockDim.x)
        local_min[threadIdx.x] = min(local_min[threadIdx.x], v[k]);
}
