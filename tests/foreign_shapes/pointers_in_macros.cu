// expected: right  shape: a pointer by a macro alone, and one that is said not to be used
#define WEIGHT(i) weights[i]

__global__ void weighted(const float *values, const float *weights, float *sum, float *later, int n) {
    (void)later;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, values[i] * WEIGHT(i));
}
