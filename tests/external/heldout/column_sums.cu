#include <cstdio>
#include <vector>

__global__ void columnSums(const double* m, double* sums, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    double v = 0;
    for (int r = 0; r < rows; r++) v += m[r * cols + c];
    sums[c] = v;
}

int main() {
    const int rows = 128, cols = 500;
    std::vector<double> h(rows * cols, 0.25), r(cols);
    double *m, *sums;
    cudaMalloc(&m, h.size() * sizeof(double));
    cudaMalloc(&sums, cols * sizeof(double));
    cudaMemcpy(m, h.data(), h.size() * sizeof(double), cudaMemcpyHostToDevice);
    columnSums<<<(cols + 63) / 64, 64>>>(m, sums, rows, cols);
    cudaMemcpy(r.data(), sums, cols * sizeof(double), cudaMemcpyDeviceToHost);
    printf("%f\n", r[0]);
}
