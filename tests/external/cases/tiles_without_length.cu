// Expected: right if n is a multiple of 512. The kernel is not told the length, so its author launches whole tiles.
#include <cuda_runtime.h>
#include <vector>

__global__ void add(const int *in, int *partial)
{
    __shared__ int s[256];
    int t = threadIdx.x, i = 2 * blockIdx.x * blockDim.x + t;
    s[t] = in[i] + in[i + blockDim.x];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    if (t == 0) partial[blockIdx.x] = s[0];
}

int main()
{
    int n = 1 << 20, blocks = (n + 511) / 512, sum = 0;
    std::vector<int> in(n, 1), partial(blocks);
    int *x, *y;
    cudaMalloc(&x, n * sizeof(int));
    cudaMalloc(&y, blocks * sizeof(int));
    cudaMemcpy(x, in.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    add<<<blocks, 256>>>(x, y);
    cudaMemcpy(partial.data(), y, blocks * sizeof(int), cudaMemcpyDeviceToHost);
    for (int one : partial) sum += one;
    return sum != n;
}
