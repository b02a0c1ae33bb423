// expected: right  shape: a condition of the preprocessor in a comment leaves out nothing
/* for the tests:
#ifdef WITH_TESTS
*/
__global__ void add_up(const float *values, float *total, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(total, values[i]);
}
