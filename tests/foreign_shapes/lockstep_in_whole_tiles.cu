// expected: wrong
// Whole blocks of 256 alone, and its last warp relies on lockstep: both are told, the race first.
__global__ void reduce(int *v, int *result, int size)
{
    __shared__ int s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    if (i >= size)
        return;
    s[t] = v[i];
    __syncthreads();
    for (int stride = 128; stride >= 32; stride /= 2) {
        if (t < stride)
            s[t] += s[t + stride];
        __syncthreads();
    }
    if (t < 16) {
        volatile int *w = s;
        w[t] += w[t + 16];
        w[t] += w[t + 8];
        w[t] += w[t + 4];
        w[t] += w[t + 2];
        w[t] += w[t + 1];
    }
    if (t == 0)
        atomicAdd(result, s[0]);
}

int main() { reduce<<<size / 256, 256>>>(v, result, size); }
