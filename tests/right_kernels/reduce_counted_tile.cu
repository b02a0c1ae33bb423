/*+++
title      = "A tree as large as the tile is full"
change     = "A counting barrier says how many threads hold an element; a full block takes halves, another one just as many cells as there are."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "relaunch"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["no_divergence", "no_bank_conflict"]
+++*/
// Right: holders come first, so the cells below the count are full and no others are read; the odd cell in the
// middle waits for the next step. Count and vote are the same for all threads.
extern "C" __global__ void reduce_counted_tile(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + tid;
    const bool holds = i < n;
    if (holds)
        cells[tid] = Op::lift(in[i], i);

    unsigned live = (unsigned)__syncthreads_count(holds);
    while (live > 1) {
        const unsigned rest = live - live / 2;
        if (tid + rest < live)
            cells[tid] = Op::combine(cells[tid], cells[tid + rest]);
        live = rest;
        if (__syncthreads_and(live == 1))
            break;
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(holds ? cells[0] : Op::identity());
}
