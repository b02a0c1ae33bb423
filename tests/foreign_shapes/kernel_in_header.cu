// expected: right  shape: main file whose only kernel lies in a header beside it
#include <cstdio>
#include "stripe_sum.cuh"

int main()
{
    float *values, *sums;
    cudaMalloc(&values, 4096);
    cudaMalloc(&sums, 16);
    stripe_sum<<<4, 64, 64 * sizeof(float)>>>(values, sums, 1024);
    printf("%d\n", int(cudaDeviceSynchronize()));
}
