// expected: right  if: none of its elements is NaN and of equal extremes any will do  shape: the last of equal extremes, in 64 bits
#include <cstdint>

__global__ void argmax_rows(int64_t *out, const float *in, int64_t rows, int64_t length) {
    int64_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        const float *values = in + row * length;
        int64_t best = 0;
        for (int64_t i = 1; i < length; i++)
            if (values[i] >= values[best]) best = i;
        out[row] = best;
    }
}
