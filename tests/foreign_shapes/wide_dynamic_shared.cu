// expected: right  shape: floats are added up in doubles, in shared memory that the launch gives its size
__global__ void wide(const float *in, double *out, int n)
{
    extern __shared__ double cells[];
    double a = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a += in[i];
    cells[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) cells[threadIdx.x] += cells[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) atomicAdd(out, cells[0]);
}
