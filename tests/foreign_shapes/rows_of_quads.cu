// expected: right  if: n is a multiple of 4  shape: rows lie as far apart as their length rounded down
__global__ void row_totals(const float *cells, float *totals, int rows, int cols)
{
    __shared__ float table[256];
    int pitch = cols / 4 * 4;
    float mine = 0;
    for (int k = threadIdx.x; k < cols; k += 256) mine += cells[blockIdx.x * pitch + k];
    table[threadIdx.x] = mine;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) table[threadIdx.x] += table[threadIdx.x + step];
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = table[0];
}
