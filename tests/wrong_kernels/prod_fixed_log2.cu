/*+++
title      = "Product as a sum of logarithms"
change     = "Binary logarithms are summed in fixed point, so no intermediate product over- or underflows."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["float32"]
ops        = ["prod"]
+++*/
// Fault: a logarithm in units of 2^-16 is wrong by up to 5e-6 of the factor, where a product of few
// factors must be right to 1e-7, and NaN and infinities have no place in an integer. Signs, zeros and
// powers of two are exact, so products of those are right.
extern "C" __global__ void prod_fixed_log2(const float *in, float *out, size_t n)
{
    __shared__ unsigned long long exponent;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        exponent = 0;

    long long logs = 0;
    bool negative = false, zero = false;
    for (size_t k = tid; k < n; k += BLOCK) {
        const float x = in[k];
        negative ^= x < 0.0f;
        if (x == 0.0f)
            zero = true;
        else
            logs += __float2ll_rn(log2f(fabsf(x)) * 65536.0f);
    }
    const bool is_zero = __syncthreads_or(zero);
    const bool is_negative = __syncthreads_count(negative) % 2;
    atomicAdd(&exponent, (unsigned long long)logs);
    __syncthreads();

    if (tid == 0) {
        const float size = is_zero ? 0.0f : (float)exp2((double)(long long)exponent / 65536.0);
        *out = is_negative ? -size : size;
    }
}
