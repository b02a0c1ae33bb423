// expected: wrong  shape: a norm, whose last step no operator does
// says: let it write what the root is of, which --map 'a * a' verifies
__global__ void norm(const float *values, float *length, int n)
{
    __shared__ float sums[256];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += values[i] * values[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) *length = sqrtf(sums[0]);
}

void launch(const float *values, float *length, int n) { norm<<<1, 256>>>(values, length, n); }
