#include <cstdio>
#include <cstdlib>
#include <vector>

// Threads without an element leave at once; the others name the whole warp and ignore lanes that left.
__global__ void guardedSum(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    if (i >= n) return;
    int first = i - lane, lanes = n - first < 32 ? n - first : 32, v = x[i];
    for (int d = 16; d; d >>= 1) {
        int w = __shfl_down_sync(0xffffffff, v, d);
        if (lane + d < lanes) v += w;
    }
    if (lane == 0) atomicAdd(out, v);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1003;
    std::vector<int> h(n, 2);
    int *x, *out, r;
    cudaMalloc(&x, n * sizeof(int));
    cudaMalloc(&out, sizeof(int));
    cudaMemset(out, 0, sizeof(int));
    cudaMemcpy(x, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    guardedSum<<<(n + 255) / 256, 256>>>(x, out, n);
    cudaMemcpy(&r, out, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", r);
}
