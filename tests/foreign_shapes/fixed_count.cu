// expected: wrong  shape: no count among its parameters: whatever is behind 65536 is left out
const int TOTAL = 65536;

__global__ void add_fixed(const int *values, int *total)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < TOTAL) atomicAdd(total, values[place]);
}
