// expected: wrong  shape: it combines bits, which no operator does
// says: --op-expr 'a ^ b' --identity=0
__global__ void parity(const unsigned *words, unsigned *all, int count)
{
    unsigned mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x) mine ^= words[k];
    atomicXor(all, mine);
}
