/*+++
title  = "Only threads with elements shuffle"
change = "Threads past the end skip warp and block; a warp shuffles with the mask of its active lanes and adds by an atomic."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 4
finish = "atomic"
block  = 256
blocks = [32, 64, 96, 128, 192, 256, 512, 1024]
ops    = ["sum", "min", "max"]
+++*/
// Fault: in the last warp with elements only some lanes are active, and the tree reads from lanes that
// are not in the mask: their values are undefined, in practice some register of theirs, and are added.
// The author trusted __activemask() to leave absent lanes out. Shows where the lanes with elements are
// no whole warps, so mostly for n no multiple of 32. And nothing promises that the active lanes of a
// warp are found in one piece.
extern "C" __global__ void reduce_active_warp(const In *in, Out *out, size_t n)
{
    const unsigned lane = threadIdx.x % 32;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS) + threadIdx.x;

    if (first < n) {
        Acc value = Op::lift(in[first], first);
#pragma unroll
        for (unsigned item = 1; item < ITEMS; item++) {
            const size_t k = first + item * BLOCK;
            if (k < n)
                value = Op::combine(value, Op::lift(in[k], k));
        }
        const unsigned active = __activemask();
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(active, value, offset));
        if (lane == 0)
            Op::atomic(out, value);
    }
}
