// expected: right  if: its block has 1024 threads  shape: a thread a column in blocks of 32 x 32, of which the kernel knows how many they are
__global__ void add_products(float *sums, const float *a, const float *b, const int batches, const int neurons)
{
    const int threads_of_block = 1024;
    const int neuron = blockIdx.x * threads_of_block + threadIdx.y * blockDim.x + threadIdx.x;
    float result = 0.0f;
    if (neuron < neurons) {
        for (int k = 0; k < batches; ++k)
            result += a[k * neurons + neuron] * b[k * neurons + neuron];
        sums[neuron] += result;
    }
}
