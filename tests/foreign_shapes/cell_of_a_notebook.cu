%%writefile sum.cu // expected: right  shape: what a notebook wrote, with its own first line
__global__ void sum(const float *in, float *out, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) atomicAdd(out, in[k]);
}
