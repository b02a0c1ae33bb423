/*+++
title      = "Bytes summed in 16 bits"
change     = "Each thread adds its bytes in a short, which takes half a register."
scope      = "grid"
grid       = "fixed"
fixed_grid = 32
walk       = "grid_stride"
finish     = "atomic"
block      = 128
blocks     = [128, 256]
dtypes     = ["int8"]
ops        = ["sum"]
techniques = ["atomic"]
+++*/
// Fault: a short holds 258 times the largest byte and no more: from about a million such elements on.
extern "C" __global__ void bytes_in_short(const signed char *in, int *out, size_t n)
{
    short sum = 0;
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        sum += in[k];
    int total = sum;
    for (unsigned offset = 16; offset > 0; offset /= 2)
        total += __shfl_down_sync(0xffffffffu, total, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, total);
}
