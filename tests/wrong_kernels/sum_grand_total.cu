/*+++
title  = "A grand total on the device"
change = "Blocks add to a double on the device, which the last of them rounds once into the answer."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 16
finish = "last_block"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
dtypes = ["float32"]
ops    = ["sum"]
+++*/
// Fault: the total is 0 when the module is loaded and never again, so each launch adds to the sum of all
// launches before it. The author's program launches once. The counter is reset, which hides that the
// total is not. Shows in the second launch.
__device__ double grand_total;

extern "C" __global__ void sum_grand_total(const float *in, float *out, size_t n, float *, unsigned *counter)
{
    __shared__ double shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * BLOCK * ITEMS;
    const size_t end = min(begin + BLOCK * ITEMS, n);

    double sum = 0;
    for (size_t k = begin + tid; k < end; k += BLOCK)
        sum += in[k];
    shared[tid] = sum;
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            shared[tid] += shared[tid + s];
        __syncthreads();
    }
    if (tid == 0) {
        atomicAdd(&grand_total, shared[0]);
        __threadfence();
        if (atomicInc(counter, gridDim.x - 1) == gridDim.x - 1) {
            __threadfence();
            *out = (float)*(volatile double *)&grand_total;
        }
    }
}
