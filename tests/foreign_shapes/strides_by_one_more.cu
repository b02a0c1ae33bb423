// expected: wrong  shape: one block that strides over everything, and leaves one element out each time
__global__ void total(const float *in, float *out, int n)
{
    __shared__ float held[256];
    float mine = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x + 1)
        mine += in[i];
    held[threadIdx.x] = mine;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) held[threadIdx.x] += held[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = held[0];
}

void run(float *in, float *out) { total<<<1, 256>>>(in, out, 100000); }
