// expected: right  shape: strides of a grid, unrolled by a number of the template that no launch gives
template <typename T, int UNROLL>
__global__ void add_all(const T *__restrict__ values, T *__restrict__ total, int n)
{
    const int stride = gridDim.x * blockDim.x;
    T sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += UNROLL * stride) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (i + k * stride < n) sum += values[i + k * stride];
    }
    atomicAdd(total, sum);
}
