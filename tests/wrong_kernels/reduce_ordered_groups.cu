/*+++
title  = "Order kept, with cooperative groups"
change = "Neighbours are folded while tiles stream in; block and warp meet through cooperative groups."
scope  = "block"
grid   = "one"
walk   = "stream_fold"
finish = "none"
order  = "kept"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: a thread reads cells 2t and 2t + 1 and then writes cell t, with only its warp's tile.sync() in
// between. Warp 1 writes cells 32 to 63, which warp 0 reads. The author replaced block barriers by the
// cheaper ones "where data stay in the warp", and these do not. Shows by chance for n > BLOCK and blocks
// of more than one warp, when a warp falls behind the one after it.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void reduce_ordered_groups(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[2 * BLOCK];
    const cg::thread_block block = cg::this_thread_block();
    const cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    const unsigned t = block.thread_rank();

    cells[t] = t < n ? Op::lift(in[t], t) : Op::identity();
    for (size_t base = BLOCK; base < n; base += BLOCK) {
        const size_t k = base + t;
        cells[BLOCK + t] = k < n ? Op::lift(in[k], k) : Op::identity();
        block.sync();
        const Acc pair = Op::combine(cells[2 * t], cells[2 * t + 1]);
        tile.sync();
        cells[t] = pair;
        block.sync();
    }
    block.sync();

    // The tree: each step writes cells of its own and reads those of the step before.
    for (unsigned stride = 1; stride < BLOCK; stride *= 2) {
        const unsigned left = 2 * stride * t;
        if (left < BLOCK)
            cells[left] = Op::combine(cells[left], cells[left + stride]);
        block.sync();
    }
    if (t == 0)
        *out = Op::finish(cells[0]);
}
