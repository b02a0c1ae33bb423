// An atomic for operators without a hardware atomic: compute the result from the value read, store it by
// compare-and-swap if the value is unchanged, else repeat with the current value.
template <class Word, class Value, class Combine>
__device__ void swap_in(Word *address, Value value, Combine combine)
{
    Word seen = atomicCAS(address, Word(0), Word(0)), assumed;
    do {
        assumed = seen;
        Value now;
        memcpy(&now, &assumed, sizeof now);
        now = combine(now, value);
        Word next;
        memcpy(&next, &now, sizeof next);
        seen = atomicCAS(address, assumed, next);
    } while (seen != assumed);
}

template <class Value, class Combine>
__device__ void combine_in_memory(Value *address, Value value, Combine combine)
{
    if constexpr (sizeof(Value) == 4)
        swap_in((unsigned *)address, value, combine);
    else
        swap_in((unsigned long long *)address, value, combine);
}

