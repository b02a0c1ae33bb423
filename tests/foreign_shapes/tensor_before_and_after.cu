// expected: right  if: one of its elements is finite  shape: the least along one dimension of a tensor, of which those before and behind are counted
#include <cfloat>

__global__ void least_along(const float *input, float *output, const size_t *shape, size_t ndim, int dim,
                            size_t before_size, size_t dim_size, size_t after_size)
{
    size_t idx = blockIdx.x * blockDim.x + threadIdx.x;
    size_t answers = before_size * after_size;
    if (idx >= answers)
        return;
    size_t before = idx / after_size, after = idx % after_size;
    float least = FLT_MAX;
    for (size_t d = 0; d < dim_size; ++d)
        least = min(least, input[(before * dim_size + d) * after_size + after]);
    output[idx] = least;
}
