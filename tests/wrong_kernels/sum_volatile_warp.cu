/*+++
title  = "Last warp unrolled, volatile"
change = "The last 64 partials are folded by one warp without barriers, through a volatile pointer."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 2
finish = "relaunch"
block  = 256
blocks = [64, 128, 256, 512, 1024]
dtypes = ["float32", "int32", "uint32"]
ops    = ["sum"]
+++*/
// Fault: volatile makes each lane load and store as written, but since Volta nothing keeps the lanes of a
// warp in step: lane t may read cell t + 16 before or after lane t + 16 has gone through its own steps.
// The code is the textbook's of 2007, when it was right. No __syncwarp(); shows by chance, when compiler
// or scheduler split the warp.
__device__ void last_warp(volatile Acc *cells, unsigned tid)
{
    cells[tid] = cells[tid] + cells[tid + 32];
    cells[tid] = cells[tid] + cells[tid + 16];
    cells[tid] = cells[tid] + cells[tid + 8];
    cells[tid] = cells[tid] + cells[tid + 4];
    cells[tid] = cells[tid] + cells[tid + 2];
    cells[tid] = cells[tid] + cells[tid + 1];
}

extern "C" __global__ void sum_volatile_warp(const In *g_idata, Out *g_odata, size_t n)
{
    __shared__ Acc sdata[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc sum = 0;
    for (unsigned item = 0; item < ITEMS; item++)
        if (i + item * BLOCK < n)
            sum += g_idata[i + item * BLOCK];
    sdata[tid] = sum;
    __syncthreads();

    if (BLOCK >= 1024) { if (tid < 512) sdata[tid] += sdata[(tid + 512) % BLOCK]; __syncthreads(); }
    if (BLOCK >= 512) { if (tid < 256) sdata[tid] += sdata[(tid + 256) % BLOCK]; __syncthreads(); }
    if (BLOCK >= 256) { if (tid < 128) sdata[tid] += sdata[(tid + 128) % BLOCK]; __syncthreads(); }
    if (BLOCK >= 128) { if (tid < 64) sdata[tid] += sdata[(tid + 64) % BLOCK]; __syncthreads(); }
    if (tid < 32)
        last_warp(sdata, tid);
    if (tid == 0)
        g_odata[blockIdx.x] = sdata[0];
}
