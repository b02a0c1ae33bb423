// expected: right  shape: the answer is added to a variable of the file, which the host reads by its name
#include <stdio.h>
__device__ float total = 0.0f;
__global__ void add(const float *in, int n)
{
    __shared__ float s[256];
    float a = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a += in[i];
    s[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) atomicAdd(&total, s[0]);
}
int main()
{
    float answer = 0.0f;
    cudaMemcpyToSymbol(total, &answer, sizeof answer);
    add<<<64, 256>>>(nullptr, 1 << 20);
    cudaMemcpyFromSymbol(&answer, total, sizeof answer);
    printf("%f\n", answer);
}
