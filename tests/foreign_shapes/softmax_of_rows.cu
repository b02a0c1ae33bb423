// expected: refused  shape: a softmax, whose answers are as many as its elements
__global__ void softmax(const float *in, float *out, int rows, int n)
{
    __shared__ float part[256];
    int row = blockIdx.x, tid = threadIdx.x;
    const float *x = in + row * n;
    float *y = out + row * n;
    float sum = 0.0f;
    for (int k = tid; k < n; k += 256)
        sum += expf(x[k]);
    part[tid] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (tid < s)
            part[tid] += part[tid + s];
        __syncthreads();
    }
    for (int k = tid; k < n; k += 256)
        y[k] = expf(x[k]) / part[0];
}
