// Sum. The identity is 0; integers wrap modulo 2^w as NumPy's sum(dtype=...) does.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return Acc(0); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return a + b; }
    static __device__ Result finish(Acc a) { return a; }

    template <class T>
    static __device__ void atomic(T *address, T value) { atomicAdd(address, value); }
    static __device__ void atomic(long long *address, long long value)
    {
        // Two's complement addition is the same with and without a sign; CUDA has the unsigned one.
        atomicAdd((unsigned long long *)address, (unsigned long long)value);
    }
};
