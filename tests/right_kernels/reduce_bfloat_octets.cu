/*+++
title      = "Eight bfloat16 a load"
change     = "16-byte loads bring eight bfloat16; a bfloat16 is the upper half of a float, so shift and mask widen it."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
fold       = "warps_then_serial"
items      = 8
vector     = 8
finish     = "last_block"
block      = 256
blocks     = [64, 128, 256, 512]
techniques = ["shuffle", "multi_add", "grid_stride", "last_block"]
dtypes     = ["bfloat16"]
ops        = ["sum", "mean"]
+++*/
// Right: elements before the first 16-byte boundary and behind the last whole load are taken singly by the
// first block; widening is exact and every addition happens in the accumulator's type.
__device__ Acc low(unsigned word) { return Acc(__uint_as_float(word << 16)); }
__device__ Acc high(unsigned word) { return Acc(__uint_as_float(word & 0xffff0000u)); }
__device__ Acc both(unsigned word) { return Op::combine(low(word), high(word)); }

__device__ Acc fold_block(Acc *cells, Acc value)
{
    for (unsigned offset = 16; offset; offset >>= 1)
        value = Op::combine(value, __shfl_down_sync(~0u, value, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        cells[threadIdx.x / 32] = value;
    __syncthreads();
    value = cells[0];
    for (unsigned warp = 1; warp < BLOCK / 32; ++warp)
        value = Op::combine(value, cells[warp]);
    return value;
}

extern "C" __global__ void reduce_bfloat_octets(const In *in, Out *out, size_t n, Acc *partials,
                                                unsigned *counter)
{
    __shared__ Acc cells[BLOCK / 32];
    __shared__ unsigned arrived;
    const unsigned tid = threadIdx.x;
    const size_t head = min((size_t)((16 - (size_t)in % 16) % 16 / 2), n);
    const size_t octets = (n - head) / 8, tail = head + 8 * octets;
    const uint4 *wide = reinterpret_cast<const uint4 *>(in + head);

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < octets; k += (size_t)gridDim.x * BLOCK) {
        const uint4 w = wide[k];
        value = Op::combine(value, Op::combine(Op::combine(both(w.x), both(w.y)),
                                               Op::combine(both(w.z), both(w.w))));
    }
    if (blockIdx.x == 0) {
        if (tid < head)
            value = Op::combine(value, Op::lift(in[tid], tid));
        if (tail + tid < n)
            value = Op::combine(value, Op::lift(in[tail + tid], tail + tid));
    }
    value = fold_block(cells, value);

    if (tid == 0) {
        partials[blockIdx.x] = value;
        __threadfence();
        arrived = atomicInc(counter, gridDim.x - 1);
        __threadfence();
    }
    __syncthreads();
    if (arrived != gridDim.x - 1)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    value = fold_block(cells, value);
    if (tid == 0)
        *out = Op::finish(value);
}
