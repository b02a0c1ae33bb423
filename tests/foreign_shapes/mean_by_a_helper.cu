// expected: right  if: it has at most 65536 elements  shape: each thread adds its share of a mean, squared by a function of the file
#define WIDE 256
__device__ float square(float difference) { return difference * difference; }

__global__ void loss(const float *guess, const float *truth, float *mean, int n)
{
    __shared__ float part[WIDE];
    int at = blockIdx.x * WIDE + threadIdx.x;
    part[threadIdx.x] = at < n ? square(guess[at] - truth[at]) / n : 0.0f;
    for (int half = WIDE / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        atomicAdd(mean, part[0]);
}
