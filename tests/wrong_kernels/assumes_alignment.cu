/*+++
title      = "Assumes alignment"
change     = "Loads four elements at once from wherever the input starts."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
block      = 256
blocks     = [256]
+++*/
// Rejected by: hazard.
extern "C" __global__ void assumes_alignment(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (blockDim.x * 4) + tid * 4;

    if (i + 4 <= n) {
        struct alignas(4 * sizeof(In)) Four {
            In x, y, z, w;
        };
        const Four four = *(const Four *)(in + i);  // <- hazard
        shared[tid] = Op::combine(Op::combine(Op::lift(four.x, i), Op::lift(four.y, i + 1)),
                                  Op::combine(Op::lift(four.z, i + 2), Op::lift(four.w, i + 3)));
    } else {
        shared[tid] = Op::identity();
        for (size_t k = i; k < n; k++)
            shared[tid] = Op::combine(shared[tid], Op::lift(in[k], k));
    }
    __syncthreads();

    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
