// expected: right  if: n is a multiple of 256  shape: takes any count, but its host launches no block for what is left over a tile
__global__ void sum(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0.0f;
    for (int k = 16; k > 0; k /= 2)
        v += __shfl_down_sync(0xffffffff, v, k);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, v);
}
void run(const float *in, float *out, int n)
{
    const int threads = 256;
    int blocks = n / threads;
    sum<<<blocks, threads>>>(in, out, n);
}
