/*+++
title  = "Aligned or not"
change = "Loads four elements at once where they are aligned, and one by one where not."
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
// Slower on an input that starts elsewhere, which is not timed, but right.
struct alignas(16) Four {
    float x, y, z, w;
};

extern "C" __global__ void wants_it_aligned(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = ((size_t)blockIdx.x * BLOCK + tid) * 4;

    shared[tid] = 0;
    if (i + 4 <= n && (size_t)in % 16 == 0) {
        const Four four = *(const Four *)(in + i);
        shared[tid] = (four.x + four.y) + (four.z + four.w);
    } else {
        for (size_t k = i; k < n && k < i + 4; k++)
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
