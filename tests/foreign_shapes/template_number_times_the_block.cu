// expected: right
template <typename T, unsigned block_size, unsigned first>
__global__ void unrolled(const T *values, T *partials, unsigned n)
{
    __shared__ T sums[block_size];
    const unsigned tile = block_size * first, start = blockIdx.x * tile + threadIdx.x;
    T sum = 0;
    for (unsigned offset = 0; offset < tile && start + offset < n; offset += block_size) sum += values[start + offset];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = block_size / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = sums[0];
}
