/*+++
title      = "NaNs and numbers in separate groups"
change     = "A binary partition splits each warp into lanes that hold a NaN and lanes that do not; each side reduces itself."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["shuffle", "multi_add", "grid_stride"]
dtypes     = ["float32", "float64", "float16", "bfloat16"]
ops        = ["min", "max"]
+++*/
// Right: both cells of a warp hold the identity first; a side without lanes leaves its cell at that, and
// the operator puts a NaN cell above any number, so the split loses nothing.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void reduce_binary_split(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[64];
    const auto combine = [](Acc a, Acc b) { return Op::combine(a, b); };
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    for (unsigned k = threadIdx.x; k < 64; k += BLOCK)
        cells[k] = Op::identity();
    block.sync();

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));

    const bool is_nan = value != value;
    const auto side = cg::binary_partition(warp, is_nan);
    const Acc of_side = cg::reduce(side, value, combine);
    if (side.thread_rank() == 0)
        cells[2 * warp.meta_group_rank() + is_nan] = of_side;
    block.sync();

    if (threadIdx.x < 32) {
        value = Op::combine(cells[threadIdx.x], cells[threadIdx.x + 32]);
        value = cg::reduce(warp, value, combine);
        if (threadIdx.x == 0)
            out[blockIdx.x] = Op::finish(value);
    }
}
