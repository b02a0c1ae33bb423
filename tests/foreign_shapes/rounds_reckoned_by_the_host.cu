// expected: right
__global__ void sum_in_rounds(const int size, const int rounds, const float *values, float *total)
{
    __shared__ float s[512];
    const int t = threadIdx.x;
    s[t] = 0.0f;
    for (int round = 0; round < rounds; round++) {
        const int i = t + round * 512;
        if (i < size)
            s[t] += values[i];
    }
    for (int offset = 256; offset > 0; offset /= 2) {
        __syncthreads();
        if (t < offset)
            s[t] += s[t + offset];
    }
    if (t == 0)
        *total = s[0];
}

float sum(std::vector<float> const &all)
{
    const int size = all.size();
    const int rounds = (size - 1) / 512 + 1;
    sum_in_rounds<<<1, 512>>>(size, rounds, values, total);
}
