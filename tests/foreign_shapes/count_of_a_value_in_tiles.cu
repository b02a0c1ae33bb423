// expected: right  if: n is a multiple of 256  shape: a count of a value in whole tiles
__global__ void occurrences(const int *values, int *partials, const int wanted)
{
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (values[blockIdx.x * blockDim.x + threadIdx.x] == wanted) atomicAdd(&found, 1);
    __syncthreads();
    if (threadIdx.x == 0) partials[blockIdx.x] = found;
}

int main()
{
    int *values, *partials, n = 1 << 20;
    cudaMalloc(&values, n * sizeof(int));
    cudaMalloc(&partials, n / 256 * sizeof(int));
    occurrences<<<n / 256, 256>>>(values, partials, 7);
}
