// Included in angles, as of a folder that compilers are told of.
template <typename T>
__device__ T of_a_warp(T sum)
{
    for (int step = warpSize / 2; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, step);
    return sum;
}
