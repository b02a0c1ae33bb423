/*+++
title      = "Whole tile staged in shared memory"
change     = "A block copies its whole tile to shared memory first and folds it from there."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 32
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512]
techniques = ["shared_accumulation", "no_bank_conflict"]
+++*/
// Fault: BLOCK * ITEMS accumulators must fit in 48 KiB of static shared memory. 8192 floats do; doubles,
// 64-bit integers, value and index, and blocks of 512 do not, and are refused when they are built.
extern "C" __global__ void staged_tile_shared(const In *in, Out *out, size_t n)
{
    __shared__ Acc tile[BLOCK * ITEMS];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);

#pragma unroll 8
    for (unsigned j = tid; j < BLOCK * ITEMS; j += BLOCK)
        tile[j] = first + j < n ? Op::lift(in[first + j], first + j) : Op::identity();

    Acc value = tile[tid];
    for (unsigned j = tid + BLOCK; j < BLOCK * ITEMS; j += BLOCK)
        value = Op::combine(value, tile[j]);
    tile[tid] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            tile[tid] = Op::combine(tile[tid], tile[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(tile[0]);
}
