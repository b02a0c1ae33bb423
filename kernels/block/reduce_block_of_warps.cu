/*+++
title      = "One block made of warps"
change     = "Each warp folds its own 32 cells, then the first warp folds what the warps left, by the same code."
expect     = "One block barrier instead of eleven; the loop over the input is unchanged, so little on large inputs."
after      = "reduce_single_block"
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 1024
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "multi_add", "warp_unroll"]
+++*/
// The tree of a block meets at a barrier after every step. A warp that folds 32 cells of its own needs
// only its own lanes, so the block waits once: before the first warp gathers the warps' partials, 32
// cells apart and so all from one bank. In a step lane t < s reads cells t and t + s and writes t:
// nobody writes what another reads, so one __syncwarp() a step will do.
__device__ void fold_warp(Acc *cells, unsigned lane)
{
#pragma unroll
    for (unsigned stride = 16; stride > 0; stride /= 2) {
        if (lane < stride)
            cells[lane] = Op::combine(cells[lane], cells[lane + stride]);
        __syncwarp();
    }
}

extern "C" __global__ void reduce_block_of_warps(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x, lane = tid % 32;

    // Load: a thread with nothing to add brings the identity, so the tree needs no bounds.
    // Signed indices cannot wrap, so the compiler counts the rounds and unrolls them, loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncwarp();

    // Tree: inside each warp, then across the warps' partials. No lane overwrites a cell that another
    // gathers: of cells 0 to 31 only cell 0 is gathered, by lane 0 itself.
    fold_warp(shared + (tid - lane), lane);
    __syncthreads();
    if (tid < 32) {
        shared[lane] = lane < BLOCK / 32 ? shared[lane * 32] : Op::identity();
        __syncwarp();
        fold_warp(shared, lane);
    }

    // Write: the one answer.
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
