#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void sumFours(const int* a, int* out, unsigned n) {
    int v = 0;
    unsigned step = 4 * blockDim.x * gridDim.x;
    unsigned i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (; i < n - 3; i += step) v += a[i] + a[i + 1] + a[i + 2] + a[i + 3];
    if (i < n && i >= n - n % 4)
        for (unsigned j = i; j < n; ++j) v += a[j];
    atomicAdd(out, v);
}

int main(int argc, char** argv) {
    unsigned n = argc > 1 ? strtoul(argv[1], nullptr, 10) : 1000;
    std::vector<int> h(n, 3);
    int *a, *out, r;
    cudaMalloc(&a, n * sizeof(int));
    cudaMalloc(&out, sizeof(int));
    cudaMemset(out, 0, sizeof(int));
    cudaMemcpy(a, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    sumFours<<<8, 64>>>(a, out, n);
    cudaMemcpy(&r, out, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", r);
    return 0;
}
