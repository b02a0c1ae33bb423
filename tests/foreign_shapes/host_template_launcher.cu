// expected: right  shape: templated host function that launches, with if constexpr
template <typename T>
__global__ void add_up(const T *values, T *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

template <typename T>
void launch(const T *values, T *total, int count)
{
    if constexpr (sizeof(T) == 4)
        add_up<T><<<(count + 127) / 128, 128>>>(values, total, count);
    cudaDeviceSynchronize();
}
