/*+++
title      = "Four elements ahead in registers"
change     = "A thread holds its next four elements in registers and refills each as soon as it is used."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
+++*/
// Right: slot d holds the element of the round's step d from the round before on; nothing past the end is
// loaded, and a slot that was not loaded is not lifted either.
extern "C" __global__ void reduce_register_prefetch(const In *in, Out *out, size_t n)
{
    constexpr unsigned DEPTH = 4;
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t step = (size_t)gridDim.x * BLOCK, first = (size_t)blockIdx.x * BLOCK + tid;

    In ahead[DEPTH] = {};
#pragma unroll
    for (unsigned d = 0; d < DEPTH; d++)
        if (first + d * step < n)
            ahead[d] = in[first + d * step];

    Acc value = Op::identity();
    for (size_t k = first; k < n; k += DEPTH * step) {
#pragma unroll
        for (unsigned d = 0; d < DEPTH; d++) {
            const size_t now = k + d * step, later = now + DEPTH * step;
            const In taken = ahead[d];
            if (later < n)
                ahead[d] = in[later];
            if (now < n)
                value = Op::combine(value, Op::lift(taken, now));
        }
    }

    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
