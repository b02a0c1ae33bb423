/*+++
title      = "Groups of equal keys in a warp"
change     = "Lanes are keyed by their rank modulo 5; lanes of one key find each other by match and fold pairwise by rank."
scope      = "grid"
grid       = "cover"
walk       = "tile"
items      = 4
finish     = "relaunch_one_block"
block      = 256
blocks     = [32, 64, 96, 128, 192, 256, 512]
techniques = ["shuffle", "multi_add"]
+++*/
// Right: all lanes stay in the loop until no lane has a peer above it, so every vote and shuffle names
// lanes that are there; a lane of odd rank is struck off only after its even neighbour has taken it in.
__device__ Acc fold_peers(unsigned key, Acc value, bool *leads)
{
    constexpr unsigned ALL = 0xffffffffu;
    const unsigned lane = threadIdx.x % 32;
    unsigned peers = __match_any_sync(ALL, key);
    unsigned rank = __popc(peers & ((1u << lane) - 1));
    *leads = __ffs(peers) == (int)lane + 1;
    peers &= 0xfffffffeu << lane;
    while (__any_sync(ALL, peers != 0)) {
        const int next = __ffs(peers);
        const Acc of_next = __shfl_sync(ALL, value, next > 0 ? next - 1 : (int)lane);
        if (next > 0)
            value = Op::combine(value, of_next);
        peers &= ~__ballot_sync(ALL, rank & 1);
        rank >>= 1;
    }
    return value;
}

extern "C" __global__ void reduce_match_groups(const In *in, Out *out, size_t n)
{
    constexpr unsigned KEYS = 5, CELLS = KEYS * (BLOCK / 32);
    __shared__ Acc cells[CELLS];
    const unsigned tid = threadIdx.x, key = tid % 32 % KEYS;
    Acc value = Op::identity();
    for (size_t tile = (size_t)blockIdx.x * BLOCK * ITEMS; tile < n; tile += (size_t)gridDim.x * BLOCK * ITEMS)
        for (unsigned item = 0; item < ITEMS; item++) {
            const size_t k = tile + item * BLOCK + tid;
            if (k < n)
                value = Op::combine(value, Op::lift(in[k], k));
        }

    bool leads;
    value = fold_peers(key, value, &leads);
    if (leads)
        cells[tid / 32 * KEYS + key] = value;
    __syncthreads();
    if (tid >= 32)
        return;
    value = Op::identity();
    for (unsigned k = tid; k < CELLS; k += 32)
        value = Op::combine(value, cells[k]);
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value = Op::combine(value, __shfl_down_sync(0xffffffffu, value, offset));
    if (tid == 0)
        out[blockIdx.x] = Op::finish(value);
}
