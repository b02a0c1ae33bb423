/*+++
title      = "Arg-maximum, value and index shuffled apart"
change     = "Value and index travel in two shuffles, without a struct."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 1024
blocks     = [128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["argmax"]
+++*/
// Fault: between lanes only values are compared and the lower lane keeps a tie. Lanes stride over the
// array, so the lower lane may hold the later index: with equal maxima at 1 and at BLOCK, lane 0 answers
// BLOCK. Arrays whose maximum occurs once, or only within the first BLOCK elements, are right.
__device__ bool above(float a, long long ia, float b, long long ib)
{
    if (ia < 0 || ib < 0)
        return ia >= 0 && ib < 0;
    return a > b || (a != a && b == b);
}

__device__ void warp_argmax(float &v, long long &i)
{
    for (unsigned d = 16; d > 0; d >>= 1) {
        const float ov = __shfl_down_sync(0xffffffffu, v, d);
        const long long oi = __shfl_down_sync(0xffffffffu, i, d);
        if (above(ov, oi, v, i)) {
            v = ov;
            i = oi;
        }
    }
}

extern "C" __global__ void argmax_value_index_shuffle(const float *in, long long *out, size_t n)
{
    __shared__ float values[32];
    __shared__ long long indices[32];
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;

    float v = 0.f;
    long long i = -1;
    for (long long k = tid; k < (long long)n; k += BLOCK) {
        const float x = in[k];
        if (above(x, k, v, i)) {
            v = x;
            i = k;
        }
    }
    warp_argmax(v, i);
    if (lane == 0) {
        values[warp] = v;
        indices[warp] = i;
    }
    __syncthreads();
    if (warp == 0) {
        v = lane < BLOCK / 32 ? values[lane] : 0.f;
        i = lane < BLOCK / 32 ? indices[lane] : -1;
        warp_argmax(v, i);
        if (lane == 0)
            *out = i;
    }
}
