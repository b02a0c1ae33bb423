/*+++
title      = "One block per row, tree"
change     = "Each block reduces one row: its threads stride over it, then a tree in shared memory."
expect     = "Full bandwidth if rows are long and at least as many as the GPU holds blocks."
after      = "reduce_single_block"
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// One block cannot fill a GPU, but a batch of rows gives every SM blocks to run, and no row needs a
// second launch. Rows shorter than the block leave threads idle, and few long rows leave SMs idle. The
// tree halves the block at each step, so the block size is a power of two.
extern "C" __global__ void reduce_rows_tree(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const In *row = in + blockIdx.x * n;

    // Load: a thread without elements contributes the identity, so the tree needs no bounds check.
    // With signed indices, which cannot wrap, the compiler unrolls the loop and issues the loads first.
    Acc value = Op::identity();
    for (long long k = tid; k < (long long)n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    shared[tid] = value;
    __syncthreads();

    // Tree: the lower half of the threads adds the values of the upper half.
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    // Write: one result per row.
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
