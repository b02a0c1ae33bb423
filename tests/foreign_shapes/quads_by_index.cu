// expected: right  if: n is a multiple of  shape: four elements a thread by its index, loaded before their number is looked at
#define QUAD(value) (reinterpret_cast<const float4 *>(&(value))[0])

template <const int NUM_THREADS = 256 / 4>
__global__ void dot(const float *left, const float *right, float *sum, int N)
{
    int k = (blockIdx.x * NUM_THREADS + threadIdx.x) * 4;
    float4 a = QUAD(left[k]), b = QUAD(right[k]);
    float mine = k < N ? a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w : 0.0f;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffff, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
