// Product. The identity is 1; no hardware has a multiplying atomic.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return Acc(1); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return a * b; }
    static __device__ Result finish(Acc a) { return a; }

    static __device__ void atomic(Acc *address, Acc value)
    {
        combine_in_memory(address, value, [](Acc a, Acc b) { return combine(a, b); });
    }
};
