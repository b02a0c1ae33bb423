// expected: right  shape: elements are copied to shared memory, and squared there
__global__ void squares(const float *in, float *out, int n)
{
    extern __shared__ float part[];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = at < n ? in[at] : 0.0f;
    part[threadIdx.x] *= part[threadIdx.x];
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}
