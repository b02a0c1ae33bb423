#include <cuda_runtime.h>

__global__ void sumVec4(const float* x, float* out, int n) {
    __shared__ float s[256];
    const float4* x4 = reinterpret_cast<const float4*>(x);
    int n4 = n / 4, id = blockIdx.x * 256 + threadIdx.x;
    float v = 0;
    for (int i = id; i < n4; i += gridDim.x * 256) {
        float4 q = x4[i];
        v += (q.x + q.y) + (q.z + q.w);
    }
    if (id < n - 4 * n4) v += x[4 * n4 + id];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, s[0]);
}

void sumFloats(const float* x, float* out, int n) {
    cudaMemset(out, 0, sizeof(float));
    sumVec4<<<80, 256>>>(x, out, n);
}
