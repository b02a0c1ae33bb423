#include <cub/cub.cuh>

template <int THREADS>
__global__ void blockSum(const int* values, int* total, int n) {
    using Reduce = cub::BlockReduce<int, THREADS>;
    __shared__ typename Reduce::TempStorage storage;
    int v = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += THREADS * gridDim.x) v += values[i];
    int sum = Reduce(storage).Sum(v);
    if (threadIdx.x == 0) atomicAdd(total, sum);
}

template __global__ void blockSum<128>(const int*, int*, int);
