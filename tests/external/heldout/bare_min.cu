extern "C" __global__ void lowest(int* where, const int* from, int howMany)
{
    int best = 2147483647;
    for (int p = blockDim.x * blockIdx.x + threadIdx.x; p < howMany; p += gridDim.x * blockDim.x)
        if (from[p] < best) best = from[p];
    atomicMin(where, best);
}
