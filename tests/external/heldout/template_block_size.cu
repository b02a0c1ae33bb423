#include <cstdio>
#include <cstdlib>
#include <vector>

template <typename T, int B>
__global__ void reduceBlocks(const T* __restrict__ in, T* __restrict__ out, int n) {
    __shared__ T s[B];
    T v = T(0);
    for (int i = blockIdx.x * B + threadIdx.x; i < n; i += gridDim.x * B) v += in[i];
    s[threadIdx.x] = v;
    __syncthreads();
#pragma unroll
    for (int k = B / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

template <typename T>
void reduce(const T* in, T* out, int n, int threads, int blocks) {
    switch (threads) {
        case 512: reduceBlocks<T, 512><<<blocks, 512>>>(in, out, n); break;
        case 256: reduceBlocks<T, 256><<<blocks, 256>>>(in, out, n); break;
        case 128: reduceBlocks<T, 128><<<blocks, 128>>>(in, out, n); break;
        case 64: reduceBlocks<T, 64><<<blocks, 64>>>(in, out, n); break;
    }
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1 << 18;
    std::vector<double> h(n, 0.125);
    double *in, *part, *out, r;
    cudaMalloc(&in, n * sizeof(double));
    cudaMalloc(&part, 64 * sizeof(double));
    cudaMalloc(&out, sizeof(double));
    cudaMemcpy(in, h.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    reduce(in, part, n, 512, 64);
    reduce(part, out, 64, 64, 1);
    cudaMemcpy(&r, out, sizeof(double), cudaMemcpyDeviceToHost);
    printf("%f\n", r);
    return 0;
}
