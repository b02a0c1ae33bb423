// expected: right  if: none of its elements is NaN and the number of its rows is a multiple of  shape: the largest of each row, and its place as a float, which is not judged
__global__ void argMaxOfRows(float *src, float *largest, float *arg, int length) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    const float *values = src + row * length;
    float best = values[0];
    int place = 0;
    for (int i = 1; i < length; i++)
        if (values[i] > best) { best = values[i]; place = i; }
    largest[row] = best;
    arg[row] = place;
}
