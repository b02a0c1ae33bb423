// expected: right  shape: a grid and blocks of two dimensions, one count of all
__global__ void equal_in_matrix(const int *cells, int *found, int height, int width, int wanted) {
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (y < height && x < width && cells[y * width + x] == wanted)
        atomicAdd(found, 1);
}

void solve(const int *cells, int *found, int height, int width, int wanted) {
    dim3 threads(16, 16);
    dim3 blocks((width + 15) / 16, (height + 15) / 16);
    equal_in_matrix<<<blocks, threads>>>(cells, found, height, width, wanted);
}
