// What the links carry while all ranks do the same to their neighbours: the most that an exchange can reach.
// Both go tile by tile, as those that fold do.
__device__ unsigned beyond() { return (RANK[0] + 1) % RANKS; }

extern "C" __global__ void __launch_bounds__(512) link_write(size_t in, size_t out, size_t packs)
{
    const uint4 *mine = at<uint4>(RANK[0], in);
    uint4 *theirs = at<uint4>(beyond(), out);
    for (size_t p = blockIdx.x * 512 + threadIdx.x; p < packs; p += (size_t)gridDim.x * 512)
        theirs[p] = mine[p];
}

extern "C" __global__ void __launch_bounds__(512) link_read(size_t in, size_t out, size_t packs)
{
    const uint4 *theirs = at<uint4>(beyond(), in);
    uint4 *mine = at<uint4>(RANK[0], out);
    for (size_t p = blockIdx.x * 512 + threadIdx.x; p < packs; p += (size_t)gridDim.x * 512)
        mine[p] = theirs[p];
}
