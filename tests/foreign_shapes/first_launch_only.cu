// expected: wrong  shape: what a launch leaves behind is added to the answer of the next
__device__ int before;

__global__ void sums(const int *values, int *total, int count)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x, mine = k < count ? values[k] : 0;
    if (k == 0) mine += before;
    if (k == 0) before = 1;
    atomicAdd(total, mine);
}
