// Index of the first maximum, counted from 0; the first NaN wins, as in NumPy. -1 means "none yet".
struct Acc {
    Scalar value;
    long long index;
};
using Result = long long;

struct Operator {
    static __device__ Acc identity() { return {LOWEST, -1}; }
    static __device__ Acc lift(Element x, size_t index) { return {Scalar(x), (long long)index}; }
    static __device__ Acc combine(Acc a, Acc b) { return precedes(a, b) ? a : b; }
    static __device__ Result finish(Acc a) { return a.index; }

    // The larger of two values, whatever their order.
    static __device__ Scalar best(Scalar a, Scalar b) { return greater_of(a, b); }
    // True if a wins whatever the order: it is greater, or the only NaN.
    static __device__ bool better(Scalar a, Scalar b) { return !(b >= a || b != b); }
    // -1 as an unsigned index is the largest one, so an identity loses every tie.
    static __device__ bool precedes(Acc a, Acc b)
    {
        const bool first = (unsigned long long)a.index < (unsigned long long)b.index;
        return first ? !better(b.value, a.value) : better(a.value, b.value);
    }
};
