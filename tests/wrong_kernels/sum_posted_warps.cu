/*+++
title  = "Warps post their sums"
change = "Instead of a barrier each warp raises a flag in shared memory, and the first warp waits for the flags."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 32
finish = "relaunch"
block  = 512
blocks = [64, 128, 256, 512, 1024]
dtypes = ["float32", "int32"]
ops    = ["sum"]
+++*/
// Fault: no __threadfence_block() stands between a warp's sum and its flag, nor between the flag's sight
// and the sum's reading, and the sums are not volatile: compiler and hardware may show the flag first.
// The author found that the slowest warp need not hold up the others at a barrier. Shared memory keeps
// a thread's stores in order today, so only another compiler or GPU shows it.
extern "C" __global__ void sum_posted_warps(const In *in, Out *out, size_t n)
{
    __shared__ Acc sums[BLOCK / 32];
    __shared__ volatile int posted[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    if (tid < BLOCK / 32)
        posted[tid] = 0;
    __syncthreads();

    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;
    Acc sum = 0;
#pragma unroll 8
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = i + (size_t)item * BLOCK;
        if (k < n)
            sum += in[k];
    }
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);

    if (lane == 0) {
        sums[warp] = sum;
        posted[warp] = 1;
    }
    if (warp == 0) {
        sum = 0;
        if (lane < BLOCK / 32) {
            while (!posted[lane])
                ;
            sum = sums[lane];
        }
        __syncwarp();
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, offset);
        if (lane == 0)
            out[blockIdx.x] = sum;
    }
}
