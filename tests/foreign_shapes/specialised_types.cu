// expected: right  if: n is a multiple of 4 and its input is aligned to 16 bytes  shape: a type for each kind of element, by specialisation
template <typename T> struct Four;
template <> struct Four<float> { using type = float4; };

template <typename T> __global__ void add_all(const T *values, T *total, int count)
{
    using four = typename Four<T>::type;
    T mine = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count / 4; k += gridDim.x * blockDim.x) {
        const four some = reinterpret_cast<const four *>(values)[k];
        mine += some.x + some.y + some.z + some.w;
    }
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, mine);
}
