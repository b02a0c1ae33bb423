// Expected: WRONG, and that of 512 elements of a block only 64 are added (the loop's condition is never true).
#define SIZE 256

__global__ void add(float *in, float *partial, unsigned int n)
{
    __shared__ float s[SIZE];
    unsigned int i = blockIdx.x * SIZE * 2 + threadIdx.x;
    s[threadIdx.x] = in[i] + in[i + SIZE];
    __syncthreads();
    for (unsigned int h = SIZE / 2; h < 32; h /= 2) {
        if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];
        __syncthreads();
    }
    float v = 0;
    if (threadIdx.x < 32) v = s[threadIdx.x] + s[threadIdx.x + 32];
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x == 0) partial[blockIdx.x] = v;
}

void launch(float *in, float *p, unsigned int n) { add<<<(n + 511) / 512, SIZE>>>(in, p, n); }
