/*+++
title      = "Operators for accumulators"
change     = "A struct around an accumulator overloads +=, | and shift by lanes, so the kernel reads like arithmetic; partials go to the host."
scope      = "grid"
grid       = "fixed"
fixed_grid = 108
walk       = "contiguous"
finish     = "host"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: a >> s is a shuffle from the lane s above that every lane of the warp executes, in a loop of
// constant bounds; lanes that get their own value back have no influence on lane 0.
struct Running {
    Acc value = Op::identity();

    Running() = default;
    __device__ explicit Running(Acc acc) : value(acc) {}
    __device__ Running &operator+=(const Running &other)
    {
        value = Op::combine(value, other.value);
        return *this;
    }
    __device__ friend Running operator|(Running a, const Running &b) { return a += b; }
    __device__ Running operator>>(unsigned lanes) const
    {
        return Running(__shfl_down_sync(0xffffffffu, value, lanes));
    }
    __device__ explicit operator Out() const { return Op::finish(value); }
};

__device__ Running fold_warp(Running mine)
{
    for (unsigned lanes = warpSize / 2; lanes; lanes /= 2)
        mine = mine | (mine >> lanes);
    return mine;
}

extern "C" __global__ void reduce_running_overloads(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[BLOCK / 32];
    const size_t share = n / gridDim.x + (n % gridDim.x != 0);
    const size_t begin = min(blockIdx.x * share, n), end = min(begin + share, n);

    Running mine;
    for (size_t k = begin + threadIdx.x; k < end; k += blockDim.x)
        mine += Running(Op::lift(in[k], k));
    mine = fold_warp(mine);
    if (threadIdx.x % warpSize == 0)
        of_warp[threadIdx.x / warpSize] = mine.value;
    __syncthreads();
    if (threadIdx.x < warpSize) {
        mine = threadIdx.x < BLOCK / 32 ? Running(of_warp[threadIdx.x]) : Running();
        mine = fold_warp(mine);
        if (threadIdx.x == 0)
            out[blockIdx.x] = Out(mine);
    }
}
