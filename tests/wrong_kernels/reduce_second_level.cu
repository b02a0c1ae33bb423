/*+++
title  = "Second level in four shuffles"
change = "The warps' partials are folded by four shuffles instead of five."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "relaunch"
block  = 512
blocks = [32, 64, 128, 256, 512, 1024]
+++*/
// Fault: four shuffles fold 16 lanes, and a block of 1024 threads has 32 warps, whose upper half is lost.
// The author used 512 threads and left 1024 in the list. Shows with BLOCK = 1024 alone, for every tile
// that reaches beyond its first 512 threads.
template <int WIDTH>
__device__ Acc fold_lanes(Acc value)
{
#pragma unroll
    for (unsigned offset = WIDTH / 2; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

extern "C" __global__ void reduce_second_level(const In *in, Out *out, size_t n)
{
    __shared__ Acc warps[32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const size_t i = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid;

    Acc value = Op::identity();
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = i + item * BLOCK;
        if (k < n)
            value = Op::combine(value, Op::lift(in[k], k));
    }
    value = fold_lanes<32>(value);
    if (lane == 0)
        warps[warp] = value;
    __syncthreads();

    if (warp == 0) {
        value = lane < BLOCK / 32 ? warps[lane] : Op::identity();
        value = fold_lanes<16>(value);
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
