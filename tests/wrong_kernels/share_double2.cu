/*+++
title      = "Contiguous shares by double2"
change     = "Each of 100 blocks walks its share two doubles at a time."
scope      = "grid"
grid       = "fixed"
fixed_grid = 100
walk       = "contiguous"
finish     = "relaunch_one_block"
vector     = 2
block      = 256
blocks     = [64, 128, 256, 512]
dtypes     = ["float64"]
ops        = ["sum"]
+++*/
// Fault: shares are as long as n makes them. With an odd share every second block begins at an address
// that is not a multiple of 16, where a double2 load faults. Round sizes, whose share is even, are right.
struct Share {
    const double *begin;
    size_t count;
};

__device__ Share share_of(const double *in, size_t n)
{
    const size_t length = (n + gridDim.x - 1) / gridDim.x;
    const size_t first = min(length * blockIdx.x, n);
    return {in + first, min(length, n - first)};
}

extern "C" __global__ void share_double2(const double *in, double *out, size_t n)
{
    __shared__ double cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const Share share = share_of(in, n);
    const double2 *pairs = reinterpret_cast<const double2 *>(share.begin);

    double x = 0.0, y = 0.0;
    for (size_t k = tid; k < share.count / 2; k += BLOCK) {
        const double2 two = __ldg(pairs + k);
        x += two.x;
        y += two.y;
    }
    if (tid == 0 && share.count % 2)
        x += share.begin[share.count - 1];
    cells[tid] = x + y;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] += cells[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = cells[0];
}
