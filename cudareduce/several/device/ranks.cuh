// What kernels that combine arrays of several GPUs share.
using namespace ranks;

struct alignas(VECTOR * sizeof(In)) Pack { In at[VECTOR]; };

// The packs [begin, end) of all ranks' arrays, tile by tile: loaded from all, combined in the order of
// ranks, and so to the same bits whoever does it, and stored by `store`.
template <typename Store> __device__ void fold_tiles(size_t in, size_t begin, size_t end, Store store)
{
    constexpr unsigned LOADS = RANKS < 8 ? 8 / RANKS : 1, TILE = LOADS * BLOCK;
    for (size_t tile = begin + blockIdx.x * TILE; tile < end; tile += (size_t)gridDim.x * TILE) {
        const size_t first = tile + threadIdx.x;
        Pack of[LOADS][RANKS];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++)
#pragma unroll
            for (unsigned r = 0; r < RANKS; r++)
                if (first + l * BLOCK < end)
                    of[l][r] = at<Pack>(r, in)[first + l * BLOCK];
#pragma unroll
        for (unsigned l = 0; l < LOADS; l++) {
            Pack answer;
#pragma unroll
            for (unsigned e = 0; e < VECTOR; e++) {
                Acc value = Op::lift(of[l][0].at[e], 0);
#pragma unroll
                for (unsigned r = 1; r < RANKS; r++)
                    value = Op::combine(value, Op::lift(of[l][r].at[e], r));
                answer.at[e] = In(Op::finish(value));
            }
            if (first + l * BLOCK < end)
                store(first + l * BLOCK, answer);
        }
    }
}
