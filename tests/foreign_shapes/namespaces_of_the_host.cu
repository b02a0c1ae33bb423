// expected: right  shape: its host code uses namespaces of headers that no GPU has
#include <chrono>
#include "imaging.h"

using namespace std;
using namespace std::chrono;
using namespace imaging;

namespace mine {
namespace parts {
__device__ float own(const float *x, int k, int n) { return k < n ? x[k] : 0; }
}
}
namespace alias = mine;
using namespace alias::parts;

__global__ void sum(const float *x, float *out, int n)
{
    float part = own(x, blockIdx.x * blockDim.x + threadIdx.x, n);
    for (int far = 16; far > 0; far /= 2)
        part += __shfl_down_sync(0xffffffff, part, far);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, part);
}
