/*+++
title      = "Grid barrier with a sense"
change     = "Eight blocks halve their partials among themselves, block by block, with a sense-reversing barrier of the grid between steps."
scope      = "grid"
grid       = "fixed"
fixed_grid = 8
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// Right: where all eight blocks are resident together, as on any GPU that is otherwise idle (a cooperative
// launch would vouch for it). A block reads the sense before it arrives, so it cannot miss the flip.
__device__ unsigned arrived;
__device__ volatile unsigned sense;

__device__ void meet_grid()
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before = sense;
        __threadfence();
        if (atomicAdd(&arrived, 1u) == gridDim.x - 1) {
            atomicExch(&arrived, 0u);
            __threadfence();
            sense = before ^ 1;
        } else {
            while (sense == before)
                ;
            __threadfence();
        }
    }
    __syncthreads();
}

extern "C" __global__ void reduce_sense_reversal(const In *in, Out *out, size_t n, Acc *partials,
                                                 unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        partials[blockIdx.x] = shared[0];

    for (unsigned live = gridDim.x; live > 1; live = (live + 1) / 2) {
        meet_grid();
        const unsigned upper = (live + 1) / 2 + blockIdx.x;
        if (tid == 0 && upper < live)
            partials[blockIdx.x] = Op::combine(partials[blockIdx.x], __ldcg(partials + upper));
    }
    if (blockIdx.x == 0 && tid == 0)
        *out = Op::finish(partials[0]);
}
