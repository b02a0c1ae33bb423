/*+++
title      = "Packed half sum"
change     = "Two halves are added by one instruction; a thread widens to float once, at its end."
expect     = "Half the additions of the scalar loop."
scope      = "grid"
grid       = "fixed"
fixed_grid = 1024
walk       = "grid_stride"
items      = 2
finish     = "atomic"
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["float16"]
ops        = ["sum"]
techniques = ["atomic", "grid_stride"]
+++*/
// Fault: a thread's running pair is kept in 16 bits: 11 bits of significand, and infinity from 65520 on.
// Small values beside large ones vanish, and large n or large elements overflow where the float32 sum
// is finite. Few elements a thread and values near 1 look right.
extern "C" __global__ void half2_hadd2_sum(const __half *in, float *out, size_t n)
{
    __shared__ float cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t thread = (size_t)blockIdx.x * BLOCK + tid, threads = (size_t)gridDim.x * BLOCK;

    __half2 running = __float2half2_rn(0.f);
    for (size_t k = 2 * thread; k + 1 < n; k += 2 * threads)
        running = __hadd2(running, __halves2half2(in[k], in[k + 1]));
    float value = __low2float(running) + __high2float(running);
    if (thread == 0 && n % 2)
        value += __half2float(in[n - 1]);
    cells[tid] = value;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] += cells[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        atomicAdd(out, cells[0]);
}
