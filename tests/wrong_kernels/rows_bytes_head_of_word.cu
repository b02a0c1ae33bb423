/*+++
title      = "Row sum of bytes, head, vectors, tail"
change     = "Bytes up to an aligned address are taken singly, then sixteen a load, then the rest."
scope      = "rows"
grid       = "block_per_row"
walk       = "contiguous"
finish     = "none"
vector     = 16
block      = 128
blocks     = [32, 64, 128, 256]
dtypes     = ["int8"]
ops        = ["sum"]
+++*/
// Fault: the head goes on to the next multiple of 4, which served when the loads were 4 bytes wide; now
// they have 16. Only rows that begin at a multiple of 16, or up to 3 bytes before one, are loaded from
// an aligned address; the others fault: for n that is no multiple of 16, from the second row on.
__device__ int sum_of_word(int word)
{
    return (signed char)word + (signed char)(word >> 8) + (signed char)(word >> 16) + (word >> 24);
}

extern "C" __global__ void rows_bytes_head_of_word(const signed char *in, int *out, size_t n, size_t rows)
{
    __shared__ int total;
    const unsigned tid = threadIdx.x;
    const signed char *row = in + (size_t)blockIdx.x * n;
    const size_t head = min((size_t)(-(long long)row & 3), n);
    const size_t vectors = (n - head) / 16, body = head + 16 * vectors;
    const int4 *wide = reinterpret_cast<const int4 *>(row + head);

    if (tid == 0)
        total = 0;
    __syncthreads();

    int sum = tid < head ? row[tid] : 0;
    for (size_t v = tid; v < vectors; v += BLOCK) {
        const int4 x = wide[v];
        sum += sum_of_word(x.x) + sum_of_word(x.y) + sum_of_word(x.z) + sum_of_word(x.w);
    }
    for (size_t k = body + tid; k < n; k += BLOCK)
        sum += row[k];

    atomicAdd(&total, sum);
    __syncthreads();
    if (tid == 0)
        out[blockIdx.x] = total;
}
