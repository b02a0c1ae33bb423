#include <cstdio>
#include <vector>

__global__ void transpose(const float* in, float* out, int n) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < n && y < n) out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

int main() {
    int n = 100;
    std::vector<float> h(n * n);
    for (int i = 0; i < n * n; i++) h[i] = i;
    float *in, *out;
    cudaMalloc(&in, n * n * 4);
    cudaMalloc(&out, n * n * 4);
    cudaMemcpy(in, h.data(), n * n * 4, cudaMemcpyHostToDevice);
    dim3 g((n + 15) / 16, (n + 15) / 16), b(16, 16);
    transpose<<<g, b>>>(in, out, n);
    cudaMemcpy(h.data(), out, n * n * 4, cudaMemcpyDeviceToHost);
    printf("%f\n", h[1]);
}
