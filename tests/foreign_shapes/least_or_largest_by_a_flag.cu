// expected: right  if: one of its elements is finite  shape: a flag says which of two operators it is
#include <cfloat>

__global__ void least_or_largest(const float *values, float *out, size_t n, bool largest) {
    extern __shared__ float best[];
    int place = threadIdx.x + blockDim.x * blockIdx.x;
    best[threadIdx.x] = place < n ? values[place] : largest ? -FLT_MAX : FLT_MAX;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            float other = best[threadIdx.x + step];
            best[threadIdx.x] = largest ? max(best[threadIdx.x], other) : min(best[threadIdx.x], other);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = best[0];
}
