// Measures link bandwidth: copies this rank's array to the next rank, or the next rank's array here. All ranks do so
// at once, tile by tile with several loads in flight, like the kernels that combine arrays.
__device__ unsigned next(const Ranks &ranks) { return (ranks.me + 1) % RANKS; }

__device__ void copy(const uint4 *from, uint4 *to, size_t packs)
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
    copy(ranks.here<uint4>(in), ranks.at<uint4>(next(ranks), out), packs);
}

extern "C" __global__ void __launch_bounds__(512) link_read(
    const __grid_constant__ Ranks ranks, size_t in, size_t out, size_t packs)
{
    copy(ranks.at<uint4>(next(ranks), in), ranks.here<uint4>(out), packs);
}
