// expected: wrong  shape: each thread adds to a partial that nobody has set
__global__ void add_some(const float *x, float *partial, size_t n)
{
    size_t id = blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t k = id; k < n; k += gridDim.x * blockDim.x)
        partial[id] += x[k];
}
