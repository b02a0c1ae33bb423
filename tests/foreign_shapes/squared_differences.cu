// expected: right  shape: two inputs, of which it squares the differences
__global__ void loss(const float *guessed, const float *actual, float *loss, int count)
{
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = 0;
    if (place < count) {
        const float off = guessed[place] - actual[place];
        mine = off * off;
    }
    for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(loss, mine);
}
