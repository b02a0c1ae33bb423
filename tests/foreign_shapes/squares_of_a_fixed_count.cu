// expected: wrong  shape: as many elements as the text says, of which it adds the squares
constexpr int COUNT = 4096;
__global__ void squares(const double *in, double *out)
{
    __shared__ double s[256];
    double a = 0;
    for (int i = threadIdx.x; i < COUNT; i += 256) a += in[i] * in[i];
    s[threadIdx.x] = a; __syncthreads();
    for (int k = 128; k > 0; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) *out = s[0];
}
void run(double *in, double *out) { squares<<<1, 256>>>(in, out); }
