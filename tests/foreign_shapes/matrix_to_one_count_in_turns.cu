// expected: right
__global__ void equal_in_matrix(const int *cells, int *found, int height, int width, int wanted)
{
    int own = 0;
    for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += blockDim.y * gridDim.y)
        for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < width; x += blockDim.x * gridDim.x)
            if (cells[y * width + x] == wanted) own++;
    if (own) atomicAdd(found, own);
}

void solve(const int *cells, int *found, int height, int width, int wanted)
{
    dim3 block(16, 16), grid((width + 15) / 16, (height + 15) / 16);
    equal_in_matrix<<<grid, block>>>(cells, found, height, width, wanted);
}
