// expected: refused  shape: the first line is a magic word of a notebook
%%writefile sum.cu
__global__ void add_all(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}
