// expected: right  shape: versions behind conditions of the preprocessor, one of which is compiled
#define VERSION 2

#if 0
__global__ void total(float *in) { not_even_code(in); }
#endif

#ifdef ONE_THREAD
__global__ void total_of_one(const float *in, float *out, int n)
{
    for (int i = 0; i <= n; ++i)
        *out += in[i];
}
#endif

#if VERSION == 1
#define THREADS 100
__global__ void total(const float *in, float *out, int n) { atomicAdd(out, in[threadIdx.x]); }
#elif VERSION >= 2 && !defined(ONE_THREAD)
#define THREADS 128
__global__ void total(const float *in, float *out, int n)
{
    __shared__ float part[THREADS];
    float mine = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += in[i];
    part[threadIdx.x] = mine;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        atomicAdd(out, part[0]);
}
#endif

void solve(const float *in, float *out, int n)
{
#if VERSION == 1
    total<<<1, THREADS>>>(in, out, n);
#else
    total<<<(n + THREADS - 1) / THREADS, THREADS>>>(in, out, n);
#endif
}
