// expected: right  if: its input is positive and not subnormal  shape: a maximum that begins at FLT_MIN, which is no lowest number but the least normal one
#include <cfloat>
__global__ void find_max(const float *in, float *out, int n)
{
    __shared__ float best[256];
    float v = FLT_MIN;
    for (int i = threadIdx.x; i < n; i += 256)
        v = in[i] > v ? in[i] : v;
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
