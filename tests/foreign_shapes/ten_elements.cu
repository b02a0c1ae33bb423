// expected: wrong  shape: no count, and a number of elements that is no whole block
const int N = 10, threads = 256;

__global__ void dot(const float *a, const float *b, float *c)
{
    __shared__ float part[threads];
    int k = threadIdx.x + blockIdx.x * blockDim.x;
    float sum = 0;
    for (; k < N; k += blockDim.x * gridDim.x)
        sum += a[k] * b[k];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        c[blockIdx.x] = part[0];
}

void launch(const float *a, const float *b, float *c) { dot<<<(N + threads - 1) / threads, threads>>>(a, b, c); }
