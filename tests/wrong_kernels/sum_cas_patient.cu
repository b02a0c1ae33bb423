/*+++
title  = "Double sum by compare and swap"
change = "Each block adds its sum to the answer by compare and swap, with a limit on the attempts."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "atomic"
block  = 512
blocks = [64, 128, 256, 512, 1024]
dtypes = ["float64"]
ops    = ["sum"]
+++*/
// Fault: after 256 lost attempts the loop gives up and the block's sum is lost. The author wanted no
// endless loop in a kernel. Every failure is another block's success, so up to 256 blocks are safe, and
// a quiet memory system is safe with any number; shows for larger grids when many blocks end at once.
__device__ void add_to(double *address, double value)
{
    unsigned long long *word = (unsigned long long *)address;
    unsigned long long seen = *(volatile unsigned long long *)word;
    for (int attempt = 0; attempt < 256; attempt++) {
        const double next = __longlong_as_double(seen) + value;
        const unsigned long long found = atomicCAS(word, seen, __double_as_longlong(next));
        if (found == seen)
            return;
        seen = found;
    }
}

extern "C" __global__ void sum_cas_patient(const double *in, double *out, size_t n)
{
    __shared__ double warp_sums[BLOCK / 32];
    const unsigned tid = threadIdx.x, lane = tid % 32;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS);

    double sum = 0;
#pragma unroll
    for (unsigned item = 0; item < ITEMS; item++) {
        const size_t k = begin + item * BLOCK + tid;
        sum += k < n ? in[k] : 0.0;
    }
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0)
        warp_sums[tid / 32] = sum;
    __syncthreads();
    if (tid == 0) {
        for (unsigned w = 1; w < BLOCK / 32; w++)
            sum += warp_sums[w];
        add_to(out, sum);
    }
}
