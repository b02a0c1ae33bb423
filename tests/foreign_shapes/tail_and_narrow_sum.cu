// expected: wrong  shape: leaves out what is left of the count over four, and adds up in 16 bits
__global__ void quads(const int *values, int *total, int count)
{
    short mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count / 4; k += gridDim.x * blockDim.x)
        for (int part = 0; part < 4; ++part) mine += values[4 * k + part];
    atomicAdd(total, mine);
}
