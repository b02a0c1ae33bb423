/*+++
title      = "Pairwise by template recursion"
change     = "A thread folds its neighbouring elements pairwise by a recursion over their number; then shuffles and warps go on in order."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 8
finish     = "relaunch"
order      = "kept"
block      = 128
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "order_kept", "multi_add"]
+++*/
// Right: at every level the left part is the left operand: of elements, of lanes by growing strides, and of
// warps likewise; past the end there are only identities, all of them at the right.
template <unsigned COUNT_OF>
__device__ __forceinline__ Acc fold_run(const In *in, size_t k, size_t n)
{
    if constexpr (COUNT_OF == 1) {
        return k < n ? Op::lift(in[k], k) : Op::identity();
    } else {
        constexpr unsigned LEFT = COUNT_OF / 2;
        const Acc left = fold_run<LEFT>(in, k, n);
        return Op::combine(left, fold_run<COUNT_OF - LEFT>(in, k + LEFT, n));
    }
}

template <unsigned STRIDE = 1>
__device__ __forceinline__ Acc fold_lanes(Acc value)
{
    if constexpr (STRIDE < 32) {
        const Acc right = __shfl_down_sync(0xffffffffu, value, STRIDE);
        return fold_lanes<2 * STRIDE>(Op::combine(value, right));
    }
    return value;
}

extern "C" __global__ void reduce_pairwise_template(const In *in, Out *out, size_t n)
{
    __shared__ Acc of_warp[32];
    const unsigned lane = threadIdx.x % 32;
    const size_t first = ((size_t)blockIdx.x * BLOCK + threadIdx.x) * ITEMS;
    Acc value = fold_lanes(fold_run<ITEMS>(in, first, n));
    if (lane == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = fold_lanes(lane < BLOCK / 32 ? of_warp[lane] : Op::identity());
        if (lane == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
