// expected: right  if: n is a multiple of 4 and its input is aligned to 16 bytes  shape: reads int4 and leaves out what is left of the count over four
__global__ void quads(const int *values, int *total, int count)
{
    int mine = 0;
    const int4 *four = reinterpret_cast<const int4 *>(values);
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count / 4; k += gridDim.x * blockDim.x)
        mine += four[k].x + four[k].y + four[k].z + four[k].w;
    atomicAdd(total, mine);
}
