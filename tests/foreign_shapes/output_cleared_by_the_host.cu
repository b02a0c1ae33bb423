// expected: right  shape: one block that adds its sum to an output which the host has cleared
#include <cuda_runtime.h>
__global__ void sum(const float *in, float *out, int n)
{
    __shared__ float cell[256];
    float v = 0;
    for (int k = threadIdx.x; k < n; k += 256)
        v += in[k];
    cell[threadIdx.x] = v;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *out += cell[0];
}

int main()
{
    float *in, *out;
    cudaMemset(out, 0, sizeof(float));
    sum<<<1, 256>>>(in, out, 1000);
}
