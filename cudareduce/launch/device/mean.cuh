// Mean: a sum divided once, at the very end. Integers accumulate in double, as NumPy's mean does.
using Acc = Scalar;
using Result = Acc;

// The number of elements of one result. The n of later passes is the number of partials.
extern "C" {
__constant__ unsigned long long COUNT;
}

struct Operator {
    static __device__ Acc identity() { return Acc(0); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return a + b; }
    static __device__ Result finish(Acc a) { return a / Acc(COUNT); }
};
