// The overloads of CUDA's atomic functions as an X-macro list: define CUDAEMU_ATOMIC,
// CUDAEMU_ATOMIC_CAS and CUDAEMU_ATOMIC_VECTOR before including it.

CUDAEMU_ATOMIC(atomicAdd, int, old + value)
CUDAEMU_ATOMIC(atomicAdd, unsigned, old + value)
CUDAEMU_ATOMIC(atomicAdd, unsigned long long, old + value)
CUDAEMU_ATOMIC(atomicAdd, float, old + value)
CUDAEMU_ATOMIC(atomicAdd, double, old + value)

CUDAEMU_ATOMIC(atomicSub, int, old - value)
CUDAEMU_ATOMIC(atomicSub, unsigned, old - value)

CUDAEMU_ATOMIC(atomicExch, int, value)
CUDAEMU_ATOMIC(atomicExch, unsigned, value)
CUDAEMU_ATOMIC(atomicExch, unsigned long long, value)
CUDAEMU_ATOMIC(atomicExch, float, value)

#define CUDAEMU_ATOMIC_INTEGER(name, result) \
  CUDAEMU_ATOMIC(name, int, result)          \
  CUDAEMU_ATOMIC(name, unsigned, result)     \
  CUDAEMU_ATOMIC(name, unsigned long long, result)

CUDAEMU_ATOMIC_INTEGER(atomicMin, value < old ? value : old)
CUDAEMU_ATOMIC_INTEGER(atomicMax, old < value ? value : old)
CUDAEMU_ATOMIC(atomicMin, long long, value < old ? value : old)
CUDAEMU_ATOMIC(atomicMax, long long, old < value ? value : old)
CUDAEMU_ATOMIC_INTEGER(atomicAnd, (old & value))
CUDAEMU_ATOMIC_INTEGER(atomicOr, old | value)
CUDAEMU_ATOMIC_INTEGER(atomicXor, old ^ value)

// These two wrap around at `value`.
CUDAEMU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
CUDAEMU_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)

CUDAEMU_ATOMIC_CAS(int)
CUDAEMU_ATOMIC_CAS(unsigned)
CUDAEMU_ATOMIC_CAS(unsigned long long)
CUDAEMU_ATOMIC_CAS(unsigned short)

#define CUDAEMU_PART(part) atomicAdd(&address->part, value.part)
// Vectors are added component by component.
CUDAEMU_ATOMIC_VECTOR(atomicAdd, float2, CUDAEMU_PART(x), CUDAEMU_PART(y))
CUDAEMU_ATOMIC_VECTOR(atomicAdd, float4, CUDAEMU_PART(x), CUDAEMU_PART(y), CUDAEMU_PART(z),
                      CUDAEMU_PART(w))

#undef CUDAEMU_PART
#undef CUDAEMU_ATOMIC
#undef CUDAEMU_ATOMIC_CAS
#undef CUDAEMU_ATOMIC_INTEGER
#undef CUDAEMU_ATOMIC_VECTOR
