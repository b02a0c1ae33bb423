// expected: wrong  shape: factors of 16 bits, which no condition on their products excuses
__global__ void dot(const int *a, const int *b, unsigned long long *out, int n) {
    unsigned long long mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += (short)a[i] * (short)b[i];
    atomicAdd(out, mine);
}
