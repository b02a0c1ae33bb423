#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
namespace cg = cooperative_groups;

__global__ void gridSum(const float* in, float* part, float* out, int n) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    extern __shared__ float s[];
    float v = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) v += in[i];
    s[block.thread_rank()] = v;
    block.sync();
    for (int k = block.size() / 2; k > 0; k >>= 1) {
        if (block.thread_rank() < k) s[block.thread_rank()] += s[block.thread_rank() + k];
        block.sync();
    }
    if (block.thread_rank() == 0) part[blockIdx.x] = s[0];
    grid.sync();
    if (grid.thread_rank() == 0) {
        float t = 0;
        for (int b = 0; b < gridDim.x; ++b) t += part[b];
        *out = t;
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1 << 17;
    std::vector<float> h(n, 1.0f);
    float *in, *part, *out, r;
    int threads = 256, perSm = 0;
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perSm, gridSum, threads, threads * sizeof(float));
    int blocks = perSm > 0 ? 8 : 1;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&part, blocks * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemcpy(in, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    void* args[] = {&in, &part, &out, &n};
    cudaLaunchCooperativeKernel((void*)gridSum, dim3(blocks), dim3(threads), args, threads * sizeof(float), 0);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
