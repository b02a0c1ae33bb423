/*+++
title  = "Scoped atomics"
change = "Warps add to a shared total and blocks to the answer, both by atomics of block scope."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "atomic"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
dtypes = ["float32", "float64", "int32", "uint32"]
ops    = ["sum"]
+++*/
// Fault: atomicAdd_block() is atomic among the threads of one block only; for the total in shared memory
// that is enough, for the answer, to which all blocks add, it is not. The author read the suffix as "one
// a block". Today's GPUs do global atomics at the L2 whatever their scope, so it mostly works; the
// language allows updates of two blocks to be lost.
extern "C" __global__ void sum_scoped_atomic(const In *in, Out *out, size_t n)
{
    __shared__ Acc total;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        total = Acc(0);
    __syncthreads();

    Acc sum = 0;
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = ((size_t)blockIdx.x * ITEMS + item) * BLOCK + tid;
        if (k < n)
            sum += in[k];
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (tid % 32 == 0)
        atomicAdd_block(&total, sum);
    __syncthreads();

    if (tid == 0)
        atomicAdd_block(out, total);
}
