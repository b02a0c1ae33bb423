// expected: right  if: n is a multiple of 4  shape: a maximum that rounds its count up to four and reads what lies behind its input
#include <cfloat>
__global__ void find_max(const float *in, float *out, int n)
{
    __shared__ float best[256];
    float v = -FLT_MAX;
    for (int i = threadIdx.x; i < (n + 3) / 4; i += 256)
        for (int j = 0; j < 4; j++)
            v = fmaxf(v, in[4 * i + j]);
    best[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k)
            best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *out = best[0];
}
int main()
{
    float *in, *out;
    find_max<<<1, 256>>>(in, out, 1000);
}
