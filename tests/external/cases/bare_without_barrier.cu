// A kernel without host code: the barrier in its loop is missing.
__global__ void block_sum(const float *in, float *out, int n)
{
    __shared__ float part[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2)
        if (threadIdx.x < s)
            part[threadIdx.x] += part[threadIdx.x + s];
    if (threadIdx.x == 0)
        atomicAdd(out, part[0]);
}
