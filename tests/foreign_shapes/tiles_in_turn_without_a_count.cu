// expected: right  if: n is a multiple of 1024  shape: as many tiles a block as a constant says, a grid apart, and no count
#define TILES 8
#define THREADS 128

__global__ void add_tiles(const float *in, float *sum)
{
    __shared__ float part[THREADS];
    int tid = threadIdx.x, first = blockIdx.x * THREADS + tid, stride = gridDim.x * THREADS;
    part[tid] = 0.0f;
    for (int tile = 0; tile < TILES; tile++)
        part[tid] += in[first + tile * stride];
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (tid < s)
            part[tid] += part[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        atomicAdd(sum, part[0]);
}
