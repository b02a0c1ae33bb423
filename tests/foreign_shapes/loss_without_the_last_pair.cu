// expected: wrong  shape: a loss in two branches that skips the last pair
__global__ void huber(const float *guess, const float *truth, float *total, int n, float delta)
{
    __shared__ float s[256];
    float mine = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n - 1; i += blockDim.x * gridDim.x) {
        float off = guess[i] - truth[i];
        float far = fabsf(off);
        if (far <= delta) {
            mine += 0.5f * off * off;
        } else {
            mine += delta * (far - 0.5f * delta);
        }
    }
    s[threadIdx.x] = mine; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) atomicAdd(total, s[0]);
}
