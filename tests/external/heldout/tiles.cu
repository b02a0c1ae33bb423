#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
namespace cg = cooperative_groups;

__global__ void tileMax(const int* x, int* out, int n) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int best = -2147483647 - 1;
    for (int i = blockIdx.x * block.size() + block.thread_rank(); i < n; i += gridDim.x * block.size()) best = max(best, x[i]);
    best = cg::reduce(tile, best, cg::greater<int>());
    if (tile.thread_rank() == 0) atomicMax(out, best);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 7001;
    std::vector<int> h(n);
    for (int i = 0; i < n; i++) h[i] = -(i % 97) - 5;
    int *x, *out, r = -2147483647 - 1;
    cudaMalloc(&x, n * sizeof(int));
    cudaMalloc(&out, sizeof(int));
    cudaMemcpy(out, &r, sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(x, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    tileMax<<<9, 160>>>(x, out, n);
    cudaMemcpy(&r, out, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", r);
}
