/*+++
title      = "The active lanes fold"
change     = "Lanes with elements fold among themselves with the mask of the active lanes."
scope      = "grid"
grid       = "cover"
walk       = "tile"
finish     = "atomic"
block      = 256
blocks     = [256]
ops        = ["sum", "min", "max"]
+++*/
// Rejected by: schedule.
// Fault: __activemask() in a branch may be any part of the lanes that take it. The kernel relies on all of
// them: the lowest lane that has elements is the only one to add.
extern "C" __global__ void activemask_in_branch(const In *in, Out *out, size_t n)
{
    const size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    const unsigned lane = threadIdx.x % 32;
    if (k < n) {
        const unsigned active = __activemask(), count = __popc(active);
        Acc value = Op::lift(in[k], k);
        for (unsigned offset = 16; offset > 0; offset /= 2) {
            const Acc other = __shfl_down_sync(active, value, offset);
            if (lane + offset < count)
                value = Op::combine(value, other);
        }
        if (lane == 0)
            Op::atomic(out, value);
    }
}
