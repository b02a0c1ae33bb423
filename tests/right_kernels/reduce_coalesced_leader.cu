/*+++
title      = "Coalesced group, one atomic a group"
change     = "Whatever lanes are in range form a coalesced group, which reduces itself; its first member does one atomic."
scope      = "grid"
grid       = "cover"
walk       = "element"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 1024]
techniques = ["shuffle", "atomic"]
+++*/
// Right: coalesced_threads() may hand out any partition of the threads that passed the test, even into
// single threads; each part reduces its own members alone and reports once, so none changes the answer.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_coalesced_leader(const In *__restrict__ in, Out *out, size_t n)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n)
        return;
    const Acc mine = Op::lift(in[i], i);
    const cg::coalesced_group here = cg::coalesced_threads();
    const Acc total = cg::reduce(here, mine, [](Acc a, Acc b) { return Op::combine(a, b); });
    if (here.thread_rank() == 0)
        Op::atomic(out, total);
}
