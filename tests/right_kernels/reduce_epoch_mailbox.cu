/*+++
title      = "Mailbox words with an epoch"
change     = "Each block posts its partial and the launch's epoch in one 64-bit word; the first block's threads collect one word each."
scope      = "grid"
grid       = "fixed"
fixed_grid = 32
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
dtypes     = ["float32", "float16", "bfloat16", "int32", "uint32", "int8", "uint8"]
ops        = ["sum", "prod", "min", "max"]
+++*/
// Right: a word is read and written whole, so its value belongs to its epoch; the fences order each block's
// look at the epoch before the first block's step to the next one. Only the first block waits for others.
static_assert(sizeof(Acc) == 4, "value and epoch share a word of 64 bits");
__device__ volatile unsigned epoch;  // of the launch before
__device__ volatile unsigned long long mailbox[32];

extern "C" __global__ void reduce_epoch_mailbox(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const auto fold = [&](Acc value) {
        shared[tid] = value;
        __syncthreads();
        for (unsigned stride = BLOCK / 2; stride > 0; stride >>= 1) {
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();
        }
    };

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    fold(value);

    const unsigned now = epoch + 1;
    __threadfence();
    __syncthreads();
    if (tid == 0) {
        unsigned bits;
        memcpy(&bits, &shared[0], sizeof bits);
        __threadfence();
        mailbox[blockIdx.x] = (unsigned long long)now << 32 | bits;
    }
    if (blockIdx.x > 0)
        return;
    __syncthreads();

    value = Op::identity();
    if (tid < gridDim.x) {
        unsigned long long word;
        do
            word = mailbox[tid];
        while ((unsigned)(word >> 32) != now);
        const unsigned bits = (unsigned)word;
        memcpy(&value, &bits, sizeof value);
    }
    __threadfence();
    fold(value);
    if (tid == 0) {
        *out = Op::finish(shared[0]);
        epoch = now;
    }
}
