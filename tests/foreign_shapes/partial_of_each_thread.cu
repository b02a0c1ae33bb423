// expected: right  shape: each thread of the grid leaves a partial, and the host adds them
__global__ void add_some(const float *x, float *partial, size_t n)
{
    size_t id = blockIdx.x * blockDim.x + threadIdx.x;
    partial[id] = 0.0f;
    for (size_t k = id; k < n; k += gridDim.x * blockDim.x)
        partial[id] += x[k];
}

int main()
{
    add_some<<<64, 128>>>(0, 0, 1 << 20);
}
