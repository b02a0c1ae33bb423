// expected: wrong  shape: a column more of a matrix
__global__ void total(const float *cells, float *sum, int width, int height) {
    __shared__ float partial[16 * 16];
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int at = threadIdx.y * blockDim.x + threadIdx.x;
    partial[at] = x <= width && y < height ? cells[y * width + x] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x * blockDim.y / 2; step > 0; step /= 2) {
        if (at < step) partial[at] += partial[at + step];
        __syncthreads();
    }
    if (at == 0) atomicAdd(sum, partial[0]);
}

void run(const float *cells, float *sum, int width, int height) {
    dim3 threads(16, 16), blocks((width + 15) / 16, (height + 15) / 16);
    total<<<blocks, threads>>>(cells, sum, width, height);
}
