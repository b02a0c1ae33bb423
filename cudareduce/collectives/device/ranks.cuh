// Device functions of kernels that combine arrays of several GPUs.
using namespace ranks;

struct alignas(VECTOR * sizeof(In)) Pack { In at[VECTOR]; };
// LOADS: packs that a thread loads from each rank before it combines them, to have enough loads in flight. TILE: packs
// of a block's tile.
constexpr unsigned LOADS = RANKS < 8 ? 8 / RANKS : 1, TILE = LOADS * BLOCK;

// Combines one pack of each rank in the order of ranks, so that every rank gets the same bits.
__device__ Pack combine_ranks(const Pack (&of)[RANKS])
{
    Pack result;
#pragma unroll
    for (unsigned e = 0; e < VECTOR; e++) {
        Acc value = Op::lift(of[0].at[e], 0);
#pragma unroll
        for (unsigned r = 1; r < RANKS; r++)
            value = Op::combine(value, Op::lift(of[r].at[e], r));
        result.at[e] = In(Op::finish(value));
    }
    return result;
}

// Combines a thread's packs of a tile, `first` and every BLOCK-th one after it up to `end`. `place(r, p)` is the
// address of pack p of rank r, `store(p, pack)` stores a result.
template <typename Place, typename Store> __device__ void fold_tile(size_t first, size_t end, Place place, Store store)
{
    Pack of[LOADS][RANKS];
#pragma unroll
    for (unsigned l = 0; l < LOADS; l++)
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            if (first + l * BLOCK < end)
                of[l][r] = *place(r, first + l * BLOCK);
#pragma unroll
    for (unsigned l = 0; l < LOADS; l++)
        if (first + l * BLOCK < end)
            store(first + l * BLOCK, combine_ranks(of[l]));
}

// Combines the packs [begin, end) of all ranks' arrays, tile by tile.
template <typename Store>
__device__ void fold_tiles(const Ranks &ranks, size_t in, size_t begin, size_t end, Store store)
{
    for (size_t tile = begin + blockIdx.x * TILE; tile < end; tile += (size_t)gridDim.x * TILE)
        fold_tile(tile + threadIdx.x, end, [&](unsigned r, size_t p) { return ranks.at<Pack>(r, in) + p; }, store);
}

// Combines this rank's slice without reading over the links. Half of the blocks write this rank's input for the other
// ranks' slices to slots in their windows, tile by tile, and release each tile by storing the call number and the number
// of tiles in a counter. The other blocks acquire the counters and combine the tiles. Calls alternate between two sets
// of slots: a rank that sends in call c + 2 has received all of c + 1 from this rank, which had finished c before.
template <typename Store>
__device__ void fold_sent(const Ranks &ranks, size_t in, size_t packs, size_t mail, size_t call, Store store)
{
    const unsigned me = ranks.me, half = gridDim.x / 2, block = blockIdx.x % half;
    const size_t most = (packs + RANKS - 1) / RANKS, tiles = (most + TILE - 1) / TILE;
    const size_t slots = mail + MOST_BLOCKS * RANKS * sizeof(Word) + call % 2 * RANKS * most * sizeof(Pack);
    const size_t begin = packs * me / RANKS, end = packs * (me + 1) / RANKS;
    const bool sends = blockIdx.x < half;
    for (size_t tile = block; tile < tiles && sends; tile += half) {
        const size_t first = tile * TILE + threadIdx.x;
        for (unsigned k = 1; k < RANKS; k++) { // start with the next rank
            const unsigned r = (me + k) % RANKS;
            const size_t theirs = packs * r / RANKS, count = packs * (r + 1) / RANKS - theirs;
            Pack mine[LOADS];
#pragma unroll
            for (unsigned l = 0; l < LOADS; l++)
                if (first + l * BLOCK < count)
                    mine[l] = ranks.here<Pack>(in)[theirs + first + l * BLOCK];
#pragma unroll
            for (unsigned l = 0; l < LOADS; l++)
                if (first + l * BLOCK < count)
                    ranks.at<Pack>(r, slots)[me * most + first + l * BLOCK] = mine[l];
        }
        __syncthreads(); // all of the tile is written before the counter
        if (threadIdx.x < RANKS && threadIdx.x != me)
            Shared<Word>(ranks.at<Word>(threadIdx.x, mail)[block * RANKS + me])
                .store(call << 32 | (tile / half + 1), cuda::std::memory_order_release);
        ranks.delay_if_late();
    }
    for (size_t tile = block; tile < tiles && !sends; tile += half) {
        if (threadIdx.x < RANKS && threadIdx.x != me) {
            Shared<Word> written(ranks.here<Word>(mail)[block * RANKS + threadIdx.x]);
            ranks.wait(threadIdx.x, [&] {
                return written.load(cuda::std::memory_order_acquire) >= (call << 32 | (tile / half + 1));
            });
        }
        ranks.delay_if_late();
        __syncthreads();
        const auto place = [&](unsigned r, size_t p) {
            return r == me ? ranks.here<Pack>(in) + p : ranks.here<Pack>(slots) + r * most + (p - begin);
        };
        fold_tile(begin + tile * TILE + threadIdx.x, end, place, store);
    }
}
