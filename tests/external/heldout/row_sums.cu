#include <cstdio>
#include <vector>

// One warp for each row.
__global__ void rowSums(const float* m, float* sums, int rows, int cols) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float v = 0;
    for (int c = threadIdx.x % 32; c < cols; c += 32) v += m[(size_t)row * cols + c];
    for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x % 32 == 0) sums[row] = v;
}

int main() {
    int rows = 300, cols = 170;
    std::vector<float> h(rows * cols, 0.5f), r(rows);
    float *m, *sums;
    cudaMalloc(&m, h.size() * sizeof(float));
    cudaMalloc(&sums, rows * sizeof(float));
    cudaMemcpy(m, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowSums<<<(rows + 7) / 8, 256>>>(m, sums, rows, cols);
    cudaMemcpy(r.data(), sums, rows * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f %f\n", r[0], r[rows - 1]);
}
