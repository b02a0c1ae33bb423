/*+++
title        = "Maximum by packs, head unread"
change       = "Packs of 16 bytes from the first that is whole, and what is left behind the last; few elements one by one."
scope        = "grid"
grid         = "fill"
walk         = "grid_stride"
items_bytes  = 16
vector_bytes = 16
finish       = "relaunch_one_block"
block        = 256
blocks       = [64, 128, 256, 512]
ops          = ["max", "min"]
+++*/
// Fault: the elements in front of the first whole pack are never read, which only an input that is not
// aligned has, and only an extreme among them tells.
// Rejected by: max, min.
struct alignas(16) Pack { In at[VECTOR]; };

extern "C" __global__ void max_head_unread(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t thread = (size_t)blockIdx.x * BLOCK + tid, threads = (size_t)gridDim.x * BLOCK;
    const size_t head = min((0 - (size_t)in) % 16 / sizeof(In), n), packs = (n - head) / VECTOR;
    const Pack *middle = (const Pack *)(in + head);

    Acc value = Op::identity();
    for (size_t p = thread; p < packs; p += threads)
        for (unsigned e = 0; e < VECTOR; e++)
            value = Op::combine(value, Op::lift(middle[p].at[e], head + p * VECTOR + e));
    for (size_t k = (packs ? head + packs * VECTOR : 0) + thread; k < n; k += threads)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
