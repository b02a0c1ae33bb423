#include <cstdio>
#include <cstdlib>
#include <vector>

// Blocks of 80 threads: the last warp has 16 lanes, which the loop over offsets respects.
__global__ void ragged(const float* x, float* out, int n) {
    __shared__ float s[3];
    float v = 0;
    for (int i = blockIdx.x * 80 + threadIdx.x; i < n; i += gridDim.x * 80) v += x[i];
    int lane = threadIdx.x & 31, lanes = threadIdx.x < 64 ? 32 : 16;
    for (int d = lanes / 2; d; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (lane == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, s[0] + s[1] + s[2]);
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 5000;
    std::vector<float> h(n, 1);
    float *x, *out, r;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemset(out, 0, sizeof(float));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    ragged<<<7, 80>>>(x, out, n);
    cudaMemcpy(&r, out, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
}
