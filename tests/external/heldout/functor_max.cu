#include <cfloat>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Max {
    static __host__ __device__ float identity() { return -FLT_MAX; }
    __host__ __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <class Op>
__global__ void fold(const float* in, float* out, int n, Op op) {
    __shared__ float s[256];
    float v = Op::identity();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) v = op(v, in[i]);
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] = op(s[threadIdx.x], s[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

template <class Op>
float foldAll(const float* in, float* tmp, int n, Op op = Op()) {
    fold<<<48, 256>>>(in, tmp, n, op);
    fold<<<1, 256>>>(tmp, tmp + 48, 48, op);
    float r;
    cudaMemcpy(&r, tmp + 48, sizeof r, cudaMemcpyDeviceToHost);
    return r;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 90000;
    std::vector<float> h(n);
    for (int i = 0; i < n; i++) h[i] = -1.f - (i % 333);
    float *in, *tmp;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&tmp, 49 * sizeof(float));
    cudaMemcpy(in, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    printf("%f\n", foldAll<Max>(in, tmp, n));
}
