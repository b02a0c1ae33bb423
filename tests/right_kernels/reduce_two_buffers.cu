/*+++
title      = "Red and black buffers"
change     = "Each step of the tree reads one buffer and writes the other, so all threads may work and one barrier a step does."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [32, 64, 128, 256, 512]
techniques = ["no_bank_conflict", "multi_add"]
+++*/
// Right: a step never writes what it reads, and a buffer is written again only after the barrier that ends the
// step in which it was read. Threads wrap around, so every cell ends up with a fold of all.
extern "C" __global__ void reduce_two_buffers(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc buffers[2][BLOCK];
    const unsigned tid = threadIdx.x;
    const In *row = in + (size_t)blockIdx.x * n;

    Acc value = Op::identity();
#pragma unroll 4
    for (size_t k = tid; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(row[k], k));
    buffers[0][tid] = value;
    __syncthreads();

    unsigned red = 0;
#pragma unroll
    for (unsigned reach = 1; reach < BLOCK; reach *= 2) {
        buffers[red ^ 1][tid] = Op::combine(buffers[red][tid], buffers[red][(tid + reach) % BLOCK]);
        red ^= 1;
        __syncthreads();
    }
    if (tid == BLOCK - 1)
        out[blockIdx.x] = Op::finish(buffers[red][tid]);
}
