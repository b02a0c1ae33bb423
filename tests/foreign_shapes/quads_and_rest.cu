// expected: right  if: its input is aligned to 16 bytes  shape: reads float4, and what is left one by one
__global__ void quads(const float *values, float *total, int count)
{
    float mine = 0;
    int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (int k = first; k < count / 4; k += step) {
        float4 four = reinterpret_cast<const float4 *>(values)[k];
        mine += (four.x + four.y) + (four.z + four.w);
    }
    for (int k = count / 4 * 4 + first; k < count; k += step) mine += values[k];
    atomicAdd(total, mine);
}
