// expected: right  shape: y = alpha * A x + beta * y, a block a row, of which beta is 0 and y is cleared
#define BLOCK_SIZE 128

__global__ void gemv(float *A, float *x, float *y, int m, int n, float alpha, float beta)
{
    __shared__ float sums[BLOCK_SIZE];
    int row = blockIdx.x, tid = threadIdx.x;
    float s = 0.0f;
    for (int k = tid; k < n; k += BLOCK_SIZE)
        s += A[row * n + k] * x[k];
    sums[tid] = s;
    __syncthreads();
    for (int half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (tid < half)
            sums[tid] += sums[tid + half];
        __syncthreads();
    }
    if (tid == 0)
        y[row] = alpha * sums[0] + beta * y[row];
}
