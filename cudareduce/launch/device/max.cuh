// Maximum. A NaN wins, as in NumPy; of +0 and -0 either may be the result.
using Acc = Scalar;
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return LOWEST; }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return greater_of(a, b); }
    static __device__ Result finish(Acc a) { return a; }

    template <class T>
    static __device__ void atomic(T *address, T value) { atomicMax(address, value); }

    // Floats compare like integers: without the sign bit in their order, with it in reverse as
    // unsigned words. A NaN without the sign bit lies above +infinity, so it wins.
    static __device__ void atomic(float *address, float value)
    {
        if (value != value)
            value = __int_as_float(0x7fffffff);
        const int bits = __float_as_int(value);
        if (bits >= 0)
            atomicMax((int *)address, bits);
        else
            atomicMin((unsigned *)address, (unsigned)bits);
    }
    static __device__ void atomic(double *address, double value)
    {
        if (value != value)
            value = __longlong_as_double(0x7fffffffffffffffll);
        const long long bits = __double_as_longlong(value);
        if (bits >= 0)
            atomicMax((long long *)address, bits);
        else
            atomicMin((unsigned long long *)address, (unsigned long long)bits);
    }
};
