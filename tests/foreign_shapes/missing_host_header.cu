// expected: right  shape: quoted header that only host code needs and that is not there
#include "../tools/stopwatch.h"

__global__ void add_all(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

void timed(const int *values, int *total, int count)
{
    Stopwatch watch;
    add_all<<<(count + 255) / 256, 256>>>(values, total, count);
    watch.tell("add_all");
}
