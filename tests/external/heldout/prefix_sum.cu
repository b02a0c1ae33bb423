#include <cuda_runtime.h>

__global__ void scan(const int* in, int* out, int n) {
    __shared__ int s[1024];
    int t = threadIdx.x;
    s[t] = t < n ? in[t] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        int v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (t < n) out[t] = s[t];
}

void inclusiveScan(const int* in, int* out, int n) { scan<<<1, 1024>>>(in, out, n); }
