// expected: right  shape: each thread leaves a sum of its own, and the host adds them up
__global__ void sums(float *result, const float *input, int n)
{
    const int tid = blockIdx.x * blockDim.x + threadIdx.x;
    const int threads = gridDim.x * blockDim.x;
    float sum = 0;
    for (int at = tid; at < n; at += threads)
        sum += input[at];
    result[tid] = sum;
}

void solve(float *result, const float *input, int n) { sums<<<32, 256>>>(result, input, n); }
