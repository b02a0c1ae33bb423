// expected: right  shape: calls of macros of a missing header that no semicolon ends, as bindings are
#include "bindings.h"
#define CHECK_TYPE(T, type) if ((T).dtype() != type) throw 1;
REGISTER_MODULE(sums, float, 1)
__global__ void total(const float *values, float *sum, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(sum, values[i]);
}

BIND_SUM(f32, bindings::kFloat, float, 1)
BIND_SUM(f16, bindings::kHalf, half, 2)

BIND_MODULE(EXTENSION_NAME, m) {
  BIND_NAME(total)
  BIND_NAME(total_of_halves)
}
