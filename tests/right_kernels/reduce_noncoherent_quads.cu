/*+++
title      = "Four floats a load through the read-only path"
change     = "Aligned quads of floats come by ld.global.nc.v4 written in PTX, the ends by __ldg."
scope      = "grid"
grid       = "fixed"
fixed_grid = 120
walk       = "grid_stride"
items      = 4
vector     = 4
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
requires   = ["inline_ptx"]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride", "last_block"]
dtypes     = ["float32"]
+++*/
// Right: nothing writes the input while the kernel runs, as the read-only path demands; partials, which are
// written, are read by ldcg. Elements before the first 16-byte boundary and behind the last quad go singly.
struct Quad {
    float at[4];
};

__device__ __forceinline__ Quad load_quad(const float *address)
{
    Quad q;
    asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(q.at[0]), "=f"(q.at[1]), "=f"(q.at[2]), "=f"(q.at[3])
        : "l"(__cvta_generic_to_global(address)));
    return q;
}

__device__ void fold_block(Acc *shared, Acc value)
{
    const unsigned tid = threadIdx.x;
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
}

extern "C" __global__ void reduce_noncoherent_quads(const In *in, Out *out, size_t n, Acc *partials,
                                                    unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    const size_t head = min((16 - (size_t)in % 16) % 16 / sizeof(float), n);
    const size_t quads = (n - head) / 4, tail = head + 4 * quads;

    Acc value = Op::identity();
    for (size_t q = (size_t)blockIdx.x * BLOCK + tid; q < quads; q += (size_t)gridDim.x * BLOCK) {
        const size_t k = head + 4 * q;
        const Quad quad = load_quad(in + k);
#pragma unroll
        for (unsigned e = 0; e < 4; e++)
            value = Op::combine(value, Op::lift(quad.at[e], k + e));
    }
    if (blockIdx.x == 0 && tid < head)
        value = Op::combine(value, Op::lift(__ldg(in + tid), tid));
    if (blockIdx.x == 0 && tail + tid < n)
        value = Op::combine(value, Op::lift(__ldg(in + tail + tid), tail + tid));
    fold_block(shared, value);

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < gridDim.x; k += BLOCK)
        value = Op::combine(value, __ldcg(partials + k));
    fold_block(shared, value);
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
