/*+++
title      = "Hard-coded n"
change     = "Takes n for 2^25, the size that is timed, so its loop needs no bounds and unrolls."
scope      = "grid"
grid       = "fixed"
fixed_grid = 512
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [256]
+++*/
// No comparison, no tail, and a count of rounds that the compiler knows: a few per cent, at one
// size alone.
// Rejected by: sizes.
// Says: past the end of argument 0
constexpr unsigned ROUNDS = (1u << 25) / (512 * BLOCK);

extern "C" __global__ void hard_coded_n(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;

    Acc value = Op::identity();
#pragma unroll 8
    for (unsigned round = 0; round < ROUNDS; round++) {
        const size_t k = ((size_t)round * 512 + blockIdx.x) * BLOCK + tid;
        value = Op::combine(value, Op::lift(in[k], k));
    }
    shared[tid] = value;
    __syncthreads();

    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0)
        Op::atomic(out, shared[0]);
}
