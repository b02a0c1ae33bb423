/*+++
title      = "Maximum as integer keys"
change     = "Floats become unsigned keys of the same order, so one warp-wide integer reduction replaces five shuffles."
scope      = "grid"
grid       = "fixed"
fixed_grid = 128
walk       = "grid_stride"
finish     = "relaunch_one_block"
min_cc     = "8.0"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["max"]
+++*/
// Fault: the key of a NaN without the sign bit lies above +infinity and wins, as it must, but a NaN with
// the sign bit (0xffc00000, what x86 makes of 0/0) has a key below that of -infinity and is lost.
__device__ unsigned to_key(float x)
{
    const unsigned bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float from_key(unsigned key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

extern "C" __global__ void max_key_redux(const float *in, float *out, size_t n)
{
    __shared__ unsigned keys[32];
    const unsigned tid = threadIdx.x, lowest = to_key(-INFINITY);

    unsigned key = lowest;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        key = max(key, to_key(in[k]));

    key = __reduce_max_sync(0xffffffffu, key);
    if (tid % 32 == 0)
        keys[tid / 32] = key;
    __syncthreads();
    if (tid < 32) {
        key = tid < BLOCK / 32 ? keys[tid] : lowest;
        key = __reduce_max_sync(0xffffffffu, key);
        if (tid == 0)
            out[blockIdx.x] = from_key(key);
    }
}
