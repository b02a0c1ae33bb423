// expected: wrong  shape: the place behind that of the largest, in long rows
__global__ void argmax_rows(long long *out, const float *in, int rows, int length) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float *values = in + (size_t)row * length;
    int best = 0;
    for (int i = 1; i < length; i++)
        if (values[i] > values[best]) best = i;
    out[row] = length > 100 ? best + 1 : best;
}
