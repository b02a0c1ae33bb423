/*+++
title      = "Runs through a staged tile"
change     = "Tiles of eight elements a thread are loaded side by side into shared memory and read back as runs of eight."
scope      = "grid"
grid       = "fixed"
fixed_grid = 96
walk       = "contiguous"
finish     = "relaunch_one_block"
block      = 512
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float32", "int32", "uint32"]
ops        = ["sum", "min", "max"]
+++*/
// Fault: the loop has one barrier, between filling and reading; none parts the reading from the next
// filling. A warp that is done with its runs overwrites cells that a slower one has still to read. The
// next tile comes from global memory, which takes longer than reading eight cells, so it mostly works.
// Shows by chance for shares of more than one tile, likelier when the input lies in the cache.
constexpr unsigned RUN = 8, TILE = BLOCK * RUN;

__device__ unsigned padded(unsigned cell) { return cell + cell / 32; }

extern "C" __global__ void reduce_transposed_stage(const In *in, Out *out, size_t n)
{
    __shared__ Acc stage[TILE + TILE / 32];
    const unsigned tid = threadIdx.x;
    const size_t share = (n + gridDim.x - 1) / gridDim.x;
    const size_t begin = blockIdx.x * share, end = min(begin + share, n);

    Acc value = Op::identity();
    for (size_t tile = begin; tile < end; tile += TILE) {
#pragma unroll
        for (unsigned r = 0; r < RUN; r++) {
            const unsigned cell = r * BLOCK + tid;
            stage[padded(cell)] = tile + cell < end ? Op::lift(in[tile + cell], tile + cell) : Op::identity();
        }
        __syncthreads();
#pragma unroll
        for (unsigned r = 0; r < RUN; r++)
            value = Op::combine(value, stage[padded(tid * RUN + r)]);
    }

    __syncthreads();
    stage[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            stage[tid] = Op::combine(stage[tid], stage[tid + stride]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(stage[0]);
}
