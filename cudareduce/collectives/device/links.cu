// What a link carries: this rank's array goes to the next rank, or the next rank's comes here. All ranks at once do
// what an exchange does at most. Tile by tile, several loads under way, as those that fold go.
__device__ unsigned beyond(const Ranks &ranks) { return (ranks.me + 1) % RANKS; }

__device__ void carry(const uint4 *from, uint4 *to, size_t packs)
{
    constexpr unsigned THREADS = 512, LOADS = 4, TILE = LOADS * THREADS;
    for (size_t tile = blockIdx.x * TILE; tile < packs; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        uint4 of[LOADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * THREADS < packs)
                of[l] = from[first + l * THREADS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
            if (first + l * THREADS < packs)
                to[first + l * THREADS] = of[l];
    }
}

extern "C" __global__ void __launch_bounds__(512) link_write(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs)
{
    carry(ranks.here<uint4>(in), ranks.at<uint4>(beyond(ranks), out), packs);
}

extern "C" __global__ void __launch_bounds__(512) link_read(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs)
{
    carry(ranks.at<uint4>(beyond(ranks), in), ranks.here<uint4>(out), packs);
}
