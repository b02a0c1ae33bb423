/*+++
title      = "Halving tree over bit-reversed cells"
change     = "Element i of a tile goes to the cell whose number is i with its bits reversed, so a halving tree keeps the order."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
order      = "kept"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "order_kept"]
+++*/
// Right: cells t and t + BLOCK/2 hold elements r and r + 1, after one step cells t and t + BLOCK/4 hold the
// pairs from r and from r + 2, and so on: the lower cell is always the left neighbour.
__device__ constexpr unsigned log2_of(unsigned x) { return x == 1 ? 0 : 1 + log2_of(x / 2); }

extern "C" __global__ void reduce_bit_reversed(const In *in, Out *out, size_t n)
{
    static_assert((BLOCK & (BLOCK - 1)) == 0, "bits are reversed in a power of two");
    constexpr unsigned UNUSED_BITS = 32 - log2_of(BLOCK);
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + tid;

    cells[__brev(tid) >> UNUSED_BITS] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
