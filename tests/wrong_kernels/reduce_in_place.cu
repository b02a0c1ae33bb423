/*+++
title  = "No workspace: partials in place"
change = "A block stores its partial over the first element of its tile, which it has read, and the last block gathers them."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 8
finish = "last_block"
block  = 256
blocks = [32, 64, 128, 256, 512, 1024]
dtypes = ["float32", "float64", "int32", "uint32"]
ops    = ["sum", "min", "max"]
+++*/
// Fault: the input is const and belongs to the caller; after the launch every tile's first element is
// the tile's partial. The answer is right the first time, and a second launch, or anybody else who reads
// the input, finds other data. The author came from a program that throws the array away. Shows in the
// second launch on the same input (never for max and min of it), or as a fault if the input is read-only.
extern "C" __global__ void reduce_in_place(const In *in, Out *out, size_t n, Acc *, unsigned *counter)
{
    __shared__ Acc cells[BLOCK];
    __shared__ bool is_last;
    In *scratch = const_cast<In *>(in);
    const unsigned tid = threadIdx.x;
    const size_t tile = BLOCK * ITEMS, begin = blockIdx.x * tile;

    auto tree = [&] {
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            __syncthreads();
            if (tid < stride)
                cells[tid] = Op::combine(cells[tid], cells[tid + stride]);
        }
        __syncthreads();
    };

    Acc value = Op::identity();
    for (size_t k = begin + tid; k < min(begin + tile, n); k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    cells[tid] = value;
    tree();

    if (tid == 0) {
        if (begin < n)
            scratch[begin] = In(cells[0]);
        __threadfence();
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    value = Op::identity();
    for (size_t b = tid; b < gridDim.x && b * tile < n; b += BLOCK)
        value = Op::combine(value, Acc(__ldcg(scratch + b * tile)));
    cells[tid] = value;
    tree();
    if (tid == 0)
        *out = Op::finish(cells[0]);
}
