// Times CUB's sum of float32 without the tool: `cub N...` prints a median in us for each N.
#include "timed.cuh"
#include <cub/device/device_reduce.cuh>

int main(int count, char **words)
{
    for (int word = 1; word < count; ++word) {
        const int n = atoi(words[word]);
        const float us = alone::timed([n](alone::Memory &memory, cudaStream_t stream) {
            float *x = memory.filled<float>(n, stream), *out = memory.of<float>(1);
            size_t bytes = 0;
            alone::checked(cub::DeviceReduce::Sum(nullptr, bytes, x, out, n, stream));
            char *scratch = memory.of(bytes);
            return [=]() mutable {
                alone::checked(cub::DeviceReduce::Sum(scratch, bytes, x, out, n, stream));
            };
        });
        printf("%d %.4f\n", n, us);
    }
    return 0;
}
