// expected: right  if: a NaN may be dropped  shape: writes a value and its place to two pointers
__global__ void argmax(const float *in, float *outVal, int *outIdx, int n)
{
    __shared__ float v[256]; __shared__ int x[256];
    float best = -INFINITY; int at = -1;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) if (in[i] > best) { best = in[i]; at = i; }
    v[threadIdx.x] = best; x[threadIdx.x] = at; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) {
        if (threadIdx.x < k && v[threadIdx.x + k] > v[threadIdx.x]) { v[threadIdx.x] = v[threadIdx.x + k]; x[threadIdx.x] = x[threadIdx.x + k]; }
        __syncthreads();
    }
    if (threadIdx.x == 0) { outVal[blockIdx.x] = v[0]; outIdx[blockIdx.x] = x[0]; }
}
