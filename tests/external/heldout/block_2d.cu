#include <cstdio>
#include <vector>
#define TILE 16

__global__ void imageSum(const float* image, float* sums, int width, int height) {
    __shared__ float s[TILE * TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    int t = threadIdx.y * TILE + threadIdx.x;
    s[t] = (x < width && y < height) ? image[y * width + x] : 0.f;
    __syncthreads();
    for (int k = TILE * TILE / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = s[0];
}

int main() {
    const int width = 200, height = 150;
    std::vector<float> h(width * height, 1.f);
    dim3 block(TILE, TILE), grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE);
    float *image, *sums;
    cudaMalloc(&image, h.size() * sizeof(float));
    cudaMalloc(&sums, grid.x * grid.y * sizeof(float));
    cudaMemcpy(image, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    imageSum<<<grid, block>>>(image, sums, width, height);
    std::vector<float> part(grid.x * grid.y);
    cudaMemcpy(part.data(), sums, part.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double total = 0;
    for (float p : part) total += p;
    printf("%f\n", total);
}
