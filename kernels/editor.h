// Declarations that let an editor parse a kernel. clangd reads this file through compile_flags.txt; the tool
// never does. The second part, "The tool's", is the prelude of `sum` of float32 in a single launch, with
// example values of BLOCK and ITEMS. A CUDA compiler skips the first part.
#ifndef CUDAREDUCE_EDITOR_H
#define CUDAREDUCE_EDITOR_H

#ifndef __CUDACC__
// CUDA's: keywords.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

// Types: vectors of 2, 3 and 4 components.
using size_t = decltype(sizeof 0);
#define VECTORS(TYPE, NAME, ALIGN2, ALIGN4)                                                      \
    struct NAME##1 { TYPE x; };                                                                  \
    struct alignas(ALIGN2) NAME##2 { TYPE x, y; };                                               \
    struct NAME##3 { TYPE x, y, z; };                                                            \
    struct alignas(ALIGN4) NAME##4 { TYPE x, y, z, w; };                                         \
    __device__ NAME##1 make_##NAME##1(TYPE x);                                                   \
    __device__ NAME##2 make_##NAME##2(TYPE x, TYPE y);                                           \
    __device__ NAME##3 make_##NAME##3(TYPE x, TYPE y, TYPE z);                                   \
    __device__ NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w);
VECTORS(signed char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(unsigned, uint, 8, 16)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
#undef VECTORS

// Built-in variables.
struct dim3 { unsigned x, y, z; };
extern __device__ const uint3 threadIdx, blockIdx;
extern __device__ const dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// Barriers, votes, shuffles, warp reductions (compute capability 8.0), fences.
extern "C" {
__device__ void __syncthreads();
__device__ int __syncthreads_count(int predicate);
__device__ int __syncthreads_and(int predicate);
__device__ int __syncthreads_or(int predicate);
}
__device__ void __syncwarp(unsigned mask = 0xffffffffu);
__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__device__ int __any_sync(unsigned mask, int predicate);
__device__ int __all_sync(unsigned mask, int predicate);
__device__ unsigned __activemask();
template <class T> __device__ T __shfl_sync(unsigned mask, T value, int lane, int w = 32);
template <class T> __device__ T __shfl_up_sync(unsigned mask, T value, unsigned by, int w = 32);
template <class T> __device__ T __shfl_down_sync(unsigned mask, T value, unsigned by, int w = 32);
template <class T> __device__ T __shfl_xor_sync(unsigned mask, T value, int bits, int w = 32);
__device__ int __reduce_add_sync(unsigned mask, int value);
__device__ unsigned __reduce_add_sync(unsigned mask, unsigned value);
__device__ int __reduce_min_sync(unsigned mask, int value);
__device__ unsigned __reduce_min_sync(unsigned mask, unsigned value);
__device__ int __reduce_max_sync(unsigned mask, int value);
__device__ unsigned __reduce_max_sync(unsigned mask, unsigned value);
__device__ unsigned __reduce_and_sync(unsigned mask, unsigned value);
__device__ unsigned __reduce_or_sync(unsigned mask, unsigned value);
__device__ unsigned __reduce_xor_sync(unsigned mask, unsigned value);
extern "C" {
__device__ void __threadfence();
__device__ void __threadfence_block();
__device__ void __threadfence_system();
__device__ void __nanosleep(unsigned ns);
__device__ void __trap();
__device__ void *memcpy(void *to, const void *from, size_t bytes);
}

// Atomics: each returns the old value.
#define ATOMIC(NAME, TYPE) __device__ TYPE NAME(TYPE *address, TYPE value);
#define ATOMIC_INTEGER(NAME)                                                                     \
    ATOMIC(NAME, int) ATOMIC(NAME, unsigned) ATOMIC(NAME, unsigned long long)
ATOMIC_INTEGER(atomicAdd) ATOMIC(atomicAdd, float) ATOMIC(atomicAdd, double)
ATOMIC_INTEGER(atomicExch) ATOMIC(atomicExch, float)
ATOMIC_INTEGER(atomicMin) ATOMIC(atomicMin, long long)
ATOMIC_INTEGER(atomicMax) ATOMIC(atomicMax, long long)
ATOMIC_INTEGER(atomicAnd) ATOMIC_INTEGER(atomicOr) ATOMIC_INTEGER(atomicXor)
ATOMIC(atomicAdd, float2) ATOMIC(atomicAdd, float4)
ATOMIC(atomicSub, int) ATOMIC(atomicSub, unsigned)
ATOMIC(atomicInc, unsigned) ATOMIC(atomicDec, unsigned)
__device__ int atomicCAS(int *address, int expected, int desired);
__device__ unsigned atomicCAS(unsigned *address, unsigned expected, unsigned desired);
__device__ unsigned long long atomicCAS(unsigned long long *address, unsigned long long expected,
                                        unsigned long long desired);
#undef ATOMIC
#undef ATOMIC_INTEGER

// Loads and stores with cache hints, bit casts, bit counts, minimum and maximum, mathematics.
#define LOAD(NAME) template <class T> __device__ T NAME(const T *address);
LOAD(__ldg) LOAD(__ldca) LOAD(__ldcg) LOAD(__ldcs) LOAD(__ldcv) LOAD(__ldlu)
#undef LOAD
#define STORE(NAME) template <class T> __device__ void NAME(T *address, T value);
STORE(__stcg) STORE(__stcs) STORE(__stwb) STORE(__stwt)
#undef STORE
__device__ int __float_as_int(float value);
__device__ unsigned __float_as_uint(float value);
__device__ float __int_as_float(int value);
__device__ float __uint_as_float(unsigned value);
__device__ long long __double_as_longlong(double value);
__device__ double __longlong_as_double(long long value);
__device__ int __dp4a(int a, int b, int c);
__device__ unsigned __dp4a(unsigned a, unsigned b, unsigned c);
#define PAIRS(NAME) __device__ unsigned NAME(unsigned a, unsigned b);
PAIRS(__vmaxu2) PAIRS(__vminu2) PAIRS(__vmaxs2) PAIRS(__vmins2)
#undef PAIRS
__device__ int __popc(unsigned value);
__device__ int __popcll(unsigned long long value);
__device__ int __clz(int value);
__device__ int __clzll(long long value);
__device__ int __ffs(int value);
__device__ int __ffsll(long long value);
template <class A, class B> __device__ decltype(true ? A() : B()) min(A a, B b);
template <class A, class B> __device__ decltype(true ? A() : B()) max(A a, B b);
extern "C" {
#define MATH(NAME, PARAMETERS)                                                                   \
    __device__ double NAME PARAMETERS(double);                                                   \
    __device__ float NAME##f PARAMETERS(float);
#define ONE(TYPE) (TYPE x)
#define TWO(TYPE) (TYPE x, TYPE y)
#define THREE(TYPE) (TYPE x, TYPE y, TYPE z)
MATH(fabs, ONE) MATH(sqrt, ONE) MATH(exp, ONE) MATH(log, ONE)
MATH(fmin, TWO) MATH(fmax, TWO) MATH(fma, THREE)
#undef MATH
#undef ONE
#undef TWO
#undef THREE
}
#endif

// The tool's: types, operator and launch constants.
using Element = float;
using Scalar = float;
[[maybe_unused]] constexpr Scalar LOWEST = -INFINITY, HIGHEST = INFINITY;
using Acc = Scalar;
using Result = Acc;

// Declared for `mean` only.
extern "C" {
__constant__ unsigned long long COUNT;
}

struct Operator {
    static __device__ Acc identity() { return Acc(0); }
    static __device__ Acc lift(Element x, size_t) { return Acc(x); }
    static __device__ Acc combine(Acc a, Acc b) { return a + b; }
    static __device__ Result finish(Acc a) { return a; }
    // Declared for `argmin` and `argmax` only.
    static __device__ Scalar best(Scalar a, Scalar b);
    static __device__ bool better(Scalar a, Scalar b);
    static __device__ bool precedes(Acc a, Acc b);

    template <class T>
    static __device__ void atomic(T *address, T value) { atomicAdd(address, value); }
};

using In = Element;
using Out = Result;
struct Op : Operator {};
[[maybe_unused]] constexpr unsigned BLOCK = 256, ITEMS = 8, VECTOR = 1;
[[maybe_unused]] constexpr unsigned FIXED_WARPS = 4096, SM_THREADS = 2048;

#endif
