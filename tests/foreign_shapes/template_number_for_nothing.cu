// expected: right
template <typename T, unsigned block_size, unsigned first>
__global__ void plain(const T *values, T *partials, unsigned n)
{
    __shared__ T sums[block_size];
    const unsigned place = blockIdx.x * block_size + threadIdx.x;
    sums[threadIdx.x] = place < n ? values[place] : T(0);
    __syncthreads();
    for (unsigned step = block_size / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = sums[0];
}
