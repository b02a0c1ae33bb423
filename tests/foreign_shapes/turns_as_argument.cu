// expected: right  if: n is a multiple of 256  shape: turns of one block, which nobody passes
__global__ void add_in_turns(const float *values, float *sum, int n, int turns)
{
    __shared__ float parts[256];
    float mine = 0;
    for (int turn = 0; turn < turns; ++turn) mine += values[turn * 256 + threadIdx.x];
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0 && n > 0) *sum = parts[0];
}
