// expected: right  shape: what a further argument is where nobody gives it one
__global__ void add_all(const float *values, float *total, int count, bool twice = false)
{
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, twice ? 2 * values[place] : values[place]);
}
