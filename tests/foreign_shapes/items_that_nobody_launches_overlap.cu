// expected: wrong  shape: a number of elements a thread that no launch gives, with steps of one where blocks are apart
template <int BLOCK_THREADS, int ITEMS_PER_THREAD>
__global__ void add_tiles(const float *values, float *total, int n)
{
    float sum = 0;
    int first = blockIdx.x * BLOCK_THREADS * ITEMS_PER_THREAD + threadIdx.x;
    for (int k = 0; k < ITEMS_PER_THREAD; k++)
        if (first + k < n) sum += values[first + k];
    atomicAdd(total, sum);
}
