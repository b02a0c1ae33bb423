#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void countAbove(const float* x, int n, int* count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool hit = i < n && x[i] > 0.0f;
    unsigned votes = __ballot_sync(0xffffffff, hit);
    if ((threadIdx.x & 31) == 0 && votes) atomicAdd(count, __popc(votes));
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 5555;
    std::vector<float> h(n);
    for (int i = 0; i < n; i++) h[i] = i % 3 - 1.f;
    float* x;
    int *count, r;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&count, sizeof(int));
    cudaMemset(count, 0, sizeof(int));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    countAbove<<<(n + 127) / 128, 128>>>(x, n, count);
    cudaMemcpy(&r, count, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", r);
}
