/*+++
title      = "Reduction without return by PTX"
change     = "Each block adds its sum to the answer by a red instruction, which brings no old value back."
scope      = "grid"
grid       = "fill"
walk       = "grid_stride"
finish     = "atomic"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
requires   = ["inline_ptx"]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride", "atomic"]
dtypes     = ["float32"]
ops        = ["sum"]
+++*/
// Right: the address is turned into one of the global window, as the instruction asks, and the answer holds 0
// beforehand.
static_assert(sizeof(Acc) == 4, "the instruction adds a float");

__device__ __forceinline__ void add_to(float *answer, float value)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(answer)),
                 "f"(value)
                 : "memory");
}

extern "C" __global__ void reduce_red_instruction(const In *in, Out *out, size_t n)
{
    __shared__ float cells[BLOCK];
    const unsigned tid = threadIdx.x;
    float sum = 0.0f;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        sum += in[k];
    cells[tid] = sum;
    __syncthreads();
#pragma unroll
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] += cells[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        add_to(out, cells[0]);
}
