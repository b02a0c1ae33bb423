// expected: wrong  shape: what squares its elements is launched once more on its own partials
__global__ void squares(const float *in, float *out, int n)
{
    __shared__ float part[256];
    int at = blockIdx.x * 256 + threadIdx.x;
    float mine = at < n ? in[at] : 0.0f;
    part[threadIdx.x] = mine * mine;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

void norm(const float *in, float *parts, float *out, int n)
{
    int blocks = (n + 255) / 256;
    squares<<<blocks, 256>>>(in, parts, n);
    squares<<<1, 256>>>(parts, out, blocks);
}
