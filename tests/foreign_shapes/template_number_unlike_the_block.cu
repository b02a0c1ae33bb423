// expected: wrong  shape: half of a block is left out, since its launch names another number of threads
template <int THREADS>
__global__ void block_sums(const float *values, float *sums, int n)
{
    __shared__ float cache[256];
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    cache[threadIdx.x] = place < n ? values[place] : 0.0f;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) cache[threadIdx.x] += cache[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = cache[0];
}

void solve(float *values, float *sums, int n) { block_sums<128><<<(n + 255) / 256, 256>>>(values, sums, n); }
