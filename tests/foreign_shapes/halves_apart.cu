// expected: right  if: n is a multiple of 256  shape: a number says how far apart the two elements of a thread are
#define COUNT (1 << 20)
__device__ float sum;

__global__ void halves(const float *in, unsigned apart)
{
    extern __shared__ float part[];
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = in[at] + in[at + apart];
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        atomicAdd(&sum, part[0]);
}

void launch(const float *in) { halves<<<COUNT / 2 / 128, 128, 128 * sizeof(float)>>>(in, COUNT / 2); }
