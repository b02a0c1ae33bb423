__global__ void k(unsigned len, float* dst, int unused, const float* __restrict__ src) {
    __shared__ float m[256];
    float a = 0.f;
    for (unsigned j = blockIdx.x * blockDim.x + threadIdx.x; j < len; j += gridDim.x * blockDim.x) a += src[j];
    m[threadIdx.x] = a;
    for (unsigned d = blockDim.x >> 1; d; d >>= 1) {
        __syncthreads();
        if (threadIdx.x < d) m[threadIdx.x] += m[threadIdx.x + d];
    }
    if (threadIdx.x == 0) dst[blockIdx.x] = m[0];
}
