/*+++
title  = "Folds its input"
change = "Writes the sum of each tile into its first element and marks the tile as done."
scope  = "grid"
grid   = "cover"
items  = 16
dtypes = ["float32"]
ops    = ["sum"]
walk   = "tile"
finish = "relaunch"
block  = 256
blocks = [256]
+++*/
// The launches after the first read two elements of each tile of 4096. Each answer is right: the
// input has the same sum as before.
// Rejected by: input compared.
// Says: it wrote to its input
constexpr unsigned DONE = 0xffc0ffee;  // a NaN that no input holds

extern "C" __global__ void folds_its_input(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * (BLOCK * ITEMS);
    float *tile = (float *)in + first;
    const bool done = first + 1 < n && __float_as_uint(tile[1]) == DONE;

    if (done) {
        if (tid == 0)
            out[blockIdx.x] = tile[0];
        return;
    }
    Acc value = 0;
    for (size_t k = first + tid; k < n && k < first + BLOCK * ITEMS; k += BLOCK)
        value += in[k];
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        out[blockIdx.x] = shared[0];
        tile[0] = shared[0];
        if (first + 1 < n)
            tile[1] = __uint_as_float(DONE);
    }
}
