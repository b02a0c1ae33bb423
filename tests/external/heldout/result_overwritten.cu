#include <cstdio>
#include <vector>

__global__ void reduceMin(const int* in, int* out, int n) {
    __shared__ int s[256];
    int v = 2147483647;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) v = min(v, in[i]);
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] = min(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = s[0];
}

int main() {
    const int n = 1 << 15;
    std::vector<int> h(n);
    for (int i = 0; i < n; i++) h[i] = (i * 7919) % 10007;
    int *in, *out, r;
    cudaMalloc(&in, n * 4);
    cudaMalloc(&out, 4);
    cudaMemcpy(in, h.data(), n * 4, cudaMemcpyHostToDevice);
    reduceMin<<<16, 256>>>(in, out, n);
    cudaMemcpy(&r, out, 4, cudaMemcpyDeviceToHost);
    printf("min %d\n", r);
}
