// expected: right  shape: another kernel of the file uses what the emulator has not
#include <cuda_fp8.h>

__global__ void add_all(const float *values, float *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

__device__ float widened(__nv_fp8_storage_t bits)
{
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

__global__ void add_small(const __nv_fp8_storage_t *values, float *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, widened(values[place]));
}
