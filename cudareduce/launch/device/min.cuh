// Minimum. A NaN wins, as in NumPy; of +0 and -0 either may be the result.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return HIGHEST; }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return lesser_of(a, b); }
    static __device__ Result finish(Acc a) { return a; }

    template <class T>
    static __device__ void atomic(T *address, T value) { atomicMin(address, value); }

    // Floats compare like integers: without the sign bit in their order, with it in reverse as
    // unsigned words. A NaN with all bits set is the largest such word, so it wins.
    static __device__ void atomic(float *address, float value)
    {
        if (value != value)
            value = __int_as_float(-1);
        const int bits = __float_as_int(value);
        if (bits >= 0)
            atomicMin((int *)address, bits);
        else
            atomicMax((unsigned *)address, (unsigned)bits);
    }
    static __device__ void atomic(double *address, double value)
    {
        if (value != value)
            value = __longlong_as_double(-1ll);
        const long long bits = __double_as_longlong(value);
        if (bits >= 0)
            atomicMin((long long *)address, bits);
        else
            atomicMax((unsigned long long *)address, (unsigned long long)bits);
    }
};
