// Probe kernels of the timer: an empty kernel, loads without a reduction, a hash of memory.

// Measures the launch overhead between two events.
extern "C" __global__ void empty_kernel() {}

// Keeps the stream busy for some time without memory accesses.
extern "C" __global__ void wait_ns(size_t ns)
{
    size_t now, start;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

// Reads every 16-byte word once and writes nothing. Its bandwidth is the ceiling of kernels that read
// their input, and it flushes the L2 without dirty lines. Each block strides over tiles of THREADS * LOADS
// words; LOADS loads are in flight before the first is used.
template <unsigned LOADS>
__device__ void read_tiles(const uint4 *in, unsigned *never, size_t words)
{
    const size_t tile = (size_t)blockDim.x * LOADS;
    unsigned folded = 0;
    for (size_t base = blockIdx.x * tile; base < words; base += gridDim.x * tile) {
        uint4 loaded[LOADS];
        if (base + tile <= words) {
#pragma unroll
            for (unsigned k = 0; k < LOADS; k++)
                loaded[k] = in[base + k * blockDim.x + threadIdx.x];
        } else {
#pragma unroll
            for (unsigned k = 0; k < LOADS; k++) {
                const size_t i = base + k * blockDim.x + threadIdx.x;
                loaded[k] = i < words ? in[i] : make_uint4(0, 0, 0, 0);
            }
        }
#pragma unroll
        for (unsigned k = 0; k < LOADS; k++)
            folded |= loaded[k].x & loaded[k].y & loaded[k].z & loaded[k].w;
    }
    // The compiler does not know that `never` is null, so it cannot remove the loads.
    if (never != nullptr)
        atomicOr(never, folded);
}

extern "C" __global__ void read_2(const uint4 *in, unsigned *never, size_t words)
{
    read_tiles<2>(in, never, words);
}

extern "C" __global__ void read_4(const uint4 *in, unsigned *never, size_t words)
{
    read_tiles<4>(in, never, words);
}

extern "C" __global__ void read_8(const uint4 *in, unsigned *never, size_t words)
{
    read_tiles<8>(in, never, words);
}

// Adds a hash of memory to sums[slot], to detect changed bytes without a copy to the host. Every word is
// mixed with its index, so that swapped words change the hash. Bytes before the first aligned word and
// after the last one are hashed as one more word.
extern "C" __global__ void digest(const unsigned char *start, size_t bytes,
                                  unsigned long long *sums, size_t slot)
{
    const size_t off = (4 - (size_t)start % 4) % 4, front = off < bytes ? off : bytes;
    const unsigned *words = reinterpret_cast<const unsigned *>(start + front);
    const size_t whole = (bytes - front) / 4, step = (size_t)gridDim.x * blockDim.x;
    unsigned long long folded = 0;
    for (size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x; k <= whole; k += step) {
        unsigned long long word = 0;
        if (k < whole)
            word = words[k];
        for (size_t b = 0; k == whole && b < front; b++)
            word = 256 * word + start[b];
        for (size_t b = front + 4 * whole; k == whole && b < bytes; b++)
            word = 256 * word + start[b];
        unsigned long long mixed = (k + 1) * 0x9E3779B97F4A7C15 ^ word * 0xC2B2AE3D27D4EB4F;
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9;
        folded += mixed ^ mixed >> 32;
    }
    for (unsigned lanes = 16; lanes > 0; lanes /= 2)
        folded += __shfl_down_sync(0xffffffff, folded, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sums + slot, folded);
}
