// expected: right
// The author's Makefile has -DBLOCK_SIZE=128 -DITEMS_PER_THREAD=8.
__global__ void sum_coarse(const float *x, float *total, int n)
{
    __shared__ float s[BLOCK_SIZE];
    int i = blockIdx.x * BLOCK_SIZE * ITEMS_PER_THREAD + threadIdx.x;
    float mine = 0.0f;
    for (int k = 0; k < ITEMS_PER_THREAD; k++, i += BLOCK_SIZE)
        if (i < n)
            mine += x[i];
    s[threadIdx.x] = mine;
    for (int stride = BLOCK_SIZE / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride)
            s[threadIdx.x] += s[threadIdx.x + stride];
    }
    if (threadIdx.x == 0)
        atomicAdd(total, s[0]);
}

int main()
{
    sum_coarse<<<100, BLOCK_SIZE>>>(x, total, 100 * BLOCK_SIZE * ITEMS_PER_THREAD);
}
