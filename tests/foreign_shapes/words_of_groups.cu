// expected: right  shape: blocks and threads told apart in the words of cooperative groups
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void total(const int *in, int n, int *out) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int first = block.group_index().x * (block.group_dim().x * 2) + block.thread_index().x;
    int sum = first < n ? in[first] : 0;
    if (first + block.group_dim().x < n) sum += in[first + block.group_dim().x];
    sum = cg::reduce(warp, sum, cg::plus<int>());
    if (warp.thread_rank() == 0) atomicAdd(out, sum);
}
