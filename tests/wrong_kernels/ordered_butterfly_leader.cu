/*+++
title      = "Butterfly in order, leaders spread"
change     = "After the butterfly every lane holds its warp's product; lane w of warp w writes it, so no two banks are hit."
scope      = "rows"
grid       = "block_per_row"
walk       = "stream_fold"
fold       = "warps_then_serial"
finish     = "none"
order      = "kept"
block      = 128
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "order_kept"]
+++*/
// Fault: in a butterfly the upper lane of a pair must be the right operand, but every lane puts its own
// value first. Only lane 0 never is an upper lane; warp w asks lane w. Wrong for operators that do not
// commute from the second warp on, so for n > 33 in blocks of more than one warp.
__device__ Acc warp_product(Acc value)
{
#pragma unroll
    for (unsigned d = 1; d < 32; d <<= 1)
        value = Op::combine(value, __shfl_xor_sync(0xffffffffu, value, d));
    return value;
}

extern "C" __global__ void ordered_butterfly_leader(const In *in, Out *out, size_t n, size_t rows)
{
    __shared__ Acc warps[BLOCK / 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const In *row = in + (size_t)blockIdx.x * n;

    Acc whole = Op::identity();
    for (size_t tile = 0; tile < n; tile += BLOCK) {
        const size_t k = tile + threadIdx.x;
        const Acc value = warp_product(k < n ? Op::lift(row[k], k) : Op::identity());
        if (lane == warp)
            warps[warp] = value;
        __syncthreads();
        if (threadIdx.x == 0)
            for (unsigned w = 0; w < BLOCK / 32; w++)
                whole = Op::combine(whole, warps[w]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = Op::finish(whole);
}
