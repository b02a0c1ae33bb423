// expected: right  shape: a block of two dimensions, whose threads count as one row
__global__ void sum(const float *in, float *out, int n)
{
    __shared__ float s[256];
    int tid = threadIdx.y * blockDim.x + threadIdx.x;
    int i = blockIdx.x * (blockDim.x * blockDim.y) + tid;
    s[tid] = i < n ? in[i] : 0.f;
    __syncthreads();
    for (int k = blockDim.x * blockDim.y / 2; k; k /= 2) { if (tid < k) s[tid] += s[tid + k]; __syncthreads(); }
    if (tid == 0) atomicAdd(out, s[0]);
}
void run(const float *in, float *out, int n) { dim3 block(32, 8); sum<<<(n + 255) / 256, block>>>(in, out, n); }
