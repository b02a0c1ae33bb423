// expected: wrong  shape: who is the last block is looked up without an atomic operation, and counted by one
__device__ int count;
__global__ void total(const float *in, float *parts, float *out, int n)
{
    __shared__ float s[128];
    __shared__ bool last;
    float a = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) a += in[i];
    s[threadIdx.x] = a; __syncthreads();
    for (int k = 64; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = s[0];
        __threadfence();
        last = count == gridDim.x - 1;
        if (last) atomicExch(&count, 0); else atomicAdd(&count, 1);
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float t = 0;
        for (int b = 0; b < gridDim.x; b++) t += parts[b];
        *out = t;
    }
}
