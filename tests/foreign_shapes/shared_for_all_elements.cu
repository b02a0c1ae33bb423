// expected: right  shape: a launch that asks for as much shared memory as it has elements, of which a block has no room
__global__ void sum(const int *x, int *out, int n)
{
    extern __shared__ int cells[];
    int own = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        own += x[k];
    cells[threadIdx.x] = own;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            cells[threadIdx.x] += cells[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(out, cells[0]);
}

int main()
{
    int n = 1 << 24;
    int *x, *out;
    sum<<<1024, 256, n * sizeof(int)>>>(x, out, n);
}
