// expected: right  if: n is a multiple of 2048  shape: a block's tile is a product of its threads and of constants
#define THREADS 256
#define COARSE 4

__global__ void add_coarse(float *in, float *sum)
{
    __shared__ float part[THREADS];
    unsigned t = threadIdx.x, first = COARSE * 2 * THREADS * blockIdx.x + t;
    float s = 0.0f;
    for (unsigned c = 0; c < 2 * COARSE; c++)
        s += in[first + c * THREADS];
    part[t] = s;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        atomicAdd(sum, part[0]);
}
