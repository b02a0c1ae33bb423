// CUDA shuffles built-in types only; a struct travels as its 32-bit words. The emulator's shuffles
// take any type.
#ifndef CUDAEMU
#define STRUCT_SHUFFLE(NAME, LANE)                                                               \
    __device__ inline Acc NAME(unsigned mask, Acc value, LANE, int width = 32)                   \
    {                                                                                            \
        unsigned words[sizeof(Acc) / 4];                                                         \
        memcpy(words, &value, sizeof value);                                                     \
        for (unsigned &word : words)                                                             \
            word = NAME(mask, word, lane, width);                                                \
        memcpy(&value, words, sizeof value);                                                     \
        return value;                                                                            \
    }
STRUCT_SHUFFLE(__shfl_sync, int lane)
STRUCT_SHUFFLE(__shfl_up_sync, unsigned lane)
STRUCT_SHUFFLE(__shfl_down_sync, unsigned lane)
STRUCT_SHUFFLE(__shfl_xor_sync, int lane)
#undef STRUCT_SHUFFLE
__device__ inline Acc __ldcg(const Acc *address)
{
    unsigned words[sizeof(Acc) / 4];
    for (unsigned k = 0; k < sizeof(Acc) / 4; k++)
        words[k] = __ldcg((const unsigned *)address + k);
    Acc value;
    memcpy(&value, words, sizeof value);
    return value;
}
#endif
