// Product. The identity is 1; no hardware has a multiplying atomic, so a compare-and-swap loop does it.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return Acc(1); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return a * b; }
    static __device__ Result finish(Acc a) { return a; }

    template <class Word>
    static __device__ void swap_in(Word *address, Acc value)
    {
        Word seen = *(volatile Word *)address, assumed;
        do {
            assumed = seen;
            Acc now;
            memcpy(&now, &assumed, sizeof now);
            now = combine(now, value);
            Word next;
            memcpy(&next, &now, sizeof next);
            seen = atomicCAS(address, assumed, next);
        } while (seen != assumed);
    }
    static __device__ void atomic(Acc *address, Acc value)
    {
        if (sizeof(Acc) == 4)
            swap_in((unsigned *)address, value);
        else
            swap_in((unsigned long long *)address, value);
    }
};
