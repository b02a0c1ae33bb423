// expected: right  shape: threads add to a partial of their block, which the host clears before
__global__ void add(const float *x, float *partials, int n)
{
    float sum = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        sum += x[k];
    atomicAdd(&partials[blockIdx.x], sum);
}

int main()
{
    int n = 1 << 20, blocks = 128;
    float *x, *partials;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&partials, blocks * sizeof(float));
    cudaMemset(partials, 0, blocks * sizeof(float));
    add<<<blocks, 256>>>(x, partials, n);
}
