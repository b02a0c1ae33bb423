/*+++
title      = "A remainder in halves"
change     = "What sixteen-byte loads leave is taken in pieces of eight, four, two and one bytes."
scope      = "grid"
grid       = "one"
walk       = "grid_stride"
items      = 16
vector     = 16
finish     = "none"
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["uint8"]
ops        = ["sum"]
+++*/
// Fault: the piece of eight is taken if more than eight bytes are left, so exactly eight are lost.
__device__ unsigned sum_of(const unsigned char *from, unsigned count)
{
    unsigned sum = 0;
    for (unsigned k = 0; k < count; k++)
        sum += from[k];
    return sum;
}

extern "C" __global__ void bytes_rest_of_eight(const unsigned char *in, unsigned *out, size_t n)
{
    __shared__ unsigned cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t whole = n / 16;

    unsigned sum = 0;
    for (size_t k = tid; k < whole; k += BLOCK)
        sum += sum_of(in + 16 * k, 16);
    if (tid == 0) {
        size_t at = 16 * whole;
        unsigned left = n % 16;
        if (left > 8) {
            sum += sum_of(in + at, 8);
            at += 8;
            left -= 8;
        }
        if (left < 8)
            sum += sum_of(in + at, left);
    }
    cells[tid] = sum;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] += cells[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        *out = cells[0];
}
