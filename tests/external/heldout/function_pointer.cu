#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void treeMin(const int* a, int* b, int n) {
    __shared__ int s[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    s[threadIdx.x] = i < n ? a[i] : 0x7fffffff;
    for (int k = 128; k; k >>= 1) {
        __syncthreads();
        if (threadIdx.x < k && s[threadIdx.x + k] < s[threadIdx.x]) s[threadIdx.x] = s[threadIdx.x + k];
    }
    if (threadIdx.x == 0) b[blockIdx.x] = s[0];
}

typedef void (*Kernel)(const int*, int*, int);
struct Stage { Kernel kernel; int threads; };

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 60000;
    std::vector<int> h(n);
    for (int i = 0; i < n; i++) h[i] = 100000 - i;
    Stage stage = {treeMin, 256};
    int blocks = (n + 255) / 256;
    int *a, *b;
    cudaMalloc(&a, n * sizeof(int));
    cudaMalloc(&b, blocks * sizeof(int));
    cudaMemcpy(a, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    stage.kernel<<<blocks, stage.threads>>>(a, b, n);
    std::vector<int> part(blocks);
    cudaMemcpy(part.data(), b, blocks * sizeof(int), cudaMemcpyDeviceToHost);
    int best = part[0];
    for (int p : part) best = p < best ? p : best;
    printf("%d\n", best);
}
