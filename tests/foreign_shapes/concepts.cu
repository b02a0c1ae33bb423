// expected: right  shape: in C++20, with a concept of its own, a requirement and parameters that are auto
#include <concepts>
#include <type_traits>

template <typename T, typename... Any>
concept OneOf = (std::same_as<T, Any> || ...);

template <typename T>
concept Number = OneOf<T, int, float, double>;

__device__ auto both(auto a, auto b) { return a + b; }

template <typename T>
    requires std::is_arithmetic_v<T>
__device__ T of_warp(T sum)
{
    for (int step = 16; step > 0; step /= 2)
        sum = both(sum, __shfl_down_sync(0xffffffff, sum, step));
    return sum;
}

template <bool WIDE, Number T>
__global__ void sum(const T *in, T *out, unsigned n)
{
    T mine = 0;
    for (unsigned k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        mine = both(mine, in[k]);
    mine = of_warp(mine);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, mine);
}
