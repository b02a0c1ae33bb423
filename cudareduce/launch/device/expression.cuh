// The user's own operator, from --op-expr and --identity.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return Acc(IDENTITY); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return Acc(EXPRESSION); }
    static __device__ Result finish(Acc a) { return a; }
    static __device__ void atomic(Acc *address, Acc value)
    {
        combine_in_memory(address, value, [](Acc a, Acc b) { return combine(a, b); });
    }
};
