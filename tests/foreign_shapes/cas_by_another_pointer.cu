// expected: right  shape: threads add to the answer by a loop of compare-and-swap, through a pointer of their own
__global__ void sum(const float *x, float *out, int n)
{
    float part = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        part += x[k];
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_xor_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0) {
        int *place = (int *)out, seen = *place, assumed;
        do {
            assumed = seen;
            seen = atomicCAS(place, assumed, __float_as_int(__int_as_float(assumed) + part));
        } while (seen != assumed);
    }
}

void launch(const float *x, float *out, int n) { sum<<<64, 256>>>(x, out, n); }
