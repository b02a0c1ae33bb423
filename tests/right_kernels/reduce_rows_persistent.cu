/*+++
title      = "Rows by grid stride, whatever the grid"
change     = "A block goes on to the row gridDim.x further until there is none, and a different thread writes each row's answer."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
fold       = "warps_then_serial"
finish     = "none"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["shuffle", "multi_add", "broadcast"]
+++*/
// Right: with a block a row the loop runs once, with fewer blocks it would still give out each row once; the
// first barrier keeps a new row's partials from overwriting those that a slower warp still reads.
extern "C" __global__ void reduce_rows_persistent(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const unsigned tid = threadIdx.x;
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const In *elements = in + row * n;
        Acc value = Op::identity();
        for (size_t k = tid; k < n; k += BLOCK)
            value = Op::combine(value, Op::lift(elements[k], k));
        for (unsigned offset = 16; offset > 0; offset /= 2)
            value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));

        __syncthreads();
        if (tid % 32 == 0)
            of_warp[tid / 32] = value;
        __syncthreads();
        value = of_warp[0];
        for (unsigned warp = 1; warp < BLOCK / 32; warp++)
            value = Op::combine(value, of_warp[warp]);
        if (tid == row % BLOCK)
            out[row] = Op::finish(value);
    }
}
