// expected: right  shape: elements equal to a number that the file has a name for
#define WANTED 3
constexpr float LEAST = 0.5f;

__global__ void equal(const int *values, int *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(found, values[i] == WANTED);
}

__global__ void above(const float *values, float *found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && values[i] > LEAST) atomicAdd(found, 1.0f);
}
