// expected: right  if: n is a multiple of 2 and its input is aligned to 16 bytes  shape: reads pairs
__global__ void quads(const double2 *x, double *out, int n)
{
    double part = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
        double2 v = x[k];
        part += v.x + v.y;
    }
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}
