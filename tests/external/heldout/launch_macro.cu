#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(e)); exit(1); } } while (0)
#define LAUNCH(kernel, grid, block, ...) do { kernel<<<dim3(grid), dim3(block)>>>(__VA_ARGS__); CHECK(cudaGetLastError()); } while (0)

__global__ void maxAbs(const float* v, unsigned* bits, int n) {
    float m = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) m = fmaxf(m, fabsf(v[i]));
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (threadIdx.x % 32 == 0) atomicMax(bits, __float_as_uint(m));
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 77777;
    std::vector<float> h(n);
    for (int i = 0; i < n; i++) h[i] = (i % 1000) - 600.f;
    float* v;
    float* top;
    CHECK(cudaMalloc(&v, n * sizeof(float)));
    CHECK(cudaMalloc(&top, sizeof(float)));
    CHECK(cudaMemset(top, 0, sizeof(float)));
    CHECK(cudaMemcpy(v, h.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    LAUNCH(maxAbs, 60, 128, v, reinterpret_cast<unsigned*>(top), n);
    float r;
    CHECK(cudaMemcpy(&r, top, sizeof r, cudaMemcpyDeviceToHost));
    printf("largest magnitude %f\n", r);
}
