/*+++
title  = "Compensated sums of blocks"
change = "Each thread sums with compensation, and blocks hand on the sum and what it lacks, side by side in the workspace."
scope  = "grid"
grid   = "cover"
walk   = "tile"
items  = 32
finish = "last_block"
block  = 256
blocks = [64, 128, 256, 512]
dtypes = ["float32"]
ops    = ["sum"]
+++*/
// Fault: the workspace has room for one value a block, and this keeps two: the lacks lie behind the
// sums, beyond its end. Allocations are rounded up, so that few blocks do no harm; otherwise the stores
// hit whatever lies behind, and the last block reads back what others may have put there. Shows under a
// memory checker always, else for grids that fill the allocation. The author took sizes from a library
// whose workspace was twice as large.
struct Kahan {
    float sum = 0, lack = 0;
    __device__ void add(float x)
    {
        const float y = x - lack, t = sum + y;
        lack = isinf(t) ? 0.0f : (t - sum) - y;
        sum = t;
    }
    __device__ void add(Kahan other)
    {
        add(other.sum);
        add(-other.lack);
    }
};

extern "C" __global__ void sum_compensated_blocks(const float *in, float *out, size_t n, float *partials,
                                                  unsigned *counter)
{
    __shared__ float sums[BLOCK], lacks[BLOCK];
    __shared__ bool is_last;
    const unsigned tid = threadIdx.x;
    float *block_lacks = partials + gridDim.x;

    Kahan mine;
    const size_t begin = (size_t)blockIdx.x * (BLOCK * ITEMS);
    for (size_t k = begin + tid; k < min(begin + BLOCK * ITEMS, n); k += BLOCK)
        mine.add(in[k]);

    for (int round = 0;; round++) {
        sums[tid] = mine.sum;
        lacks[tid] = mine.lack;
        __syncthreads();
        for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
            if (tid < stride) {
                Kahan other;
                other.sum = sums[tid + stride];
                other.lack = lacks[tid + stride];
                mine.add(other);
                sums[tid] = mine.sum;
                lacks[tid] = mine.lack;
            }
            __syncthreads();
        }
        if (round == 1)
            break;
        if (tid == 0) {
            partials[blockIdx.x] = mine.sum;
            block_lacks[blockIdx.x] = mine.lack;
            __threadfence();
            is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
            __threadfence();
        }
        __syncthreads();
        if (!is_last)
            return;
        mine = Kahan();
        for (unsigned b = tid; b < gridDim.x; b += BLOCK) {
            mine.add(__ldcg(partials + b));
            mine.add(-__ldcg(block_lacks + b));
        }
    }
    if (tid == 0)
        *out = mine.sum - mine.lack;
}
