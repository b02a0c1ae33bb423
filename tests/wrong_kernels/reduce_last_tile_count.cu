/*+++
title  = "Bounds by tile"
change = "A block knows how many elements its tile has: all, or in the last block what n leaves over."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "relaunch"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: the last tile's length is n modulo the tile, which is 0 when the tiles fit exactly, so the last
// whole tile is left out. The author tested lengths with a rest and one shorter than a tile. Shows for n
// a multiple of BLOCK * ITEMS, in the first launch or in one on that many partials.
extern "C" __global__ void reduce_last_tile_count(const In *in, Out *out, size_t n)
{
    constexpr unsigned tile = BLOCK * ITEMS;
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * tile;
    const unsigned count = blockIdx.x + 1 < gridDim.x ? tile : (unsigned)(n % tile);

    Acc value = Op::identity();
    if (count == tile) {
#pragma unroll
        for (unsigned item = 0; item < ITEMS; item++) {
            const size_t k = begin + item * BLOCK + tid;
            value = Op::combine(value, Op::lift(in[k], k));
        }
    } else {
        for (unsigned j = tid; j < count; j += BLOCK)
            value = Op::combine(value, Op::lift(in[begin + j], begin + j));
    }
    shared[tid] = value;

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(shared[0]);
}
