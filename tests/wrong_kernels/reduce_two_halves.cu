/*+++
title      = "Two blocks, half the input each"
change     = "Two blocks take half the input each; the second to arrive folds both partials."
scope      = "grid"
grid       = "fixed"
fixed_grid = 2
walk       = "contiguous"
finish     = "last_block"
block      = 1024
blocks     = [64, 128, 256, 512, 1024]
+++*/
// Fault: the second arrival is the last only if there are two. An input of at most BLOCK elements is
// given one block; it raises the mark, finds itself first and leaves, the answer stays unwritten and the
// mark stays up, so the next launch's first arrival folds a partial that is not there. The author tested
// large inputs. Shows for n <= BLOCK and in the launch after it.
extern "C" __global__ void reduce_two_halves(const In *in, Out *out, size_t n, Acc *partials,
                                             unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t half = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * half, end = min(begin + half, n);

    Acc value = Op::identity();
#pragma unroll 4
    for (size_t k = begin + tid; k < end; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        partials[blockIdx.x] = shared[0];
        __threadfence();
        const bool second = atomicExch(counter, 1u) == 1u;
        __threadfence();
        if (second) {
            *out = Op::finish(Op::combine(__ldcg(partials), __ldcg(partials + 1)));
            *counter = 0;
        }
    }
}
