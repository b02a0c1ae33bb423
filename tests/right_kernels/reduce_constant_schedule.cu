/*+++
title      = "Tree by a table in constant memory"
change     = "Which cells the steps of the tree take in stands in a constant table, first and count, ending at a zero."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch"
block      = 192
blocks     = [96, 192, 384, 768]
techniques = ["no_bank_conflict", "multi_add"]
+++*/
// Right: the table cuts 768, 384, 192 or 96 cells down to 96 by halves, then 96 to 32 by thirds in one step,
// then by halves; all threads read the same entry and so take the same number of barriers.
struct Step {
    unsigned live, parts;  // that many cells, made out of as many times that many
};
__constant__ Step schedule[] = {{384, 2}, {192, 2}, {96, 2}, {32, 3}, {16, 2}, {8, 2},
                                {4, 2},   {2, 2},   {1, 2},  {0, 0}};

extern "C" __global__ void reduce_constant_schedule(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = ((size_t)blockIdx.x * ITEMS + item) * BLOCK + tid;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    cells[tid] = value;
    __syncthreads();

    for (const Step *step = schedule; step->live > 0; step++) {
        if (step->live >= BLOCK)
            continue;
        if (tid < step->live) {
            value = cells[tid];
            for (unsigned part = 1; part < step->parts; part++)
                value = Op::combine(value, cells[part * step->live + tid]);
            cells[tid] = value;
        }
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
