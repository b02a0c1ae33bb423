// The greater and the lesser of two values, where a NaN wins. Of floats that is one instruction from
// cc 8.0 on, which C++ has no name for. (A quotient, so that the emulator need not try it both ways.)
template <class T>
__device__ inline T greater_of(T a, T b) { return a > b || a != a ? a : b; }
template <class T>
__device__ inline T lesser_of(T a, T b) { return a < b || a != a ? a : b; }
#if !defined(CUDAEMU) && __CUDA_ARCH__ / 100 >= 8
__device__ inline float greater_of(float a, float b)
{
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
__device__ inline float lesser_of(float a, float b)
{
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
#endif
