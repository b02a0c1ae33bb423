/*+++
title      = "Eight halves a load where 8 bytes are aligned"
change     = "Loads of 16 bytes, or of single halves if the input does not begin at a multiple of 8 bytes."
scope      = "grid"
grid       = "fixed"
fixed_grid = 16
walk       = "grid_stride"
items      = 8
vector     = 8
finish     = "relaunch_one_block"
block      = 128
blocks     = [64, 128, 256, 512]
dtypes     = ["float16"]
ops        = ["sum"]
+++*/
// Fault: a load of 16 bytes needs an address that is a multiple of 16, not of 8.
template <typename T>
__device__ Acc share(const T *in, size_t n)
{
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    return value;
}

template <>
__device__ Acc share(const __half *in, size_t n)
{
    const size_t thread = (size_t)blockIdx.x * BLOCK + threadIdx.x, step = (size_t)gridDim.x * BLOCK;
    const size_t loads = (size_t)in % 8 == 0 ? n / 8 : 0;
    const uint4 *words = reinterpret_cast<const uint4 *>(in);

    Acc value = Op::identity();
    for (size_t k = thread; k < loads; k += step) {
        const uint4 load = words[k];
        const __half *halves = reinterpret_cast<const __half *>(&load);
        for (unsigned j = 0; j < 8; j++)
            value = Op::combine(value, Acc(__half2float(halves[j])));
    }
    for (size_t k = 8 * loads + thread; k < n; k += step)
        value = Op::combine(value, Acc(__half2float(in[k])));
    return value;
}

extern "C" __global__ void half_aligned_to_eight(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    cells[tid] = share(in, n);
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
