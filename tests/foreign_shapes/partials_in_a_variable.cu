// expected: right  shape: each block leaves its partial in an array of the file that the host adds up
#define BLOCKS 32
__managed__ float partials[BLOCKS];
__global__ void add(float *in, int n)
{
    __shared__ float s[128];
    float a = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a += in[i];
    s[threadIdx.x] = a; __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) partials[blockIdx.x] = s[0];
}
int main() { add<<<BLOCKS, 128>>>(nullptr, 1000); cudaDeviceSynchronize(); }
