// A 16-bit float type and its pair, for cuda_fp16.h and cuda_bf16.h, which define the names and the
// two conversions as macros and include this once each (hence no include guard).

struct CUDAEMU_SMALL_FLOAT {
  unsigned short bits;

  CUDAEMU_SMALL_FLOAT() = default;  // trivial, so that __shared__ arrays need no constructor
  CUDAEMU_SMALL_FLOAT(float value) : bits(CUDAEMU_FROM_FLOAT(value)) {}
  CUDAEMU_SMALL_FLOAT(double value) : CUDAEMU_SMALL_FLOAT(static_cast<float>(value)) {}
  CUDAEMU_SMALL_FLOAT(int value) : CUDAEMU_SMALL_FLOAT(static_cast<float>(value)) {}
  CUDAEMU_SMALL_FLOAT(unsigned value) : CUDAEMU_SMALL_FLOAT(static_cast<float>(value)) {}
  operator float() const { return CUDAEMU_TO_FLOAT(bits); }
};

struct __align__(4) CUDAEMU_SMALL_FLOAT_2 {
  CUDAEMU_SMALL_FLOAT x, y;
};

// Arithmetic rounds after every operation, and a comparison is that of the values.
#define CUDAEMU_ARITHMETIC(op)                                                                   \
  inline CUDAEMU_SMALL_FLOAT operator op(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) {         \
    return static_cast<float>(a) op static_cast<float>(b);                                       \
  }                                                                                              \
  inline CUDAEMU_SMALL_FLOAT &operator op## = (CUDAEMU_SMALL_FLOAT & a, CUDAEMU_SMALL_FLOAT b) { \
    return a = a op b;                                                                           \
  }
#define CUDAEMU_COMPARISON(op)                                            \
  inline bool operator op(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) { \
    return static_cast<float>(a) op static_cast<float>(b);                \
  }

CUDAEMU_ARITHMETIC(+)
CUDAEMU_ARITHMETIC(-)
CUDAEMU_ARITHMETIC(*)
CUDAEMU_ARITHMETIC(/)
CUDAEMU_COMPARISON(==)
CUDAEMU_COMPARISON(!=)
CUDAEMU_COMPARISON(<)
CUDAEMU_COMPARISON(<=)
CUDAEMU_COMPARISON(>)
CUDAEMU_COMPARISON(>=)
inline CUDAEMU_SMALL_FLOAT operator-(CUDAEMU_SMALL_FLOAT a) { return -static_cast<float>(a); }

inline float __low2float(CUDAEMU_SMALL_FLOAT_2 pair) { return pair.x; }
inline float __high2float(CUDAEMU_SMALL_FLOAT_2 pair) { return pair.y; }
inline CUDAEMU_SMALL_FLOAT __hadd(CUDAEMU_SMALL_FLOAT a, CUDAEMU_SMALL_FLOAT b) { return a + b; }
inline CUDAEMU_SMALL_FLOAT_2 __hadd2(CUDAEMU_SMALL_FLOAT_2 a, CUDAEMU_SMALL_FLOAT_2 b) {
  return {a.x + b.x, a.y + b.y};
}
inline bool __hisnan(CUDAEMU_SMALL_FLOAT a) { return __builtin_isnan(static_cast<float>(a)); }

#undef CUDAEMU_ARITHMETIC
#undef CUDAEMU_COMPARISON
#undef CUDAEMU_SMALL_FLOAT
#undef CUDAEMU_SMALL_FLOAT_2
#undef CUDAEMU_TO_FLOAT
#undef CUDAEMU_FROM_FLOAT
