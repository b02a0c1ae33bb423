/*+++
title  = "Wants it aligned"
change = "Loads four elements at once from the next lower multiple of 16 bytes."
scope  = "grid"
grid   = "cover"
items  = 4
vector = 4
dtypes = ["float32"]
ops    = ["sum"]
walk   = "tile"
finish = "relaunch"
block  = 256
blocks = [256]
+++*/
// A quarter of the load instructions, and no code for an input that starts elsewhere, as one
// inside a larger array does.
// Rejected by: alignment.
// Says: misaligned.*got
struct alignas(16) Four {
    float x, y, z, w;
};

extern "C" __global__ void wants_it_aligned(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = ((size_t)blockIdx.x * BLOCK + tid) * 4;
    const float *aligned = (const float *)((size_t)in / 16 * 16);

    shared[tid] = 0;
    if (i + 4 <= n) {
        const Four four = *(const Four *)(aligned + i);
        shared[tid] = (four.x + four.y) + (four.z + four.w);
    } else {
        for (size_t k = i; k < n; k++)
            shared[tid] += in[k];
    }
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
