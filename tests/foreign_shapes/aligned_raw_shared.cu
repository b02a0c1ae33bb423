// expected: right  shape: dynamic shared memory of bytes with an alignment between its words
template <typename T>
__global__ void reduce(const T *x, const T *y, T *r, int n)
{
    extern __shared__ __align__(sizeof(T)) unsigned char raw[];
    T *cell = reinterpret_cast<T *>(raw);
    T sum = T(0);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        sum += x[i] * y[i];
    cell[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s)
            cell[threadIdx.x] += cell[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        r[blockIdx.x] = cell[0];
}
