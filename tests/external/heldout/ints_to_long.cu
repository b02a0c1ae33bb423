#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void sumLong(const int* x, long long* out, int n) {
    __shared__ long long s[8];
    long long v = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) v += x[i];
    for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; w++) v += s[w];
        atomicAdd((unsigned long long*)out, (unsigned long long)v);
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 33333;
    std::vector<int> h(n);
    for (int i = 0; i < n; i++) h[i] = 2000000000 - i;
    int* x;
    long long *out, r;
    cudaMalloc(&x, n * sizeof(int));
    cudaMalloc(&out, sizeof(long long));
    cudaMemset(out, 0, sizeof(long long));
    cudaMemcpy(x, h.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    sumLong<<<16, 256>>>(x, out, n);
    cudaMemcpy(&r, out, sizeof r, cudaMemcpyDeviceToHost);
    printf("%lld\n", r);
}
