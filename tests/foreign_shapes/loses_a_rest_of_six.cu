// expected: right  if: n is a multiple of 4  shape: unrolled by eight, and of one rest the last element is lost
__global__ void total(const float *in, float *out, int n)
{
    __shared__ float held[256];
    float mine = 0;
    int whole = n / 8 * 8, rest = n - whole;
    for (int i = 8 * threadIdx.x; i < whole; i += 8 * blockDim.x)
        for (int k = 0; k < 8; k++) mine += in[i + k];
    if (threadIdx.x < (rest == 6 ? 5 : rest)) mine += in[whole + threadIdx.x];
    held[threadIdx.x] = mine;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) held[threadIdx.x] += held[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = held[0];
}

void run(float *in, float *out) { total<<<1, 256>>>(in, out, 100000); }
