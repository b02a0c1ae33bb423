#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kThreads = 256;

// Sums 256 values of each block.
__global__ void blockTotals(const float* data, float* totals, int n) {
    __shared__ float cell[kThreads];
    int t = threadIdx.x;
    int i = blockIdx.x * kThreads + t;
    cell[t] = i < n ? data[i] : 0.0f;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (t < half) cell[t] += cell[t + half];
    }
    if (t == 0) totals[blockIdx.x] = cell[0];
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 100000;
    std::vector<float> host(n, 0.5f);
    int blocks = (n + kThreads - 1) / kThreads;
    float *data, *totals;
    cudaMalloc(&data, n * sizeof(float));
    cudaMalloc(&totals, blocks * sizeof(float));
    cudaMemcpy(data, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    blockTotals<<<blocks, kThreads>>>(data, totals, n);
    std::vector<float> partial(blocks);
    cudaMemcpy(partial.data(), totals, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float p : partial) sum += p;
    printf("%f\n", sum);
}
