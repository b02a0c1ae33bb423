/*+++
title      = "Decoupled look-back"
change     = "One pass in the manner of a scan: blocks publish aggregates and prefixes as value-and-state words and look back; the last prefix is the answer."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512]
techniques = ["shuffle", "multi_add"]
dtypes     = ["int8", "uint8", "int32", "uint32"]
ops        = ["sum", "prod", "min", "max"]
+++*/
// Right: shares go by tickets, so a block waits only for blocks that already run; value and state are one
// 64-bit word, so no fence is needed between them. The last block to end clears words, tickets and count.
static_assert(sizeof(Acc) == 4, "value and state share a word of 64 bits");
__device__ unsigned long long words[64];  // state << 32 | value: 0 none, 1 aggregate, 2 prefix
__device__ unsigned ended;

__device__ void publish(unsigned tile, unsigned long long state, Acc value)
{
    atomicExch(&words[tile], state << 32 | (unsigned)value);
}

__device__ Acc look_back(unsigned tile)
{
    Acc before = Op::identity();
    while (tile-- > 0) {
        unsigned long long word;
        do
            word = atomicAdd(&words[tile], 0ull);
        while (word >> 32 == 0);
        before = Op::combine((Acc)(unsigned)word, before);
        if (word >> 32 == 2)
            break;
    }
    return before;
}

extern "C" __global__ void reduce_decoupled_lookback(const In *in, Out *out, size_t n, Acc *partials,
                                                     unsigned *counter)
{
    __shared__ Acc of_warp[BLOCK / 32];
    __shared__ unsigned ticket;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        ticket = atomicAdd(counter, 1u);
    __syncthreads();
    const unsigned tile = ticket;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = min(tile * share, n), end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (tid % 32 == 0)
        of_warp[tid / 32] = value;
    __syncthreads();
    if (tid > 0)
        return;

    for (unsigned warp = 1; warp < BLOCK / 32; warp++)
        value = Op::combine(value, of_warp[warp]);
    publish(tile, tile == 0 ? 2 : 1, value);
    if (tile > 0) {
        value = Op::combine(look_back(tile), value);
        publish(tile, 2, value);
    }
    if (tile == gridDim.x - 1)
        *out = Op::finish(value);

    __threadfence();
    if (atomicAdd(&ended, 1u) == gridDim.x - 1) {
        __threadfence();
        for (unsigned k = 0; k < gridDim.x; k++)
            words[k] = 0;
        ended = 0;
        *counter = 0;
    }
}
