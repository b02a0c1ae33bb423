/*+++
title  = "Lanes with nothing to add stay out"
change = "Lanes whose sum is 0 skip the reduction; the others use the hardware's warp sum over the active lanes."
min_cc = "8.0"
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "atomic"
block  = 256
blocks = [32, 64, 96, 128, 192, 256, 384, 512, 1024]
dtypes = ["int32", "uint32"]
ops    = ["sum"]
+++*/
// Fault: lane 0 adds the warp's sum to the answer, but lane 0 may be one of those that stayed out, and
// then the whole warp's share is lost; the lowest active lane should do it. The author's data had no
// zeros. Shows where the items of a warp's first lane sum to 0 and others' do not: sparse inputs,
// alternating signs.
extern "C" __global__ void sum_nonzero_lanes(const In *in, Out *out, size_t n)
{
    const size_t base = (size_t)blockIdx.x * (BLOCK * ITEMS) + threadIdx.x;
    Acc sum = 0;
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = base + item * BLOCK;
        if (k < n)
            sum += in[k];
    }

    if (sum != 0) {
        const unsigned active = __activemask();
        const Acc all = __reduce_add_sync(active, sum);
        if (threadIdx.x % 32 == 0)
            atomicAdd(out, all);
    }
}
