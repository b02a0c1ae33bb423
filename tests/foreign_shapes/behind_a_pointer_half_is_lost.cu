// expected: wrong  shape: launched by pointers in a table, in blocks of which it loses half
// says: (block, items, grid, shared: its launch, line
__global__ void in_turns(const float *values, float *partials, int n)
{
    extern __shared__ float sums[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sums[t] = i < n ? values[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (t < step) sums[t] += sums[t + step];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

__global__ void by_the_warp(const float *values, float *partials, int n)
{
    extern __shared__ float sums[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sums[t] = i < n ? values[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 32; step /= 2) {
        if (t < step) sums[t] += sums[t + step];
        __syncthreads();
    }
    if (t >= 32) return;
    float sum = sums[t];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (t == 0) partials[blockIdx.x] = sum;
}

int main()
{
    struct { const char *name; void (*kernel)(const float *, float *, int); } steps[] = {
        {"in turns", in_turns}, {"by the warp", by_the_warp}};
    float *values, *partials;
    int n = 1 << 20, threads = 256;
    for (auto &step : steps)
        step.kernel<<<(n + threads - 1) / threads, threads, threads * sizeof(float)>>>(values, partials, n);
}
