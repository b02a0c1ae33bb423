#include <cfloat>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Best { float value; int index; };

__device__ Best better(Best a, Best b) {
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
    return a;
}

__global__ void argmaxBlocks(const float* x, Best* out, int n) {
    __shared__ Best s[128];
    Best b = {-FLT_MAX, 0x7fffffff};
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) b = better(b, Best{x[i], i});
    s[threadIdx.x] = b;
    __syncthreads();
    for (int k = 64; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] = better(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

__global__ void argmaxFinal(const Best* in, int count, int* where) {
    Best b = in[0];
    for (int i = 1; i < count; i++) b = better(b, in[i]);
    *where = b.index;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 25000;
    std::vector<float> h(n);
    for (int i = 0; i < n; i++) h[i] = (i * 37) % 1001;
    float* x;
    Best* part;
    int *where, r;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&part, 20 * sizeof(Best));
    cudaMalloc(&where, sizeof(int));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    argmaxBlocks<<<20, 128>>>(x, part, n);
    argmaxFinal<<<1, 1>>>(part, 20, where);
    cudaMemcpy(&r, where, sizeof(int), cudaMemcpyDeviceToHost);
    printf("largest at %d\n", r);
}
