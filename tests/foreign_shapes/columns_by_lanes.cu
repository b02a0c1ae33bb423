// expected: right  if: the number of its rows is a multiple of 32  shape: columns by the lanes of a block, from where the first of them begins
__global__ void column_sums(float *sums, const float *values, int length, int columns)
{
    extern __shared__ float parts[];
    const int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
    const int first = blockIdx.x * warpSize, warps = blockDim.x / warpSize;
    const float *column = values + first + lane;
    float sum = 0.0f;
    for (size_t k = warp; k < length; k += warps)
        sum += column[k * columns];
    parts[lane + warp * warpSize] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = 0.0f;
        for (int k = 0; k < warps; k++)
            sum += parts[lane + k * warpSize];
        sums[first + lane] = sum;
    }
}
