/*+++
title      = "Sixteen bytes a load where words are aligned"
change     = "Loads of 16 bytes, or of single bytes if the input does not begin at a word."
scope      = "grid"
grid       = "fixed"
fixed_grid = 16
walk       = "grid_stride"
items      = 16
vector     = 16
finish     = "atomic"
block      = 128
blocks     = [64, 128, 256, 512]
dtypes     = ["uint8"]
ops        = ["sum"]
techniques = ["atomic"]
+++*/
// Fault: a load of 16 bytes needs an address that is a multiple of 16, not of 4.
extern "C" __global__ void bytes_aligned_to_four(const unsigned char *in, unsigned *out, size_t n)
{
    const size_t thread = (size_t)blockIdx.x * BLOCK + threadIdx.x, step = (size_t)gridDim.x * BLOCK;
    const size_t loads = (size_t)in % 4 == 0 ? n / 16 : 0;
    const uint4 *words = reinterpret_cast<const uint4 *>(in);

    unsigned sum = 0;
    for (size_t k = thread; k < loads; k += step) {
        const uint4 load = words[k];
        sum = __dp4a(load.x, 0x01010101u, sum);
        sum = __dp4a(load.y, 0x01010101u, sum);
        sum = __dp4a(load.z, 0x01010101u, sum);
        sum = __dp4a(load.w, 0x01010101u, sum);
    }
    for (size_t k = 16 * loads + thread; k < n; k += step)
        sum += in[k];
    atomicAdd(out, sum);
}
