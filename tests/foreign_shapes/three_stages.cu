// expected: right  shape: three stages, the last without a count, and a number of blocks that the kernels reckon with
#include <cstdio>
#define BLOCKS 64
#define THREADS 256
template <typename T, int blockSize>
__global__ void first(const T *in, T *partial, int n)
{
    __shared__ T cell[blockSize];
    T own = 0;
    for (int k = blockIdx.x * blockSize + threadIdx.x; k < n; k += BLOCKS * blockSize) own += in[k];
    cell[threadIdx.x] = own;
    __syncthreads();
    for (int s = blockSize / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) cell[threadIdx.x] += cell[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = cell[0];
}
template <typename T>
__global__ void middle(const T *in, T *partial, int n)
{
    T own = 0;
    if (threadIdx.x == 0) for (int k = blockIdx.x * 16; k < n && k < blockIdx.x * 16 + 16; ++k) own += in[k];
    if (threadIdx.x == 0) partial[blockIdx.x] = own;
}
template <typename T>
__global__ void final_sum(T *partial, T *out)
{
    __shared__ T cell[4];
    cell[threadIdx.x] = partial[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) out[0] = cell[0] + cell[1] + cell[2] + cell[3];
}
int main(int argc, char **argv)
{
    int n = 1 << 20;
    if (argc > 1) n = atoi(argv[1]);
    float *d_in, *d_partial, *d_mid, *d_out;
    dim3 grid(BLOCKS);
    first<float, THREADS><<<grid, THREADS>>>(d_in, d_partial, n);
    middle<float><<<BLOCKS / 16, 16>>>(d_partial, d_mid, BLOCKS);
    final_sum<float><<<1, BLOCKS / 16>>>(d_mid, d_out);
}
