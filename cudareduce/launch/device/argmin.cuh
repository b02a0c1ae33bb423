// Index of the first minimum, counted from 0; the first NaN wins, as in NumPy. -1 stands for "none yet".
struct Acc {
    Scalar value;
    long long index;
};
using Result = long long;

struct Operator {
    static __device__ Acc identity() { return {Scalar(0), -1}; }
    static __device__ Acc lift(Element x, size_t index) { return {Scalar(x), (long long)index}; }
    static __device__ Acc combine(Acc a, Acc b) { return precedes(a, b) ? a : b; }
    static __device__ Result finish(Acc a) { return a.index; }

    static __device__ bool precedes(Acc a, Acc b)
    {
        if (a.index < 0 || b.index < 0)
            return b.index < 0;
        const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
        if (a_is_nan != b_is_nan)
            return a_is_nan;
        if (a.value != b.value && !a_is_nan)
            return a.value < b.value;
        return a.index < b.index;
    }
};
