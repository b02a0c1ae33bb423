// expected: right  if: none of its elements is NaN  shape: a block for each row finds the place of its largest element
__global__ void argmax_rows(const float *x, int *place, int cols)
{
    __shared__ float most[128];
    __shared__ int where[128];
    int t = threadIdx.x, at = 0x7fffffff;
    float a = -INFINITY;
    for (int i = t; i < cols; i += blockDim.x)
        if (x[blockIdx.x * cols + i] > a || at == 0x7fffffff) { a = x[blockIdx.x * cols + i]; at = i; }
    most[t] = a; where[t] = at; __syncthreads();
    for (int s = blockDim.x / 2; s; s /= 2) {
        if (t < s && (most[t + s] > most[t] || (most[t + s] == most[t] && where[t + s] < where[t]))) { most[t] = most[t + s]; where[t] = where[t + s]; }
        __syncthreads();
    }
    if (t == 0) place[blockIdx.x] = where[0];
}
void launch(const float *x, int *place, int rows, int cols) { argmax_rows<<<rows, 128>>>(x, place, cols); }
