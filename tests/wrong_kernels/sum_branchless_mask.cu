/*+++
title      = "Branch-free loads with a mask"
change     = "Indices past the end are clamped and what they bring is multiplied by 0, so all loads are unconditional."
expect     = "No predicate before a load: all loads of a thread are issued at once."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "relaunch"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float16", "bfloat16", "float32", "float64"]
ops        = ["sum"]
techniques = ["multi_add"]
+++*/
// Fault: 0 times infinity is NaN. If the last element is infinite, every thread past the end reads it
// and makes NaN of it, where the sum is infinite; only for n that is no multiple of the tile.
extern "C" __global__ void sum_branchless_mask(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid, last = n - 1;

    Acc parts[ITEMS];
#pragma unroll
    for (unsigned j = 0; j < ITEMS; j++) {
        const size_t k = first + j * BLOCK;
        const Acc mask = Acc(k <= last);
        parts[j] = Op::lift(in[k <= last ? k : last], k) * mask;
    }
    Acc value = parts[0];
#pragma unroll
    for (unsigned j = 1; j < ITEMS; j++)
        value = Op::combine(value, parts[j]);
    cells[tid] = value;
    __syncthreads();

#pragma unroll
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
