// expected: right  shape: each thread takes as many elements as a constant of its kernel says
__global__ void add_seven(const int *in, int *sum, int n)
{
    const int EACH = 7;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * EACH, s = 0;
    for (int k = first; k < first + EACH && k < n; k++)
        s += in[k];
    atomicAdd(sum, s);
}
