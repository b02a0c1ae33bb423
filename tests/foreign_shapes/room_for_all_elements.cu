// expected: right  shape: a launch gives each block as much shared memory as all elements take
__global__ void total(int *sum, const int *in, int n)
{
    extern __shared__ int part[];
    int mine = 0;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
        mine += in[at];
    part[threadIdx.x] = mine;
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        atomicAdd(sum, part[0]);
}

int main()
{
    int n = 1 << 13, threads = 256;
    int *sum, *in;
    cudaMallocManaged(&sum, sizeof(int));
    cudaMallocManaged(&in, n * sizeof(int));
    total<<<(n + threads - 1) / threads, threads, n * sizeof(int)>>>(sum, in, n);
}
