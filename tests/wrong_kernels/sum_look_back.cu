/*+++
title      = "Decoupled look-back"
change     = "Shares are drawn dynamically; each publishes its sum, looks back for those before it and publishes the total so far."
scope      = "grid"
grid       = "fixed"
fixed_grid = 256
walk       = "contiguous"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
dtypes     = ["float32"]
ops        = ["sum"]
+++*/
// Fault: value and status are two words and no fence stands between them, neither where they are
// published nor where they are read, so a status may be seen ahead of its value and an old value be
// added. The author made all of them volatile. Shows by chance with two shares and more. Shares are
// drawn in the order of starting, so nobody waits for a block that has not begun, and the epoch tells
// this launch's states from the last one's.
__device__ volatile float aggregate[256], inclusive[256];
__device__ volatile unsigned status[256];
__device__ unsigned next_share, epoch;

extern "C" __global__ void sum_look_back(const float *in, float *out, size_t n, float *, unsigned *counter)
{
    __shared__ float sums[32];
    __shared__ unsigned drawn;
    const unsigned tid = threadIdx.x;
    if (tid == 0)
        drawn = atomicAdd(&next_share, 1u);
    __syncthreads();
    const unsigned mine = drawn;
    const size_t length = (n + gridDim.x - 1) / gridDim.x, end = min((mine + 1) * length, n);

    float sum = 0;
    for (size_t k = mine * length + tid; k < end; k += BLOCK)
        sum += in[k];
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (tid % 32 == 0)
        sums[tid / 32] = sum;
    __syncthreads();
    if (tid != 0)
        return;
    for (unsigned w = 1; w < BLOCK / 32; w++)
        sum += sums[w];

    const unsigned base = 2 * epoch;  // base + 1: sum published, base + 2: total published
    aggregate[mine] = sum;
    status[mine] = base + 1;
    float before = 0;
    for (int b = (int)mine - 1; b >= 0; b--) {
        unsigned seen;
        do
            seen = status[b];
        while (seen <= base);
        if (seen == base + 2) {
            before += inclusive[b];
            break;
        }
        before += aggregate[b];
    }
    inclusive[mine] = before + sum;
    status[mine] = base + 2;
    if (mine == gridDim.x - 1)
        *out = before + sum;

    // Whoever leaves last makes ready for the next launch.
    __threadfence();
    if (atomicInc(counter, gridDim.x - 1) == gridDim.x - 1) {
        next_share = 0;
        epoch++;
    }
}
