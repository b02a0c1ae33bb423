// Composition of affine maps t -> scale * t + shift modulo 2^32, the left one applied first: does not
// commute, is exact. An element x stands for t -> (2x + 1) t + x + 1: odd scales keep every bit alive,
// and no two maps share a fixed point, without which they would commute.
struct Acc {
    unsigned scale, shift;
};
using Result = Acc;

struct Operator {
    static __device__ Acc identity() { return {1u, 0u}; }
    static __device__ Acc lift(Element x, size_t) { return {2u * (unsigned)x + 1u, (unsigned)x + 1u}; }
    static __device__ Acc combine(Acc l, Acc r)
    {
        return {l.scale * r.scale, r.scale * l.shift + r.shift};
    }
    static __device__ Result finish(Acc a) { return a; }
};
