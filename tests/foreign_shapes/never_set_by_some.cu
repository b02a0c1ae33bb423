// expected: right  if: n is a multiple of 512  shape: a second sum that is set only by threads with a second element
__global__ void total(const int *in, int *out, int n)
{
    __shared__ int held[256];
    int first = 0, second;
    for (int i = threadIdx.x; i < n; i += 512) {
        first += in[i];
        if (i + 256 < n) {
            if (i == threadIdx.x) second = 0;
            second += in[i + 256];
        }
    }
    held[threadIdx.x] = first + second;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) held[threadIdx.x] += held[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = held[0];
}

void run(int *in, int *out) { total<<<1, 256>>>(in, out, 100000); }
