// Expected: WRONG, naming __syncthreads(): half is 128 first, so warps read what other warps write.
__global__ void add(const float *in, float *out, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int h = blockDim.x / 2; h > 0; h /= 2)
        if (t < h) s[t] += s[t + h];
    __syncthreads();
    if (t == 0) atomicAdd(out, s[0]);
}

void launch(const float *in, float *out, int n) { add<<<(n + 255) / 256, 256>>>(in, out, n); }
