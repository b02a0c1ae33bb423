/*+++
title      = "Last warp on volatile cells"
change     = "The old volatile tail of the tree, with the warp barriers that it needs since lanes may run apart."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 2
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "first_add", "warp_unroll", "template_unroll"]
ops        = ["sum", "prod", "min", "max", "mean"]
+++*/
// Right: a barrier of the warp stands between each step's reads and its writes and again before the next
// reads; volatile alone would order nothing, and does no harm beside them.
__device__ void fold_tail(volatile Scalar *cells, unsigned lane)
{
#pragma unroll
    for (unsigned reach = 32; reach >= 1; reach >>= 1) {
        const Scalar mine = cells[lane], other = cells[lane + reach];
        __syncwarp();
        cells[lane] = Op::combine(mine, other);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_volatile_warp(const In *in, Out *out, size_t n)
{
    __shared__ Scalar cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * BLOCK * ITEMS + tid;
    Scalar value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++)
        if (begin + item * BLOCK < n)
            value = Op::combine(value, Op::lift(in[begin + item * BLOCK], begin + item * BLOCK));
    cells[tid] = value;
    __syncthreads();
    if (BLOCK >= 1024) { if (tid < 512) cells[tid] = Op::combine(cells[tid], cells[(tid + 512) % BLOCK]); __syncthreads(); }
    if (BLOCK >= 512) { if (tid < 256) cells[tid] = Op::combine(cells[tid], cells[(tid + 256) % BLOCK]); __syncthreads(); }
    if (BLOCK >= 256) { if (tid < 128) cells[tid] = Op::combine(cells[tid], cells[(tid + 128) % BLOCK]); __syncthreads(); }
    if (BLOCK >= 128) { if (tid < 64) cells[tid] = Op::combine(cells[tid], cells[(tid + 64) % BLOCK]); __syncthreads(); }
    if (tid < 32)
        fold_tail(cells, tid);
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
