/*+++
title  = "Short tickets in shared memory"
change = "The ticket and the block's rank are passed in 16 bits, packed with the flag of the last block."
scope  = "grid"
grid   = "cover"
walk   = "tile"
finish = "last_block"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: the ticket is cut to 16 bits before it is compared with the grid, cut likewise. With more than
// 65536 blocks several tickets match, and the first of them folds partials of blocks that have not run
// and sets the counter back. The author came from GPUs whose grids had at most 65535 blocks. Shows for
// n > 65536 * BLOCK, which a block of 32 reaches with two million elements.
struct Arrival {
    unsigned short ticket, of;
};

extern "C" __global__ void reduce_short_ticket(const In *in, Out *out, size_t n, Acc *partials,
                                               unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ Arrival arrival;
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + tid;

    shared[tid] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            shared[tid] = Op::combine(shared[tid], shared[tid + s]);
        __syncthreads();
    }
    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        arrival = {(unsigned short)atomicAdd(counter, 1u), (unsigned short)(gridDim.x - 1)};
        __threadfence();
    }
    __syncthreads();
    if (arrival.ticket != arrival.of)
        return;

    Acc value = Op::identity();
    for (unsigned b = tid; b < gridDim.x; b += BLOCK)
        value = Op::combine(value, __ldcg(partials + b));
    shared[tid] = value;
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            shared[tid] = Op::combine(shared[tid], shared[tid + s]);
        __syncthreads();
    }
    if (tid == 0) {
        *out = Op::finish(shared[0]);
        *counter = 0;
    }
}
